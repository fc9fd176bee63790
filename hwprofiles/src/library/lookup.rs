//! Where profiles come from: the shipped ones, files, and `this` machine.

use crate::files::{Presence, ProfileError, yaml};
use crate::library::profile::Profile;
use crate::library::shipped::{shipped_as, shipped_profile};
use crate::library::spelling::{similar, spelt};
use crate::machine::Machine;
use crate::parts::{
    Composition, CpuSheet, CxlChoice, CxlExpanders, CxlPart, DramChoice, GpuChoice, GpuGroup, GpuPart, Host,
    LinkPart, MachineBase, MachineParts, MeasuredGpu, NvmePart, PartNames, SocketsChoice,
};
use crate::units::Sourced;
use std::path::{Path, PathBuf};

/// Looks profiles up by name: `this`, a shipped name, or a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Library {
    /// The file that `this` stands for: what `fulcrum bench` wrote last.
    pub this: Option<PathBuf>,
    /// The folder that relative file names start from; the current one where empty.
    pub folder: PathBuf,
}

impl Library {
    /// The profile called `name`.
    pub fn profile(&self, name: &str) -> Result<Profile, ProfileError> {
        if let Some(shipped) = self.shipped(name).and_then(|(shipped, _)| shipped_profile(shipped)) {
            return Ok(shipped?.clone());
        }
        let path = self.path(name)?;
        let text = crate::read_text(&path)
            .map_err(|reason| ProfileError::Unreadable { file: path.clone(), reason })?;
        Ok(Profile::from_yaml(&text, &path.display().to_string())?)
    }

    /// The machine called `name`: a machine, a composition, a host, a CPU alone, or a GPU in its
    /// server.
    ///
    /// A GPU's name stands for that GPU in the server that its part describes under `server:`, a
    /// usual host and link of its generation. A GPU without one must be composed.
    pub fn machine(&self, name: &str) -> Result<Machine, ProfileError> {
        self.machine_with(name, 1)
    }

    /// The same, with `gpus` GPUs in one server where the name is a GPU's.
    pub fn machine_with(&self, name: &str, gpus: u64) -> Result<Machine, ProfileError> {
        match self.profile(name)? {
            Profile::Machine(machine) => Ok(machine),
            Profile::Host(host) => {
                let name = host.host.clone();
                MachineParts::from_host(*host).with_own_gpu().machine(&name)
            }
            Profile::Cpu(part) => {
                let name = part.cpu.clone();
                let sheet = CpuSheet { part: *part, sockets: 1, cores: None, dram: DramChoice::default() };
                MachineParts::from_base(MachineBase::Sheet(Box::new(sheet))).machine(&name)
            }
            Profile::Gpu(gpu) => {
                let server = gpu.server.clone().ok_or_else(|| serverless(&gpu.gpu))?;
                let note = format!("the GPU {} in its part's default server", gpu.gpu);
                check_unified(&gpu, server.link.as_deref(), gpus)?;
                let link = server.link.as_deref().map(|link| self.link(link)).transpose()?;
                let (name, parts) = (gpu.gpu.clone(), self.parts(&server)?);
                let peer = gpu.peer.as_deref().map(|peer| self.link(peer)).transpose()?;
                let gpus = GpuGroup { count: gpus, peer, ..GpuGroup::one(*gpu, link) };
                let machine = MachineParts { gpus: vec![gpus], ..parts }.machine(&name)?;
                Ok(Machine { note: Some(note), ..machine })
            }
            Profile::Composition(composition) => match self.shipped(name) {
                Some(_) => self.compose(&composition),
                None => {
                    let path = self.path(name)?;
                    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                    let composed = Self { folder, ..self.clone() }.compose(&composition);
                    composed.map_err(|error| at_key(error, &composition.parts, &path))
                }
            },
            other => Err(wrong(name, &other, "a machine")),
        }
    }

    /// The machine that a composition describes.
    pub fn compose(&self, composition: &Composition) -> Result<Machine, ProfileError> {
        let names = &composition.parts;
        if names.gpus.is_empty() && names.link.is_some() {
            return Err(lonely("link", "gpu", "h100-sxm"));
        }
        let (names, assumed) = self.with_usual_links(names);
        let parts = self.parts(&names)?;
        let loopback = parts.loopback.map(|_| "loopback".to_owned());
        let gpus = parts.gpus.iter().map(|gpus| match gpus.count {
            1 => gpus.part.gpu.clone(),
            count => format!("{count}x-{}", gpus.part.gpu),
        });
        let cxl = parts.cxl.as_ref().map(|cxl| cxl.part.cxl.clone());
        let nvme = parts.nvme.as_ref().map(|nvme| nvme.nvme.clone());
        let made =
            std::iter::once(parts.base.name().to_owned()).chain(loopback).chain(gpus).chain(cxl).chain(nvme);
        let name = composition.name.clone().unwrap_or_else(|| made.collect::<Vec<_>>().join("+"));
        let mut machine = Machine { note: composition.note.clone(), assumed, ..parts.machine(&name)? };
        if let Some(reached) = &names.reached {
            reached.change(&mut machine);
        }
        Ok(machine)
    }

    /// The same names with the links that nobody said: those of the GPUs' usual servers, in slots
    /// of this CPU. Also what is assumed so, in words.
    fn with_usual_links(&self, names: &PartNames) -> (PartNames, Vec<String>) {
        let (mut names, mut assumed) = (names.clone(), Vec::new());
        if names.link.is_some() || names.gpus.iter().all(|gpus| gpus.host_link.is_some()) {
            return (names, assumed);
        }
        let cpu = match self.profile(&names.cpu) {
            Ok(Profile::Cpu(part)) => Some(part),
            _ => None,
        };
        let several = names.gpus.len() > 1;
        let alike = names.gpus.iter().filter(|gpus| gpus.host_link.is_none()).map(|gpus| gpus.count);
        let cards = alike.max().unwrap_or(1);
        for gpus in names.gpus.iter_mut().filter(|gpus| gpus.host_link.is_none()) {
            // A part that is not known is refused at its own key.
            let part = self.gpu(&gpus.part).ok().filter(|part| !part.unified);
            let usual = part.and_then(|part| part.server).and_then(|server| server.link);
            gpus.host_link =
                usual.map(|link| cpu.as_ref().map_or(link.clone(), |cpu| cpu.slot_link(&link, cards)));
            assumed.extend(gpus.host_link.as_ref().map(|link| match several {
                true => format!("{} on {link}", gpus.part),
                false => format!("link {link}"),
            }));
        }
        (names, assumed)
    }

    /// The parts with these names. A link without a GPU is left out.
    pub fn parts(&self, names: &PartNames) -> Result<MachineParts, ProfileError> {
        let gpus = names.gpus.iter().enumerate();
        let gpus = gpus.map(|(index, gpus)| self.gpus(gpus, names, &names.gpu_key(index)));
        let gpus = gpus.collect::<Result<Vec<_>, _>>()?;
        let expanders = |choice: &CxlChoice| {
            let (part, count, interleave) = (self.cxl(&choice.part)?, choice.count, choice.interleave);
            Ok::<_, ProfileError>(CxlExpanders { part, count, interleave })
        };
        Ok(MachineParts {
            base: self.base(names)?,
            loopback: names.loopback,
            gpus,
            cxl: names.cxl.as_ref().map(expanders).transpose()?,
            nvme: names.nvme.as_ref().map(|name| self.nvme(name)).transpose()?,
        })
    }

    fn base(&self, names: &PartNames) -> Result<MachineBase, ProfileError> {
        match self.profile(&names.cpu)? {
            Profile::Host(host) => {
                let said = [
                    ("sockets", names.sockets.is_some()),
                    ("cores", names.cores.is_some()),
                    ("dram", names.dram.is_some()),
                ];
                match said.into_iter().find(|(_, said)| *said) {
                    Some((key, _)) => {
                        let message = format!("'{}' was measured as it is: leave `{key}` out", names.cpu);
                        Err(ProfileError::Unfit { part: key.to_owned(), message })
                    }
                    None => Ok(MachineBase::Host(host)),
                }
            }
            Profile::Cpu(part) => {
                let sockets = names.sockets.clone().unwrap_or(SocketsChoice { count: 1, link: None });
                sockets.check()?;
                let channels = part.dram.channels.as_ref().map(|channels| channels.value * sockets.count);
                let dram = names.dram.clone().unwrap_or_default().on_channels(channels)?;
                let sheet = CpuSheet { part: *part, sockets: sockets.count, cores: names.cores, dram };
                Ok(match sockets.link {
                    None => MachineBase::Sheet(Box::new(sheet)),
                    Some(link) => {
                        MachineBase::Sockets { sheet: Box::new(sheet), link: Box::new(self.link(&link)?) }
                    }
                })
            }
            other => Err(wrong(&names.cpu, &other, "a host or a CPU")),
        }
    }

    /// The GPUs of one kind, whose key in the parts is `at`.
    fn gpus(&self, gpus: &GpuChoice, names: &PartNames, at: &str) -> Result<GpuGroup, ProfileError> {
        // Each GPU is linked with each, and no server has this many: a larger number is a typing
        // error.
        const MOST: u64 = 64;
        let unfit = |key: &str, message| ProfileError::Unfit { part: format!("{at}{key}"), message };
        let count: u64 = names.gpus.iter().map(|gpus| gpus.count).fold(0, u64::saturating_add);
        if count > MOST {
            let message = format!("{count} are more than the {MOST} that a server can have here");
            return Err(unfit(".count", message));
        }
        if let (1, Some(peer)) = (gpus.count, &gpus.link) {
            let message = match names.gpus.len() {
                1 => format!("'{peer}' joins GPUs, and there is one: leave it out, or say `count: 2`"),
                _ => format!("'{peer}' joins GPUs of one kind, and this is one: leave it out"),
            };
            return Err(unfit(".link", message));
        }
        let part = self.gpu(&gpus.part)?;
        if part.unified && names.gpus.len() > 1 {
            let message = format!("'{}' computes on the host's memory, which goes without others", part.gpu);
            return Err(unfit("", message));
        }
        let own = part.peer.as_ref().filter(|_| gpus.count > 1);
        let peer = gpus.link.as_ref().or(own).map(|peer| self.link(peer)).transpose()?;
        let host_link = gpus.host_link.as_deref().or(names.link.as_deref());
        check_unified(&part, host_link, gpus.count)?;
        let chosen = gpus.issue.map(|issue| Sourced::estimated(issue, "chosen in the composition"));
        let part = GpuPart { issue: chosen.or(part.issue.clone()), ..part };
        let link = host_link.map(|link| self.link(link)).transpose()?;
        Ok(GpuGroup { part, link, count: gpus.count, peer })
    }

    fn gpu(&self, name: &str) -> Result<GpuPart, ProfileError> {
        match self.profile(name)? {
            Profile::Gpu(gpu) => Ok(*gpu),
            Profile::Host(host) => Ok(measured_gpu(name, *host)?.part),
            other => Err(wrong(name, &other, "a GPU")),
        }
    }

    /// The profile of that name; `misstated` where the name is of none and begins like a number.
    fn profile_or(
        &self,
        name: &str,
        misstated: impl FnOnce(String) -> ProfileError,
    ) -> Result<Profile, ProfileError> {
        let is_number = name.trim_start_matches('-').starts_with(|first: char| first.is_ascii_digit());
        self.profile(name).map_err(|error| match error {
            ProfileError::Unknown { name, .. } if is_number => misstated(name),
            other => other,
        })
    }

    fn link(&self, name: &str) -> Result<LinkPart, ProfileError> {
        if let Some(link) = LinkPart::stated(name) {
            return Ok(link);
        }
        let profile = self.profile_or(name, |name| ProfileError::LinkRate { name });
        match profile? {
            Profile::Link(link) => Ok(*link),
            Profile::Host(host) => Ok(measured_gpu(name, *host)?.link),
            other => Err(wrong(name, &other, "a link")),
        }
    }

    fn cxl(&self, name: &str) -> Result<CxlPart, ProfileError> {
        if let Some(memory) = CxlPart::stated(name) {
            return Ok(memory);
        }
        let profile = self.profile_or(name, |name| ProfileError::CxlMemory { name });
        match profile? {
            Profile::Cxl(cxl) => Ok(*cxl),
            Profile::Host(host) => host.cxl.as_option().cloned().ok_or_else(|| {
                let message =
                    format!("the host '{name}' says `cxl: absent`: name CXL memory, as samsung-128gb");
                ProfileError::Unfit { part: "cxl".to_owned(), message }
            }),
            other => Err(wrong(name, &other, "CXL memory")),
        }
    }

    fn nvme(&self, name: &str) -> Result<NvmePart, ProfileError> {
        match self.profile(name)? {
            Profile::Nvme(nvme) => Ok(*nvme),
            other => Err(wrong(name, &other, "a disk")),
        }
    }

    /// The shipped profile called `name`: under its own name, or in another spelling where no file
    /// is called so.
    fn shipped(&self, name: &str) -> Option<(&'static str, &'static str)> {
        let is_file = || name == "this" || self.folder.join(name).exists();
        shipped_as(name).or_else(|| if is_file() { None } else { spelt(name) })
    }

    fn path(&self, name: &str) -> Result<PathBuf, ProfileError> {
        if name == "this" {
            return self.this.clone().filter(|path| path.exists()).ok_or(ProfileError::Unmeasured);
        }
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        let known = similar(name).unwrap_or_else(|| "`fulcrum machine list` names those".to_owned());
        Err(ProfileError::Unknown { name: name.to_owned(), known })
    }
}

/// An error about one of the `parts` that the file at `path` composes, at that part's key.
fn at_key(error: ProfileError, parts: &PartNames, path: &Path) -> ProfileError {
    match (parts.wrong_key(&error), crate::read_text(path)) {
        (Some((key, message)), Ok(text)) => {
            let steps: Vec<&str> = std::iter::once("parts").chain(key.split('.')).collect();
            yaml::refuse(&text, &path.display().to_string(), &steps, message).into()
        }
        _ => error,
    }
}

/// The GPU that was measured in a host.
fn measured_gpu(name: &str, host: Host) -> Result<MeasuredGpu, ProfileError> {
    match host.gpu {
        Presence::Present(gpu) => Ok(gpu),
        Presence::Absent => {
            let message = format!(
                "the host '{name}' says `gpu: absent`: name a GPU and its link, as h100-sxm and pcie5-x16"
            );
            Err(ProfileError::Unfit { part: "gpu".to_owned(), message })
        }
    }
}

/// Refuses a GPU without a link to its memory, and a link or a second one of a GPU on the host's.
fn check_unified(part: &GpuPart, link: Option<&str>, count: u64) -> Result<(), ProfileError> {
    let unfit = |part: &str, message| Err(ProfileError::Unfit { part: part.to_owned(), message });
    let gpu = &part.gpu;
    match link {
        None if !part.unified => Err(lonely("gpu", "link", "pcie5-x16")),
        Some(_) if part.unified => {
            unfit("link", format!("'{gpu}' computes on the host's memory: leave `link` out"))
        }
        _ if part.unified && count > 1 => {
            unfit("gpu.count", format!("'{gpu}' is a part of its CPU, and there is one"))
        }
        _ => Ok(()),
    }
}

fn wrong(name: &str, found: &Profile, wanted: &'static str) -> ProfileError {
    ProfileError::WrongKind { name: name.to_owned(), found: found.kind(), wanted }
}

fn serverless(gpu: &str) -> ProfileError {
    let message = format!(
        "the part '{gpu}' names no server: write a composition, as `parts: {{cpu: this, gpu: {gpu}, link: pcie5-x16}}`"
    );
    ProfileError::Unfit { part: "gpu".to_owned(), message }
}

fn lonely(part: &str, other: &str, example: &str) -> ProfileError {
    let message = format!("it needs a `{other}` beside it, as `{other}: {example}`");
    ProfileError::Unfit { part: part.to_owned(), message }
}
