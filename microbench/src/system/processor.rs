//! The processor, and the cores of it that this process uses.

use crate::error::MeasureError;
use crate::system::limits;
use hwprofiles::Processor;
use std::fs;
use std::path::Path;

/// The relevant instruction sets, as `/proc/cpuinfo` spells them.
const FEATURES: [&str; 12] = [
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
];

/// Reads the processor from the `/proc` and `/sys` under `root`. `available` are the cores in our
/// affinity mask. One core per physical core is kept, and no more than a container's CPU quota
/// allows.
pub(crate) fn processor(root: &Path, available: &[usize]) -> Result<Processor, MeasureError> {
    let file = root.join("proc/cpuinfo");
    let text = fs::read_to_string(&file)
        .map_err(|error| MeasureError::System { file: file.clone(), reason: error.to_string() })?;
    let field = |wanted: &str| {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == wanted)
    };
    let model = field("model name").map_or("unknown", |(_, value)| value).to_owned();
    let flags: Vec<_> = field("flags").map_or("", |(_, value)| value).split_ascii_whitespace().collect();
    let features = FEATURES.into_iter().filter(|name| flags.contains(name)).map(str::to_owned).collect();
    let mut cores: Vec<_> = available.iter().copied().filter(|&core| leads(root, core, available)).collect();
    if let Some(quota) = limits::cpu_quota(root) {
        cores.truncate(quota);
    }
    Ok(Processor { model, cores, features })
}

/// A short name of the processor for files: `amd-epyc-2-cores`.
pub(crate) fn name(processor: &Processor) -> String {
    // "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz": the model number implies the frequency.
    let model = processor.model.split('@').next().unwrap_or_default();
    let words = model.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words =
        words.map(str::to_ascii_lowercase).filter(|word| !["r", "tm", "cpu"].contains(&word.as_str()));
    let words: Vec<_> = words.take(6).collect();
    let cores = processor.cores.len();
    format!("{}-{cores}-core{}", words.join("-"), if cores == 1 { "" } else { "s" })
}

/// Whether `core` is the first available thread of its physical core. Without `/sys`, every core
/// is.
fn leads(root: &Path, core: usize, available: &[usize]) -> bool {
    let file = root.join(format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"));
    let siblings = fs::read_to_string(file).map(|text| core_list(text.trim())).unwrap_or_default();
    !siblings.iter().any(|&sibling| sibling < core && available.contains(&sibling))
}

/// `0-2,8` → 0, 1, 2, 8. Parts that cannot be parsed are left out.
pub(crate) fn core_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn one_thread_of_each_physical_core_is_kept_and_no_more_than_the_quota() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/cpuinfo", "model name\t: Some(R) CPU 9 @ 2.00GHz\nflags\t\t: fpu avx2 fma sse2\n");
        for (core, siblings) in ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"].iter().enumerate() {
            write(root, &format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"), siblings);
        }
        // Core 1 is not ours, so its sibling 5 is kept for the pair.
        let processor = processor(root, &[0, 2, 3, 4, 5, 6, 7]).unwrap();
        assert_eq!(processor.cores, [0, 2, 3, 5]);
        assert_eq!(processor.features, ["avx2", "fma"]);
        assert_eq!(name(&processor), "some-9-4-cores");
        write(root, "sys/fs/cgroup/cpu.max", "250000 100000\n");
        assert_eq!(super::processor(root, &[0, 1, 2, 3]).unwrap().cores, [0, 1]);
    }

    #[test]
    fn a_machine_without_proc_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = processor(folder.path(), &[0]).unwrap_err().to_string();
        assert!(error.contains("proc/cpuinfo"), "{error}");
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(core_list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(core_list("3"), [3]);
        assert!(core_list("").is_empty());
    }
}
