//! Memory and processor time that this process may use: the machine's, or its container's where
//! that is less.

use crate::error::MeasureError;
use hwprofiles::Bytes;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory that this process may use: `MemTotal`, or the lowest limit of its control
/// groups.
pub(crate) fn capacity(root: &Path) -> Result<Bytes, MeasureError> {
    let file = root.join("proc/meminfo");
    let wrong = |reason: String| MeasureError::System { file: file.clone(), reason };
    let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).and_then(|rest| {
        let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    });
    let total = total.ok_or_else(|| wrong("it has no `MemTotal: … kB`".to_owned()))?;
    let groups =
        ["memory.max", "memory.limit_in_bytes"].into_iter().flat_map(|name| files(root, "memory", name));
    let limits = groups.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok());
    Ok(Bytes::new(limits.chain([total]).min().unwrap_or(total)))
}

/// Whole cores that the control groups' CPU quota allows, at least 1; `None` without a quota.
pub(crate) fn cpu_quota(root: &Path) -> Option<usize> {
    let number = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<f64>().ok();
    let v2 = files(root, "cpu", "cpu.max").into_iter().filter_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    let v1 = files(root, "cpu", "cpu.cfs_quota_us").into_iter().filter_map(|file| {
        let period = number(file.with_file_name("cpu.cfs_period_us"))?;
        // −1 means no quota.
        number(file).filter(|&quota| quota > 0.0).map(|quota| quota / period)
    });
    v2.chain(v1).map(|cores| (cores as usize).max(1)).min()
}

/// Paths where `name` may be for our control group and every group above it: under `/sys/fs/cgroup`
/// (version 2) and under the folder of `controller` (version 1). A container sees its own group at
/// the top.
fn files(root: &Path, controller: &str, name: &str) -> Vec<PathBuf> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let top = root.join("sys/fs/cgroup");
    let mut files = vec![top.join(name), top.join(controller).join(name)];
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let base = match controllers {
            "" => top.clone(),
            list if list.split(',').any(|it| it == controller) => top.join(controller),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let groups = path.ancestors().filter(|group| !group.as_os_str().is_empty());
        files.extend(groups.map(|group| base.join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 7 kB\n")].iter().chain(files)
        {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    #[test]
    fn memory_is_the_machines_or_the_lowest_limit_of_the_groups() {
        let capacity = |files: &[(&str, &str)]| capacity(machine(files).path()).unwrap().get();
        assert_eq!(capacity(&[]), 1000 << 10);
        assert_eq!(capacity(&[("sys/fs/cgroup/memory.max", "max\n")]), 1000 << 10);
        assert_eq!(capacity(&[("sys/fs/cgroup/memory.max", "5000\n")]), 5000);
        let nested = ("proc/self/cgroup", "0::/a/b\n");
        assert_eq!(capacity(&[nested, ("sys/fs/cgroup/a/memory.max", "6000\n")]), 6000);
        let old = ("proc/self/cgroup", "9:name=systemd:/\n4:memory:/c\n");
        assert_eq!(capacity(&[old, ("sys/fs/cgroup/memory/c/memory.limit_in_bytes", "7000\n")]), 7000);
        let unlimited = "9223372036854771712\n";
        assert_eq!(capacity(&[old, ("sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited)]), 1000 << 10);
    }

    #[test]
    fn a_quota_pays_for_whole_cores() {
        let quota = |files: &[(&str, &str)]| cpu_quota(machine(files).path());
        assert_eq!(quota(&[]), None);
        assert_eq!(quota(&[("sys/fs/cgroup/cpu.max", "max 100000\n")]), None);
        assert_eq!(quota(&[("sys/fs/cgroup/cpu.max", "350000 100000\n")]), Some(3));
        assert_eq!(quota(&[("sys/fs/cgroup/cpu.max", "50000 100000\n")]), Some(1));
        let period = ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota(&[period, ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n")]), Some(2));
        assert_eq!(quota(&[period, ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")]), None);
    }

    #[test]
    fn a_machine_that_does_not_tell_its_memory_is_refused() {
        let error = capacity(machine(&[("proc/meminfo", "MemFree: 7 kB\n")]).path()).unwrap_err().to_string();
        assert!(error.contains("meminfo") && error.contains("MemTotal"), "{error}");
    }
}
