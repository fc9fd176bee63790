//! Profiles of any kind.

use crate::files::{FileError, Refusal, yaml};
use crate::machine::Machine;
use crate::parts::{Composition, CpuPart, CxlPart, GpuPart, Host, LinkPart, NvmePart};
use serde::de::DeserializeOwned;

/// The JSON Schema (2020-12) of profiles of any kind. It knows every key with its meaning, and
/// refuses unknown ones; which values are right, the reader says with the place.
pub fn machine_schema() -> &'static str {
    include_str!("../../machine.schema.json")
}

/// A profile of any kind. A key at the top of its file tells the kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Profile {
    /// `machine:`, a whole machine.
    Machine(Machine),
    /// `host:`, what `fulcrum bench` writes.
    Host(Box<Host>),
    /// `parts:`, a machine made of named parts.
    Composition(Box<Composition>),
    /// `gpu:`.
    Gpu(Box<GpuPart>),
    /// `cpu:`.
    Cpu(Box<CpuPart>),
    /// `link:`.
    Link(Box<LinkPart>),
    /// `cxl:`.
    Cxl(Box<CxlPart>),
    /// `nvme:`.
    Nvme(Box<NvmePart>),
}

impl Profile {
    /// Reads a profile of any kind. `file` is its name in messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let parsed = yaml::ParsedText::parse(text, file)?;
        let keys = parsed.top_keys()?;
        let has = |key: &str| keys.iter().any(|k| k == key);
        if has("machine") {
            Machine::from_yaml(text, file).map(Profile::Machine)
        } else if has("host") {
            Host::from_yaml(text, file).map(|host| Profile::Host(Box::new(host)))
        } else if has("parts") {
            read_part(&parsed, |_: &Composition| Ok(())).map(Profile::Composition)
        } else if has("gpu") {
            read_part(&parsed, GpuPart::check).map(Profile::Gpu)
        } else if has("cpu") {
            read_part(&parsed, CpuPart::check).map(Profile::Cpu)
        } else if has("link") {
            read_part(&parsed, LinkPart::check).map(Profile::Link)
        } else if has("cxl") {
            read_part(&parsed, CxlPart::check).map(Profile::Cxl)
        } else if has("nvme") {
            read_part(&parsed, |_: &NvmePart| Ok(())).map(Profile::Nvme)
        } else {
            let kinds = "`machine`, `host`, `parts`, `gpu`, `cpu`, `link`, `cxl` or `nvme`";
            Err(yaml::refuse(
                text,
                file,
                &[],
                format!("this is no profile: it needs one of the keys {kinds}"),
            ))
        }
    }

    /// The kind, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Profile::Machine(_) => "a machine",
            Profile::Host(_) => "a host",
            Profile::Composition(_) => "a composition",
            Profile::Gpu(_) => "a GPU",
            Profile::Cpu(_) => "a CPU",
            Profile::Link(_) => "a link",
            Profile::Cxl(_) => "CXL memory",
            Profile::Nvme(_) => "a disk",
        }
    }
}

/// Reads a part and checks the rules between its keys.
fn read_part<T: DeserializeOwned>(
    parsed: &yaml::ParsedText<'_>,
    check: impl Fn(&T) -> Result<(), Refusal>,
) -> Result<Box<T>, FileError> {
    let part: T = parsed.read()?;
    check(&part).map_err(|refusal| refusal.located(parsed.text, parsed.file))?;
    Ok(Box::new(part))
}
