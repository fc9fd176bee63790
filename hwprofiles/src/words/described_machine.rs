//! A machine as somebody describes it, and the shipped parts that it is composed of.

use crate::files::ProfileError;
use crate::library::{Library, Profile, shipped, shipped_called, shipped_profile, with_sizes};
use crate::machine::Machine;
use crate::parts::{
    Composition, CpuPart, DramChoice, GpuChoice, GpuPart, MemoryModules, PartNames, SocketsChoice,
};
use crate::units::{Bytes, Sourced};
use crate::words::line_words::ModuleWords;
use std::cmp::Ordering;
use std::sync::LazyLock;

/// What is assumed of systems that lend their GPU half of the memory by default: Windows (shared
/// GPU memory) and Linux (`ttm.pages_limit`).
const SET_TO_LEND_ALL: &str =
    "the GPU may use all memory (Windows and Linux lend half unless told otherwise)";

/// What macOS lends the GPU of a memory unless told otherwise: two thirds up to 36 GB, as Macs of
/// 16 and 32 GB report it, and three quarters of a larger one.
fn lent_by_macos(capacity: Bytes) -> f64 {
    if capacity <= size("36 GB") { 2.0 / 3.0 } else { 0.75 }
}

/// What is assumed of a desktop without a GPU where nobody says it.
const DESKTOP_MEMORY: &str = "32 GB";

/// One module of each channel of a server where nobody says it.
const SERVER_MODULE: &str = "16 GB";

/// The link of a GPU where nobody says it.
const USUAL_LINK: &str = "pcie4-x16";

/// What was understood of a machine in words.
#[derive(Debug, Clone, PartialEq)]
pub struct UnderstoodMachine {
    /// What it is made of, in words: `rtx-4090 24 GB`, `i7-14700k`.
    pub parts: Vec<String>,
    /// What nobody said and is assumed.
    pub assumed: Vec<String>,
    /// The names of its parts.
    pub names: PartNames,
}

impl UnderstoodMachine {
    /// The machine of these parts, with `gpus` GPUs where the words say of one kind only which.
    ///
    /// # Errors
    /// Parts that do not go together.
    pub fn machine(&self, gpus: u64) -> Result<Machine, ProfileError> {
        let mut parts = self.names.clone();
        if let [GpuChoice { count: count @ 1, .. }] = &mut parts.gpus[..] {
            *count = gpus.max(1);
        }
        let composition = Composition { name: Some(self.parts.join(", ")), note: None, parts };
        let machine = Library::default().compose(&composition)?;
        Ok(Machine { assumed: self.assumed.clone(), ..machine })
    }
}

/// A part that a name stands for.
#[derive(Debug)]
pub(crate) enum PartKind {
    Gpu(Box<GpuPart>),
    Cpu(String),
    Whole(Box<Composition>),
}

/// The shipped part that `name` means. A GPU whose memory comes in several sizes is the smallest,
/// and on a laptop the laptop's.
pub(crate) fn part_kind(name: &str, is_laptop: bool) -> Option<PartKind> {
    let of_laptop = is_laptop.then(|| shipped_called(&format!("{name} laptop"))).flatten();
    let called = of_laptop.or_else(|| shipped_called(name)).map(|(shipped, _)| shipped);
    let shipped = called.or_else(|| smallest(name))?;
    match shipped_profile(shipped)?.ok()? {
        Profile::Gpu(gpu) => Some(PartKind::Gpu(gpu.clone())),
        Profile::Cpu(cpu) => Some(PartKind::Cpu(cpu.cpu.clone())),
        Profile::Composition(composition) => Some(PartKind::Whole(composition.clone())),
        _ => None,
    }
}

/// `RTX 4060 Ti` stands for the one with 8 GB. The number behind a name is a size where the part
/// has that memory: `RTX Pro` is no RTX PRO 4000.
fn smallest(name: &str) -> Option<&'static str> {
    let is_size = |size: u64, shipped: &str| match shipped_profile(shipped) {
        Some(Ok(Profile::Gpu(gpu))) => gpu.gigabytes_as_sold() == size,
        _ => false,
    };
    with_sizes(name).find(|(size, shipped)| is_size(*size, shipped)).map(|(_, shipped)| shipped)
}

/// GPUs of one kind of a description.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DescribedGpu {
    pub part: GpuPart,
    pub count: u64,
    /// The link of each to the host, where it was said of these.
    pub link: Option<String>,
    /// The lanes of the slot of each, where no more was said of its link.
    pub lanes: Option<u64>,
    /// Whether the count stands behind the name: `RTX 3060 x4`.
    pub counted_behind: bool,
}

impl DescribedGpu {
    fn one(part: GpuPart) -> Self {
        Self { part, count: 1, link: None, lanes: None, counted_behind: false }
    }

    fn choice(&self) -> GpuChoice {
        GpuChoice { count: self.count, host_link: self.link.clone(), ..GpuChoice::one(&self.part.gpu) }
    }

    /// Whether `bytes` is the size of its memory, as sold or as its driver says.
    pub fn holds(&self, bytes: Bytes) -> bool {
        (bytes.as_f64() / self.part.capacity.value.as_f64() - 1.0).abs() < 0.08
    }
}

/// What somebody says of a machine; the rest is assumed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DescribedMachine {
    pub cpu: Option<String>,
    pub sockets: Option<u64>,
    /// Cores over all sockets, where fewer than the CPU's own are used.
    pub cores: Option<u64>,
    pub memory: Option<Bytes>,
    pub module_count: Option<u64>,
    pub modules: Option<ModuleWords>,
    pub gpus: Vec<DescribedGpu>,
    /// The link of each GPU of which nothing else was said.
    pub link: Option<String>,
    /// Whether it was said that no GPU is used, that in the CPU included.
    pub no_gpu: bool,
    /// What was said and changes nothing.
    pub unused: Vec<String>,
    /// The DRAM of a machine that was named as a whole.
    dram: Option<DramChoice>,
}

impl DescribedMachine {
    /// More GPUs.
    pub fn add_gpus(&mut self, part: GpuPart, count: u64) {
        self.gpus.push(DescribedGpu { count, ..DescribedGpu::one(part) });
    }

    /// The last GPUs again, by a name that says the same or says it more exactly; `false` where it
    /// is the name of others.
    pub fn repeat_gpus(&mut self, part: &GpuPart, count: u64) -> bool {
        match self.gpus.last_mut().filter(|known| part.gpu.starts_with(&*known.part.gpu)) {
            Some(known) => {
                *known = DescribedGpu { part: part.clone(), count, ..known.clone() };
                true
            }
            None => false,
        }
    }

    /// The parts of a machine that was named as a whole.
    pub fn take_whole(&mut self, composition: Composition) {
        let names = composition.parts;
        self.cpu = Some(names.cpu);
        self.sockets = names.sockets.map(|sockets| sockets.count);
        self.cores = names.cores;
        self.link = names.link;
        self.memory = names.dram.as_ref().and_then(|dram| dram.capacity.as_ref()).map(|it| it.value);
        self.dram = names.dram;
        for gpu in names.gpus {
            if let Some(PartKind::Gpu(part)) = part_kind(&gpu.part, false) {
                let one = DescribedGpu::one(*part);
                self.gpus.push(DescribedGpu { count: gpu.count, link: gpu.host_link, ..one });
            }
        }
    }

    /// What was said, in words.
    pub fn understood(&self) -> Vec<String> {
        let gpu = |DescribedGpu { part, count, link, .. }: &DescribedGpu| {
            let many = if *count == 1 { String::new() } else { format!("{count}x ") };
            let (name, size) = (&part.gpu, part.gigabytes_as_sold());
            let is_told = part.unified || name.ends_with(&format!("-{size}"));
            let size = if is_told { String::new() } else { format!(" {size} GB") };
            let link = link.as_ref().map_or(String::new(), |link| format!(" {link}"));
            format!("{many}{name}{size}{link}")
        };
        let sockets = self.sockets.filter(|sockets| *sockets > 1).map(|sockets| format!("{sockets}x "));
        let cpu = self.cpu.as_ref().map(|cpu| format!("{}{cpu}", sockets.unwrap_or_default()));
        let modules = self.modules.as_ref().map(|it| match it.rate {
            Some(rate) => format!("{}-{rate}", it.kind),
            None => it.kind.clone(),
        });
        let memory = match (self.memory, modules) {
            (Some(bytes), Some(modules)) => Some(format!("{bytes} {modules}")),
            (Some(bytes), None) => Some(bytes.to_string()),
            (None, modules) => modules,
        };
        let cores = self.cores.map(|cores| format!("{cores} cores"));
        self.gpus
            .iter()
            .map(gpu)
            .chain([cpu, cores, memory, self.link.clone()].into_iter().flatten())
            .collect()
    }

    /// The machine of these parts; what nobody said is assumed and told.
    ///
    /// # Errors
    /// Parts that do not go together.
    pub fn compose(mut self) -> Result<UnderstoodMachine, ProfileError> {
        let mut assumed = std::mem::take(&mut self.unused);
        assumed.iter_mut().for_each(|unused| *unused = format!("not used: {unused}"));
        self.find_lanes(&mut assumed);
        self.keep_used_gpus(&mut assumed);
        self.count_dies(&mut assumed);
        let mut server = self.gpus.first().and_then(|gpu| gpu.part.server.clone()).unwrap_or_default();
        let cpu_name = match self.cpu.clone() {
            Some(cpu) => cpu,
            None if server.cpu.is_empty() => {
                let wrong = vec!["missing: a CPU, by its name, as i7-14700K".to_owned()];
                return Err(ProfileError::Unclear { understood: self.understood(), wrong });
            }
            None => {
                if self.gpus.first().is_some_and(|gpu| !gpu.part.unified) {
                    assumed.push(format!("CPU {}", server.cpu));
                }
                std::mem::take(&mut server.cpu)
            }
        };
        let cpu = cpu(&cpu_name)?;
        if self.gpus.is_empty() && !self.no_gpu {
            self.gpus.extend(integrated(&cpu_name).map(DescribedGpu::one));
        }
        let unified = self.gpus.first().is_some_and(|gpu| gpu.part.unified);
        let dram = self.dram_choice(&cpu, server.dram.take(), unified, &mut assumed)?;
        let link = self.host_link(&cpu, server.link.take(), &mut assumed);
        let sockets = self.sockets.filter(|sockets| *sockets > 1);
        let names = PartNames {
            cpu: cpu_name,
            sockets: sockets.map(|count| SocketsChoice { count, link: None }),
            cores: self.cores.filter(|cores| *cores < cpu.cores.value * sockets.unwrap_or(1)),
            dram: Some(dram),
            gpus: self.gpus.iter().map(DescribedGpu::choice).collect(),
            link,
            ..PartNames::default()
        };
        let mut parts = self.understood();
        if parts.is_empty() {
            parts.push(names.cpu.clone());
        }
        Ok(UnderstoodMachine { parts, assumed, names })
    }

    /// Makes links of lanes, also of counts behind names that are rather lanes: `RTX 4090 x16`, and
    /// `RTX 3060 x4` beside another card.
    fn find_lanes(&mut self, assumed: &mut Vec<String>) {
        let several = self.gpus.len() > 1;
        let generation = self.link.as_deref().and_then(|link| link.strip_prefix("pcie")?.get(..1));
        for gpu in &mut self.gpus {
            let (name, count) = (&gpu.part.gpu, gpu.count);
            if gpu.counted_behind && (count == 16 || several && matches!(count, 1 | 4 | 8)) {
                (gpu.lanes, gpu.count) = (Some(count), 1);
            } else if gpu.counted_behind && matches!(count, 4 | 8) && gpu.part.peer.is_none() {
                assumed.push(format!("{count} of {name} (the lanes of one are said as pcie4-x{count})"));
            }
            let Some(lanes) = gpu.lanes.filter(|_| gpu.link.is_none()) else { continue };
            let names = [generation.unwrap_or("4"), "4", "3"].map(|it| format!("pcie{it}-x{lanes}"));
            let Some((link, _)) = names.iter().find_map(|name| shipped_called(name)) else { continue };
            assumed.push(format!("{name} on {link}"));
            gpu.link = Some(link.to_owned());
        }
    }

    /// Keeps cards where there are some, or one GPU that is in a CPU; the fastest first, as drivers
    /// number them, and like ones together.
    fn keep_used_gpus(&mut self, assumed: &mut Vec<String>) {
        let rate = |gpu: &DescribedGpu| {
            let most = gpu.part.peak.values().map(|peak| peak.value.get()).fold(0.0, f64::max);
            (most, gpu.part.reached_bandwidth().value.get())
        };
        self.gpus.sort_by(|a, b| rate(b).partial_cmp(&rate(a)).unwrap_or(Ordering::Equal));
        self.gpus.dedup_by(|gpu, before| {
            let alike = gpu.part.gpu == before.part.gpu && gpu.link == before.link;
            // What is a part of the CPU is there once, however often it is named.
            if alike && !gpu.part.unified {
                before.count = before.count.saturating_add(gpu.count);
            }
            alike
        });
        let has_cards = self.gpus.iter().any(|gpu| !gpu.part.unified);
        let mut others = self.gpus.extract_if(.., |gpu| has_cards && gpu.part.unified).collect::<Vec<_>>();
        if !has_cards && self.gpus.len() > 1 {
            others.extend(self.gpus.drain(1..));
        }
        let told = |gpu: DescribedGpu| format!("{} left out: it is a part of a CPU", gpu.part.gpu);
        assumed.extend(others.into_iter().map(told));
        if self.gpus.iter().any(|gpu| gpu.part.maker() != self.gpus[0].part.maker()) {
            assumed.push(
                "GPUs of two makers as fast together as alone (they need Vulkan, where NVIDIA's are slower)"
                    .to_owned(),
            );
        }
    }

    /// Takes the dies of cards for GPUs where drivers do.
    fn count_dies(&mut self, assumed: &mut Vec<String>) {
        for gpu in &mut self.gpus {
            let Some(PartKind::Gpu(die)) = gpu.part.dies.as_ref().and_then(|die| part_kind(die, false))
            else {
                continue;
            };
            assumed.push(format!("each {} is two GPUs to drivers, {}", gpu.part.gpu, die.gpu));
            (gpu.part, gpu.count) = (*die, gpu.count.saturating_mul(2));
        }
    }

    /// The link of GPUs on cards of which nothing else was said; that of their usual server, or
    /// [`USUAL_LINK`], where nobody says it, in a slot of `cpu`.
    fn host_link(
        &mut self,
        cpu: &CpuPart,
        usual: Option<String>,
        assumed: &mut Vec<String>,
    ) -> Option<String> {
        if let [one] = &mut self.gpus[..] {
            self.link = one.link.take().or(self.link.take());
        }
        if self.gpus.iter().all(|gpu| gpu.part.unified || gpu.link.is_some()) {
            return None;
        }
        // Only cards of one kind share lanes here. Where no CPU is said, one with lanes for all is
        // assumed.
        let alike = self.gpus.iter().filter(|gpu| gpu.link.is_none()).map(|gpu| gpu.count);
        let cards = alike.max().filter(|_| self.cpu.is_some()).unwrap_or(1);
        Some(self.link.clone().unwrap_or_else(|| {
            let link = cpu.slot_link(usual.as_deref().unwrap_or(USUAL_LINK), cards);
            assumed.push(format!("link {link}"));
            link
        }))
    }

    fn dram_choice(
        &mut self,
        cpu: &CpuPart,
        usual: Option<DramChoice>,
        unified: bool,
        assumed: &mut Vec<String>,
    ) -> Result<DramChoice, ProfileError> {
        let sockets = self.sockets.unwrap_or(1);
        let channels = cpu.dram.channels.as_ref().map(|channels| channels.value * sockets);
        let capacity = self.memory.unwrap_or_else(|| {
            let own = cpu.dram.capacity.as_ref().map(|capacity| capacity.value * sockets);
            let usual = usual.and_then(|dram| dram.capacity).map(|capacity| capacity.value);
            let of_server =
                channels.filter(|channels| *channels > 4).map(|channels| size(SERVER_MODULE) * channels);
            let memory = own.or(usual).or(of_server).unwrap_or_else(|| size(DESKTOP_MEMORY));
            assumed.push(format!("{memory} of memory"));
            memory
        });
        if let Some(most) =
            channels.map(|channels| most_memory(channels, sockets)).filter(|it| capacity > *it)
        {
            let wrong = vec![format!("{capacity} of memory are more than {} takes: {most}", cpu.cpu)];
            return Err(ProfileError::Unclear { understood: self.understood(), wrong });
        }
        let lent = match unified && cpu.cpu.starts_with("apple") {
            true => {
                let share = lent_by_macos(capacity);
                assumed.push(format!("macOS lends the GPU {:.0} % of {capacity}", share * 100.0));
                Bytes::new((capacity.as_f64() * share) as u64)
            }
            false => {
                assumed.extend(unified.then(|| SET_TO_LEND_ALL.to_owned()));
                capacity
            }
        };
        let stated = |capacity| Some(Sourced::estimated(capacity, "stated by the person asking, or assumed"));
        let known = self.dram.take().unwrap_or_default();
        // Modules of the kind in the CPU's sheet run at the sheet's rate, others at a usual one.
        let usual = |it: &ModuleWords| it.usual_rate().filter(|_| !cpu.dram.kind.contains(&it.kind));
        let modules = self.modules.as_ref().and_then(|it| {
            let rate = it.rate.or_else(|| {
                let usual = usual(it)?;
                assumed.push(format!("memory at {}-{usual}", it.kind));
                Some(usual)
            });
            Some((it, rate?))
        });
        let count = self.module_count.or(channels);
        let modules = modules.zip(count).map(|((modules, rate), count)| MemoryModules {
            count: channels.map_or(count, |channels| count.min(channels)),
            kind: modules.kind.clone(),
            rate,
        });
        if modules.is_none() && known.bandwidth.is_none() {
            assumed.push(match &cpu.dram.kind {
                kind if kind.contains("DDR") => format!("memory at {kind}, the CPU's fastest"),
                _ => format!("memory at {}", cpu.dram.bandwidth.value),
            });
        }
        let bandwidth = known.bandwidth.filter(|_| modules.is_none());
        Ok(DramChoice { capacity: stated(lent), bandwidth, modules })
    }
}

/// The most memory of a machine with so many channels over all sockets: two of the largest modules
/// on each, those with registers where a socket has more than two channels.
fn most_memory(channels: u64, sockets: u64) -> Bytes {
    let module = if channels > 2 * sockets { "256 GB" } else { "64 GB" };
    size(module) * (2 * channels)
}

fn size(text: &str) -> Bytes {
    text.parse().expect("a constant size is right")
}

/// The shipped CPU of that name.
fn cpu(name: &str) -> Result<CpuPart, ProfileError> {
    match Library::default().profile(name)? {
        Profile::Cpu(cpu) => Ok(*cpu),
        other => Err(ProfileError::WrongKind { name: name.to_owned(), found: other.kind(), wanted: "a CPU" }),
    }
}

/// The shipped GPU that is a part of the CPU `cpu`.
fn integrated(cpu: &str) -> Option<GpuPart> {
    static UNIFIED: LazyLock<Vec<&GpuPart>> = LazyLock::new(|| {
        let unified =
            shipped().filter(|(_, text)| text.starts_with("gpu:") && text.contains("\nunified: true"));
        let gpus = unified.filter_map(|(name, _)| match shipped_profile(name)?.ok()? {
            Profile::Gpu(gpu) => Some(&**gpu),
            _ => None,
        });
        gpus.collect()
    });
    let is_in = |gpu: &GpuPart| {
        gpu.server.as_ref().is_some_and(|server| server.cpu == cpu)
            || gpu.also_in.iter().any(|other| other == cpu)
    };
    UNIFIED.iter().find(|gpu| is_in(gpu)).map(|gpu| (*gpu).clone())
}
