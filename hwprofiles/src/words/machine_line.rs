//! A machine in one line of words: `RTX 4090, i7-14700K, 64 GB DDR5-6000`.

use crate::files::ProfileError;
use crate::library::{GPU_BRANDS, similar_names};
use crate::units::Bytes;
use crate::words::cloud_instance::{instance_words, nearest_instance};
use crate::words::described_machine::{DescribedMachine, PartKind, part_kind};
use crate::words::line_words::{ModuleWords, Phrase, count, link, modules, phrases, rate, size};
use std::collections::HashSet;
use std::sync::LazyLock;

/// The longest name of a part, in words.
const LONGEST: usize = 8;

/// The most letters of a line: every run of its words is compared with every part.
const MOST_LETTERS: usize = 500;

/// The most memory, or disk, of a machine.
const MOST_MEMORY: Bytes = Bytes::new(1_000_000_000_000_000);

/// Words that describe a machine and say nothing that is modelled here.
static IDLE: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "a an the my of on in via one pc rig box machine computer desktop tower server workstation \
    gaming laptop notebook mobile max-q mac macbook pro studio mini air imac cpu gpu gpus \
    graphics ram memory vram ssd nvme hdd disk storage psu os windows win10 win11 linux ubuntu \
    debian fedora arch macos wsl wsl2 @ channel channels dual-channel socket sockets dimm dimms \
    ecc unified cores core threads speed mhz mts ghz at arm64 x86 x86_64 gen generation egpu \
    slot slots developer kit only no pcie"
        .split(' ')
        .collect()
});

/// Words of families: they tell the maker and not the part.
static FAMILIES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    "intel amd nvidia apple ryzen epyc xeon core threadripper radeon geforce rtx gtx rx arc ultra \
    i3 i5 i7 i9 silicon qualcomm aws"
        .split(' ')
        .collect()
});

/// The machine that `line` describes.
pub(crate) fn read_line(line: &str) -> Result<DescribedMachine, ProfileError> {
    let letters = line.chars().count();
    if letters > MOST_LETTERS {
        let wrong = format!("the line has {letters} letters: a machine is said in at most {MOST_LETTERS}");
        return Err(ProfileError::Unclear { understood: Vec::new(), wrong: vec![wrong] });
    }
    let pieces: Vec<&str> = line.split(',').map(|piece| instance_words(piece).unwrap_or(piece)).collect();
    let line = &*pieces.join(",");
    let lower = line.to_lowercase();
    let is_laptop = ["laptop", "notebook", "max-q"].iter().any(|word| lower.contains(word));
    let mut reader = LineReader { is_laptop, ..LineReader::default() };
    let phrases = phrases(line);
    phrases.iter().for_each(|phrase| reader.read(phrase));
    reader.finished()
}

/// What the word before said, which tells what the next one belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Before {
    #[default]
    Nothing,
    Gpu,
    Cpu,
}

#[derive(Debug, Default)]
struct LineReader {
    machine: DescribedMachine,
    is_laptop: bool,
    /// A count that waits for its part.
    waiting: Option<u64>,
    before: Before,
    /// The GPU's brand before the words that are read: `radeon` before `7900 XTX`.
    brand: Option<String>,
    wrong: Vec<String>,
    /// A size without a word that says of what; a disk where another size is the memory.
    maybe_memory: Option<Bytes>,
}

impl LineReader {
    fn read(&mut self, phrase: &Phrase) {
        (self.before, self.waiting, self.brand) = (Before::Nothing, None, None);
        let mut at = 0;
        let mut strange: Vec<&str> = Vec::new();
        let mut families: Vec<&str> = Vec::new();
        while at < phrase.len() {
            let rest = &phrase[at..];
            let used = self.item(rest);
            if used == 0 {
                let word = rest[0].as_str();
                match word {
                    word if phrase.len() == 1 && word.parse::<f64>().is_ok() => self.unitless(word),
                    word if FAMILIES.contains(word) => {
                        self.brand = Some(word.to_owned()).filter(|word| GPU_BRANDS.contains(&&**word));
                        families.push(word);
                    }
                    word if is_idle(word) => {}
                    word if self.before == Before::Gpu && is_rack(word) => {
                        let told = format!("'{word}' is a rack: say how many of its GPUs are used, as 8x");
                        self.machine.unused.push(told);
                    }
                    // "Windows 11" and "Ryzen 7" name no part; "RTX 4095" should.
                    word if word.parse::<f64>().is_ok() && (families.is_empty() || word.len() <= 2) => {}
                    word => strange.push(word),
                }
            }
            at += used.max(1);
        }
        if !strange.is_empty() {
            self.refuse_strange(&[families, strange].concat().join(" "));
        } else if !families.is_empty() {
            self.machine.unused.push(format!("'{}' is a family, not a part", families.join(" ")));
        }
    }

    /// A number by itself, which is no part.
    fn unitless(&mut self, number: &str) {
        let size = number.trim_start_matches(['-', '+']);
        self.wrong.push(format!("'{number}' has no unit: say {size} GB for memory"));
    }

    fn refuse_strange(&mut self, words: &str) {
        let near = similar_names(words);
        let near = match &near[..] {
            [] => nearest_instance(words).map_or_else(
                || "`fulcrum machine list` names the parts that are known".to_owned(),
                |name| format!("did you mean {name}?"),
            ),
            [same, ..] if *same == words => {
                "it is a part, but of a kind that a line of words has no place for: give the machine by its parts, \
                 like {cpu: …, gpu: …, cxl: NAME}"
                    .to_owned()
            }
            near => format!("did you mean {}?", near.join(", ")),
        };
        self.wrong.push(format!("not known: '{words}'; {near}"));
    }

    /// Takes what begins here; returns the words that it took.
    fn item(&mut self, rest: &[String]) -> usize {
        let word = rest[0].as_str();
        let next = rest.get(1).map(String::as_str);
        if matches!((word, next), ("no", Some("gpu" | "gpus")) | ("cpu", Some("only"))) {
            self.machine.no_gpu = true;
            return 2;
        }
        if let (Ok(cores), Some("core" | "cores")) = (word.parse::<u64>(), next) {
            if self.before != Before::Gpu && rest.get(2).is_none_or(|word| word != "gpu") {
                self.machine.cores = Some(cores).filter(|cores| *cores > 0);
            }
            return 2;
        }
        // A cloud counts the threads of its cores, two to each.
        if let (Ok(threads), Some("vcpu" | "vcpus")) = (word.parse::<u64>(), next) {
            self.machine.cores = Some(threads.div_ceil(2)).filter(|cores| *cores > 0);
            return 2;
        }
        if let (Ok(channels), Some("channel" | "channels")) = (word.parse::<u64>(), next) {
            self.machine.module_count = Some(channels).filter(|channels| *channels > 0);
            return 2;
        }
        if let Some(found) = count(word) {
            return self.counted(found, word.starts_with('x'), next);
        }
        if let Some((found, used)) = link(rest) {
            match found {
                Ok(name) => match self.machine.gpus.last_mut().filter(|_| self.before == Before::Gpu) {
                    Some(gpus) => gpus.link = Some(name),
                    None => self.machine.link = Some(name),
                },
                Err(name) => self.wrong.push(format!("not known: the link {name}; as pcie4-x16 or oculink")),
            }
            return used;
        }
        if let Some((found, used)) = modules(rest) {
            self.machine.module_count = self.waiting.take().or(self.machine.module_count);
            self.machine.modules = Some(found);
            return used;
        }
        if let Some(used) = self.negative(rest) {
            return used;
        }
        if let Some((bytes, used)) = size(rest) {
            return used + self.sized(bytes, &rest[used..]);
        }
        if let (Some(found), Some(known)) =
            (rate(word).filter(|_| word.ends_with(['z', 's'])), &self.machine.modules)
        {
            self.machine.modules = Some(ModuleWords { rate: Some(found), ..known.clone() });
            return 1;
        }
        self.part(rest)
    }

    /// A count: behind a GPU it is that GPU's, before channels and lanes it counts them. `x4` is
    /// `behind` a name, `4x` before one.
    fn counted(&mut self, found: u64, behind: bool, next: Option<&str>) -> usize {
        match (next, self.before) {
            (Some("slot" | "lane" | "lanes"), Before::Gpu) if matches!(found, 1 | 4 | 8 | 16) => {
                if let Some(gpus) = self.machine.gpus.last_mut() {
                    gpus.lanes = Some(found);
                }
                return 2;
            }
            (Some("channel" | "channels"), _) => {
                self.machine.module_count = Some(found);
                return 2;
            }
            (None, Before::Gpu) => {
                if let Some(gpus) = self.machine.gpus.last_mut() {
                    // Several that were counted before their name have lanes behind it.
                    match behind && gpus.count > 1 && matches!(found, 1 | 4 | 8 | 16) {
                        true => gpus.lanes = Some(found),
                        false => (gpus.count, gpus.counted_behind) = (found, behind),
                    }
                }
            }
            (None, Before::Cpu) => self.machine.sockets = Some(found),
            _ => self.waiting = Some(found),
        }
        if found == 0 {
            self.wrong.push("0 of a part hold nothing: leave it out, or say how many".to_owned());
        }
        1
    }

    /// Refuses a size below zero; returns the words that it took.
    fn negative(&mut self, rest: &[String]) -> Option<usize> {
        let amount = rest[0].strip_prefix('-')?.to_owned();
        let words: Vec<_> = [amount].into_iter().chain(rest.get(1).cloned()).collect();
        let (bytes, used) = size(&words)?;
        self.wrong.push(format!("-{bytes} of memory is negative: say how much there is, as 64 GB"));
        Some(used)
    }

    /// A size, with the words behind it; returns how many of those it took.
    fn sized(&mut self, bytes: Bytes, behind: &[String]) -> usize {
        let next = behind.first().map_or("", String::as_str);
        let modules = self.waiting.take();
        if bytes == Bytes::ZERO {
            self.wrong.push("0 GB of memory hold no model: say how much there is, as 64 GB".to_owned());
            return 0;
        }
        if bytes > MOST_MEMORY {
            self.wrong.push(format!("{bytes} is more than a machine has, which is at most {MOST_MEMORY}"));
            return 0;
        }
        let total = bytes * modules.unwrap_or(1);
        match next {
            "vram" => return 1,
            "ssd" | "nvme" | "hdd" | "disk" | "storage" | "m.2" => {
                self.machine.unused.push(format!("a disk of {bytes}"));
                return 1;
            }
            _ => {}
        }
        let says_memory = ["ram", "memory", "unified", "ecc"].contains(&next) || next.contains("ddr");
        let of_gpu = self.before == Before::Gpu
            && !says_memory
            && modules.is_none()
            && self.machine.gpus.last().is_some_and(|gpu| !gpu.part.unified && gpu.holds(bytes));
        if of_gpu {
            return 0;
        }
        let other = self.machine.memory.filter(|known| !says_memory && modules.is_none() && *known != total);
        if let Some(known) = other.filter(|_| bytes.gigabytes() < 1000.0) {
            self.wrong.push(format!(
                "{known} and {bytes} of memory: say which is the machine's, as 64 GB RAM; a card of another size is a \
                 part of its own"
            ));
        } else if other.is_some() {
            self.machine.unused.push(format!("{bytes}, beside the memory"));
        } else if says_memory || modules.is_some() || bytes.gigabytes() < 1000.0 {
            self.machine.memory = Some(total);
            self.machine.module_count = modules.or(self.machine.module_count);
        } else {
            self.maybe_memory = Some(total);
        }
        0
    }

    /// The part whose name begins here, by the longest run of words that names one.
    fn part(&mut self, rest: &[String]) -> usize {
        if is_idle(&rest[0]) && !FAMILIES.contains(&*rest[0]) {
            return 0;
        }
        let brand = self.brand.clone().filter(|_| rest[0].starts_with(|c: char| c.is_ascii_digit()));
        for used in (1..=rest.len().min(LONGEST)).rev() {
            let name = rest[..used].join(" ");
            let name = brand.as_ref().map_or(name.clone(), |brand| format!("{brand} {name}"));
            let Some(part) = part_kind(&name, self.is_laptop) else { continue };
            self.take(part);
            return used;
        }
        0
    }

    fn take(&mut self, part: PartKind) {
        let waiting = self.waiting.take();
        self.brand = None;
        match part {
            PartKind::Gpu(gpu) => {
                let count = waiting.unwrap_or(1);
                if self.before != Before::Gpu || !self.machine.repeat_gpus(&gpu, count) {
                    self.machine.add_gpus(*gpu, count);
                }
                self.before = Before::Gpu;
            }
            PartKind::Cpu(name) => {
                if let Some(other) = self.machine.cpu.replace(name.clone()).filter(|other| *other != name) {
                    self.wrong.push(format!("two CPUs, {other} and {name}: leave one out"));
                }
                self.machine.sockets = waiting.or(self.machine.sockets);
                self.before = Before::Cpu;
            }
            PartKind::Whole(composition) => self.machine.take_whole(*composition),
        }
    }

    fn finished(mut self) -> Result<DescribedMachine, ProfileError> {
        self.machine.memory = self.machine.memory.or(self.maybe_memory);
        let understood = self.machine.understood();
        if self.machine.cpu.is_none() && self.machine.gpus.is_empty() && self.wrong.is_empty() {
            let unused = self.machine.unused.join("; ");
            let unused = if unused.is_empty() { String::new() } else { format!(" ({unused})") };
            self.wrong.push(format!("missing: a GPU or a CPU, by its name{unused}"));
        }
        match self.wrong.is_empty() {
            true => Ok(self.machine),
            false => Err(ProfileError::Unclear { understood, wrong: self.wrong }),
        }
    }
}

/// Whether a word says nothing that is modelled: a name of a system, a power supply's watts, a
/// clock.
fn is_idle(word: &str) -> bool {
    let measured = ["w", "ghz", "mhz"].iter().filter_map(|unit| word.strip_suffix(unit));
    IDLE.contains(word) || measured.into_iter().any(|number| number.parse::<f64>().is_ok())
}

/// Whether a word names NVIDIA's rack of so many GPUs: `nvl72`.
fn is_rack(word: &str) -> bool {
    word.strip_prefix("nvl").is_some_and(|count| count.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::described_machine::UnderstoodMachine;

    /// Machines of people who published what they measured, in their words.
    const USERS: &str = include_str!("users_machines.txt");

    fn machine(line: &str) -> UnderstoodMachine {
        let read = read_line(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        read.compose().unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    #[test]
    fn every_machine_of_users_is_understood_or_refused_with_a_reason() {
        let mut refused = Vec::new();
        for line in USERS.lines() {
            match read_line(line) {
                Ok(described) => assert!(!described.compose().expect(line).parts.is_empty()),
                Err(error) => {
                    let told = error.to_string();
                    let near = told.contains("did you mean") || told.contains("fulcrum machine list");
                    assert!(told.contains("not known: '") && near, "{line}: {told}");
                    refused.push(line);
                }
            }
        }
        assert!(refused.len() <= 4, "{refused:#?}");
    }

    #[test]
    fn modules_of_another_kind_than_the_cpus_fastest_have_their_usual_speed() {
        for (line, told) in [
            ("i7-12700K, 32 GB DDR5", "memory at DDR5-4800"),
            ("i7-12700K, 32 GB DDR4", "memory at 2x DDR4-3200, the CPU's fastest"),
            ("i5-14600K, 32 GB DDR4", "memory at DDR4-3200"),
        ] {
            let assumed = machine(line).assumed;
            assert!(assumed.iter().any(|it| it == told), "{line}: {assumed:?}");
        }
    }

    #[test]
    fn two_sizes_of_memory_are_not_clear() {
        for (line, told) in [
            ("RTX 4090 48 GB, i7-14700K, 64 GB", "48 GB and 64 GB of memory: say which"),
            ("RTX 4090, 128 GB 64 GB", "128 GB and 64 GB of memory"),
        ] {
            let error = UnderstoodMachine::read(line).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
        assert_parts("RTX 4090, i7-14700K, 64 GB, 2 TB", "rtx-4090 24 GB, i7-14700k, 64 GB");
        assert_parts("RTX 4090, i7-14700K, 2x32GB, 64 GB", "rtx-4090 24 GB, i7-14700k, 64 GB");
    }

    #[test]
    fn cards_share_the_lanes_of_a_desktop() {
        for (line, link) in [
            ("2x RTX PRO 6000, Ryzen 9950X, 64 GB", "link pcie5-x8"),
            ("2x RTX 3090, EPYC 7543, 256 GB", "link pcie4-x16"),
            ("4x RTX 3060, i7-13700K, 64 GB", "link pcie4-x4"),
            ("RTX 4090, RTX 3060, i7-13700K, 64 GB", "link pcie4-x16"),
        ] {
            let assumed = machine(line).assumed;
            assert!(assumed.iter().any(|it| it == link), "{line}: {assumed:?}");
        }
    }

    #[test]
    fn a_line_has_an_end() {
        let words = "an RTX 4095 and ".repeat(31);
        assert!(read_line(&words).unwrap_err().to_string().contains("not known: 'rtx 4095'"));
        let told = read_line(&words.repeat(2)).unwrap_err().to_string();
        assert!(told.contains("the line has 992 letters: a machine is said in at most 500"), "{told}");
    }

    fn assert_parts(line: &str, parts: &str) {
        let found = machine(line).parts.join(", ");
        assert!(found.starts_with(parts), "{line}: {found}");
    }

    #[test]
    fn a_line_is_a_machine_of_shipped_parts() {
        for (line, parts) in [
            ("RTX 4090, i7-14700K, 64 GB DDR5-6000", "rtx-4090 24 GB, i7-14700k, 64 GB DDR5-6000"),
            ("2x RTX 3090 + EPYC 7543 + 256GB", "2x rtx-3090 24 GB, epyc-7543, 256 GB"),
            (
                "dual 3090, Ryzen 9 5950X w/ 4x16GB DDR4 3600",
                "2x rtx-3090 24 GB, ryzen-5950x, 64 GB DDR4-3600",
            ),
            ("Mac M3 Max 128GB", "apple-m3-max, 128 GB"),
            ("Apple M1 Max, APPLE M1 MAX 64 GB", "apple-m1-max, 64 GB"),
            ("MacBook Pro M1 Max 64 GB", "apple-m1-max, 64 GB"),
            ("gaming laptop with RTX 4070, Core i7-13700H, 32 GB", "rtx-4070-laptop 8 GB, i7-13700h, 32 GB"),
            ("RTX 4060 Ti 16GB, Ryzen 7 5800X3D, PCIe 3.0 x8", "rtx-4060-ti-16, ryzen-5800x3d, pcie3-x8"),
            ("RTX 3090 x2, EPYC 7543", "2x rtx-3090 24 GB, epyc-7543"),
            ("RTX 3090, RTX 3090, EPYC 7543", "2x rtx-3090 24 GB, epyc-7543"),
            ("RTX 4090 via PCIe 4.0 x4, i7-13700K", "rtx-4090 24 GB, i7-13700k, pcie4-x4"),
            ("RTX 4090 x16, i7-13700K", "rtx-4090 24 GB, i7-13700k, pcie4-x16"),
            ("RTX 3090 x4, EPYC 7543", "4x rtx-3090 24 GB, epyc-7543"),
            ("H100 x8", "8x h100-sxm 80 GB"),
            ("8x RTX 3090 x16, EPYC 7543", "8x rtx-3090 24 GB, epyc-7543, pcie4-x16"),
            ("4x MI250, EPYC 7742", "8x mi250-gcd 64 GB, epyc-7742"),
            ("RTX 4060 Ti, RTX 4060, i5-13400", "rtx-4060-ti-8, rtx-4060 8 GB, i5-13400"),
            ("Radeon 780M, RTX 4060 laptop, Ryzen 7840HS, 32 GB", "rtx-4060-laptop 8 GB, ryzen-7840hs"),
            ("Ryzen 7 7840HS, 32 GB", "radeon-780m, ryzen-7840hs"),
            ("Ryzen 7 8845HS, 32 GB", "radeon-780m, ryzen-8845hs"),
            ("Ryzen 7 7840HS, 32 GB, no GPU", "ryzen-7840hs"),
            ("RTX4070, i5-13400F, 32 GB", "rtx-4070 12 GB, i5-13400, 32 GB"),
            ("Radeon 7900 XTX, Ryzen 7900, 64 GB", "rx-7900-xtx 24 GB, ryzen-7900, 64 GB"),
            ("rx7600, Ryzen 5 7600, 32 GB", "rx-7600 8 GB, ryzen-7600, 32 GB"),
            ("RTX PRO 6000, i5-13600KF, 64 GB", "rtx-pro-6000 96 GB, i5-13600k, 64 GB"),
            ("RTX 4090 desktop, 64 GB", "rtx-4090 24 GB, 64 GB"),
            ("RTX 2070 Max-Q, i7-12700H, 32 GB", "rtx-2070-laptop 8 GB, i7-12700h, 32 GB"),
            ("RTX PRO 6000 Max-Q, 128 GB", "rtx-pro-6000-max-q 96 GB, 128 GB"),
            ("2x P40, 2x Xeon E5-2680v4, 256 GB", "2x p40 24 GB, 2x xeon-e5-2680-v4, 256 GB"),
            ("Strix Halo 128GB", "radeon-8060s, ryzen-ai-max-395, 128 GB"),
            ("Framework Desktop 128GB", "radeon-8060s, ryzen-ai-max-395, 128 GB"),
            ("Xeon 6980P, 1.5 TB MRDIMM-8800", "xeon-6980p, 1.5 TB DDR5-8800"),
            ("T4, 4 vCPUs, 16 GB", "t4 16 GB, 2 cores, 16 GB"),
            ("g5.xlarge", "a10g 24 GB, epyc-7r32, 2 cores, 16 GB"),
            ("p5.48xlarge", "8x h100-sxm 80 GB, 2x epyc-7r13, 96 cores, 2 TB"),
            ("Standard_NC24ads_A100_v4", "a100-80-pcie 80 GB, epyc-7v13, 12 cores, 220 GB"),
            ("M5 Max 128GB", "apple-m5-max, 128 GB"),
            ("MacBook Pro M5 24GB", "apple-m5, 24 GB"),
            ("2x V100 32GB, 384 GB", "2x v100-32-sxm 32 GB, 384 GB"),
            ("A100 40GB, EPYC 7443P, 512 GB", "a100-40-sxm 40 GB, epyc-7443, 512 GB"),
            ("RTX 3050 6GB, Core Ultra 7 265KF, 32 GB", "rtx-3050-6, core-ultra-7-265k, 32 GB"),
            ("Core Ultra 7 258V, 32 GB", "arc-140v, core-ultra-7-258v, 32 GB"),
            ("AMD RYZEN AI MAX+ 395, 128 GB", "radeon-8060s, ryzen-ai-max-395, 128 GB"),
            ("Ryzen AI Max 390, 64 GB", "radeon-8050s, ryzen-ai-max-390, 64 GB"),
            ("NVIDIA Jetson AGX Orin 64GB Developer Kit", "jetson-agx-orin-64"),
            ("Jetson Orin Nano Super 8GB", "jetson-orin-nano-8"),
            ("4x GB200 NVL72", "4x gb200 186 GB"),
            ("Qualcomm Snapdragon X Elite, 32 GB", "snapdragon-x-elite, 32 GB"),
            ("2x Xeon Gold 6138, 384 GB, 1 TB SSD", "2x xeon-gold-6138, 384 GB"),
        ] {
            assert_parts(line, parts);
        }
    }

    #[test]
    fn a_card_runs_at_the_generation_of_its_slot() {
        for (line, link) in [
            ("RTX 3090, i7-8700K, 32 GB", "pcie3-x16"),
            ("RTX 5090, Ryzen 7 3700X, 64 GB", "pcie4-x16"),
            ("RTX 5090, Core Ultra 7 265K, 64 GB", "pcie5-x16"),
            ("RTX 3060, i7-14700K, 64 GB", "pcie4-x16"),
            ("RTX 4060, i7-7700K, 32 GB", "pcie3-x8"),
            ("RTX 5090 PCIe 5.0, i7-8700K, 32 GB", "pcie5-x16"),
        ] {
            assert_eq!(machine(line).names.link.as_deref(), Some(link), "{line}");
        }
    }

    #[test]
    fn each_gpu_may_have_its_own_lanes() {
        for (line, parts) in [
            (
                "RTX 3090 pcie4-x16, RTX 3090 pcie4-x4, EPYC 7543",
                "rtx-3090 24 GB pcie4-x16, rtx-3090 24 GB pcie4-x4, epyc-7543",
            ),
            ("RTX 3060 + RTX 4090, i9-13900K", "rtx-4090 24 GB, rtx-3060-12, i9-13900k"),
            (
                "RTX 3060 pcie3-x4 + 2x RTX 3090, Ryzen 5950X, pcie4-x8",
                "2x rtx-3090 24 GB, rtx-3060-12 pcie3-x4, ryzen-5950x, pcie4-x8",
            ),
            (
                "RTX 4090 x16 + RTX 3060 x4, i7-13700K",
                "rtx-4090 24 GB pcie4-x16, rtx-3060-12 pcie4-x4, i7-13700k",
            ),
            (
                "RTX 4090, RTX 3060 in a x4 slot, i7-13700K, PCIe 3.0 x16",
                "rtx-4090 24 GB, rtx-3060-12 pcie3-x4, i7-13700k, pcie3-x16",
            ),
            (
                "RTX 4090, RTX 3060 x4, i7-13700K, PCIe 6.0 x16",
                "rtx-4090 24 GB, rtx-3060-12 pcie4-x4, i7-13700k, pcie6-x16",
            ),
        ] {
            assert_parts(line, parts);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (line, wanted) in [
            (
                "RTX 4090, i7-13700K, Ryzen 9 7950X, 64 GB",
                "two CPUs, i7-13700k and ryzen-7950x: leave one out",
            ),
            ("RTX 4090, i7-13700K, 64 TB", "64 TB of memory are more than i7-13700k takes: 256 GB"),
        ] {
            let told = read_line(line).and_then(DescribedMachine::compose).unwrap_err().to_string();
            assert!(told.contains(wanted), "{told}");
        }
    }

    #[test]
    fn what_nobody_said_is_assumed_and_told() {
        let found = machine("RTX 3060");
        let told = found.assumed.join("; ");
        assert!(["CPU ", "of memory", "link "].iter().all(|what| told.contains(what)), "{told}");
        let told = machine("RTX 4090, Ryzen, 64 GB, 2 TB NVMe, Windows 11, 850W PSU").assumed.join("; ");
        assert!(told.contains("'ryzen' is a family") && told.contains("a disk of 2 TB"), "{told}");
        let told = machine("GB200 NVL72").assumed.join("; ");
        assert!(told.contains("'nvl72' is a rack"), "{told}");
        let mac = machine("M4 Max 48 GB");
        let memory = mac.machine(1).expect("it composes").memories[0].capacity.value;
        assert!((memory.gigabytes() - 36.0).abs() < 0.1, "macOS lends the rest: {memory}");
    }

    #[test]
    fn a_line_that_is_not_clear_says_what_was_understood_and_what_is_near() {
        for (line, words) in [
            ("RTX 4095, i7-14700K", &["understood: i7-14700k", "rtx 4095", "did you mean", "rtx-409"][..]),
            ("RTX", &["understood: nothing", "missing: a GPU or a CPU"]),
            ("a computer with", &["missing: a GPU or a CPU"]),
            ("", &["missing: a GPU or a CPU"]),
            ("RTX 4090, 0 GB", &["0 GB of memory", "understood: rtx-4090"]),
            ("RTX 4090, PCIe 9.0 x16", &["the link pcie9-x16"]),
            ("0x RTX 4090", &["0 of a part"]),
            ("RTX 4070, 32", &["'32' has no unit: say 32 GB for memory", "understood: rtx-4070"]),
            ("2x RTX 3090, 3091406002 TB NVMe", &["more than a machine has", "understood: 2x rtx-3090"]),
            ("RTX 4070, -32 GB", &["-32 GB of memory is negative", "understood: rtx-4070"]),
            ("RTX 4070, i7-14790F", &["not known: 'i7-14790f'", "did you mean i7-14700"]),
            ("Radeon 7900, 64 GB", &["not known: 'radeon 7900'", "did you mean", "rx-7900-xt"]),
            ("GTX1090, 64 GB", &["did you mean gtx-1"]),
            ("RTX-3061", &["did you mean rtx-3060-12"]),
            ("M9 Max 128GB", &["understood: 128 GB", "not known: 'm9 max'"]),
            ("RTX 3090Ti Max, 64 GB", &["understood: rtx-3090-ti 24 GB, 64 GB", "not known: 'max'"]),
            ("Quadro RTX 9000, 64 GB", &["not known: 'rtx quadro 9000'"]),
        ] {
            let told = read_line(line).expect_err(line).to_string();
            assert!(words.iter().all(|word| told.contains(word)), "{line}: {told}");
            assert!(told.contains("a whole line:"), "{told}");
        }
    }
}
