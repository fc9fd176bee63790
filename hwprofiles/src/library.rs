//! Where profiles come from: the shipped ones, files, and `this` machine.

use crate::compose::{Composition, Parts};
use crate::error::ProfileError;
use crate::host::Host;
use crate::machine::Machine;
use crate::parts::{CxlPart, GpuPart, LinkPart};
use crate::yaml::{self, FileError};
use std::path::{Path, PathBuf};

/// The profiles that come with Fulcrum: name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("example-loopback", include_str!("../data/example-loopback.yaml")),
    ("h100-sxm", include_str!("../data/h100-sxm.yaml")),
    ("t4", include_str!("../data/t4.yaml")),
    ("pcie3-x16", include_str!("../data/pcie3-x16.yaml")),
    ("pcie5-x16", include_str!("../data/pcie5-x16.yaml")),
];

/// Name and text of every shipped profile.
pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHIPPED.iter().copied()
}

/// Any profile file; the kinds are told apart by a key at the top.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// `machine:`, a whole machine.
    Machine(Machine),
    /// `host:`, what `fulcrum bench` writes.
    Host(Box<Host>),
    /// `parts:`, a machine made of named parts.
    Composition(Composition),
    /// `gpu:`.
    Gpu(Box<GpuPart>),
    /// `link:`.
    Link(LinkPart),
    /// `cxl:`.
    Cxl(CxlPart),
}

impl Profile {
    /// Reads a profile of any kind. `file` is its name in messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let keys = yaml::top_keys(text, file)?;
        let has = |key: &str| keys.iter().any(|k| k == key);
        if has("machine") {
            Machine::from_yaml(text, file).map(Profile::Machine)
        } else if has("host") {
            Host::from_yaml(text, file).map(|host| Profile::Host(Box::new(host)))
        } else if has("parts") {
            yaml::read(text, file).map(Profile::Composition)
        } else if has("gpu") {
            yaml::read(text, file).map(|gpu| Profile::Gpu(Box::new(gpu)))
        } else if has("link") {
            yaml::read(text, file).map(Profile::Link)
        } else if has("cxl") {
            yaml::read(text, file).map(Profile::Cxl)
        } else {
            let kinds = "`machine`, `host`, `parts`, `gpu`, `link` or `cxl`";
            Err(yaml::refuse(
                text,
                file,
                &[],
                format!("this is no profile: it needs one of the keys {kinds}"),
            ))
        }
    }

    /// What kind it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Profile::Machine(_) => "a machine",
            Profile::Host(_) => "a host",
            Profile::Composition(_) => "a composition",
            Profile::Gpu(_) => "a GPU",
            Profile::Link(_) => "a link",
            Profile::Cxl(_) => "CXL memory",
        }
    }
}

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
        if let Some((_, text)) = shipped().find(|(shipped, _)| *shipped == name) {
            return Ok(Profile::from_yaml(text, name)?);
        }
        let path = self.path(name)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|reason| ProfileError::Unreadable { file: path.clone(), reason })?;
        Ok(Profile::from_yaml(&text, &path.display().to_string())?)
    }

    /// The machine called `name`: a machine, a host by itself, or a composition.
    pub fn machine(&self, name: &str) -> Result<Machine, ProfileError> {
        match self.profile(name)? {
            Profile::Machine(machine) => Ok(machine),
            Profile::Host(host) => {
                let name = host.host.clone();
                Parts::of(*host).machine(&name)
            }
            Profile::Composition(composition) => {
                let path = self.path(name)?;
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                Self { folder, ..self.clone() }.compose(&composition)
            }
            other => Err(wrong(name, &other, "a machine")),
        }
    }

    /// The machine that a composition describes.
    pub fn compose(&self, composition: &Composition) -> Result<Machine, ProfileError> {
        let parts = self.parts(composition)?;
        let names = &composition.parts;
        let loopback = names.loopback.map(|_| "loopback".to_owned());
        let others = [loopback, names.gpu.clone(), names.cxl.clone()];
        let made = std::iter::once(parts.host.host.clone()).chain(others.into_iter().flatten());
        let name = composition.name.clone().unwrap_or_else(|| made.collect::<Vec<_>>().join("+"));
        parts.machine(&name)
    }

    /// The parts that a composition names.
    pub fn parts(&self, composition: &Composition) -> Result<Parts, ProfileError> {
        let names = &composition.parts;
        let host = match self.profile(&names.cpu)? {
            Profile::Host(host) => *host,
            other => return Err(wrong(&names.cpu, &other, "a host")),
        };
        let gpu = match (&names.gpu, &names.link) {
            (Some(gpu), Some(link)) => Some((self.gpu(gpu)?, self.link(link)?)),
            (None, None) => None,
            (Some(_), None) => return Err(lonely("gpu", "link", "pcie5-x16")),
            (None, Some(_)) => return Err(lonely("link", "gpu", "h100-sxm")),
        };
        let cxl = names.cxl.as_ref().map(|name| self.cxl(name)).transpose()?;
        Ok(Parts { host, loopback: names.loopback, gpu, cxl })
    }

    fn gpu(&self, name: &str) -> Result<GpuPart, ProfileError> {
        match self.profile(name)? {
            Profile::Gpu(gpu) => Ok(*gpu),
            other => Err(wrong(name, &other, "a GPU")),
        }
    }

    fn link(&self, name: &str) -> Result<LinkPart, ProfileError> {
        match self.profile(name)? {
            Profile::Link(link) => Ok(link),
            other => Err(wrong(name, &other, "a link")),
        }
    }

    fn cxl(&self, name: &str) -> Result<CxlPart, ProfileError> {
        match self.profile(name)? {
            Profile::Cxl(cxl) => Ok(cxl),
            other => Err(wrong(name, &other, "CXL memory")),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, ProfileError> {
        if name == "this" {
            return self.this.clone().filter(|path| path.exists()).ok_or(ProfileError::Unmeasured);
        }
        let path = self.folder.join(name);
        if path.exists() {
            return Ok(path);
        }
        let known = shipped().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        Err(ProfileError::Unknown { name: name.to_owned(), known })
    }
}

fn wrong(name: &str, found: &Profile, wanted: &'static str) -> ProfileError {
    ProfileError::WrongKind { name: name.to_owned(), found: found.kind(), wanted }
}

fn lonely(part: &str, other: &str, example: &str) -> ProfileError {
    let message = format!("it needs a `{other}` beside it, as `{other}: {example}`");
    ProfileError::Unfit { part: part.to_owned(), message }
}
