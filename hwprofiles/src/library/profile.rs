//! Profiles of any kind.

use crate::files::{FileError, Refusal, yaml};
use crate::machine::Machine;
use crate::parts::{Composition, CpuPart, CxlPart, GpuPart, Host, LinkPart, NvmePart};
use crate::units::nearest_name;
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
            Err(unknown_kind(text, file, &keys))
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

/// The keys that tell the kinds of profiles.
const KINDS: [&str; 8] = ["machine", "host", "parts", "gpu", "cpu", "link", "cxl", "nvme"];

/// The error for a file with none of [`KINDS`] among its `keys`. The first key usually tells the
/// kind, so the error asks whether that one is mistyped.
fn unknown_kind(text: &str, file: &str, keys: &[String]) -> FileError {
    let one_of = KINDS.map(|kind| format!("`{kind}`")).join(", ");
    let first = keys.first().map(String::as_str);
    match first.and_then(|first| Some((first, nearest_name(first, KINDS)?))) {
        Some((first, near)) => {
            let meant = format!("did you mean `{near}`? A profile needs one of the keys {one_of}");
            yaml::refuse(text, file, &[first], meant)
        }
        None => {
            let wanted = format!("this is no profile: it needs one of the keys {one_of}");
            yaml::refuse(text, file, &[], wanted)
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
