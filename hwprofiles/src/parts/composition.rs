//! A composition as written: parts by name.
//!
//! ```yaml
//! parts:
//!   cpu: this                                   # a host: what `fulcrum bench` wrote, or a file
//!   loopback: {memory: 200 MB, bandwidth: 4 GB/s}
//! ```
//! The loopback device is the host's last core behind a copy that is slowed down to the bandwidth
//! given; the cpu device keeps the other cores. `gpu:` with `link:`, `cxl:` and `nvme:` name parts
//! of their own. `cpu:` may also name a datasheet CPU, with `sockets:`, `cores:` and `dram:` beside
//! it.

use crate::files::ProfileError;
use crate::machine::Interleave;
use crate::units::{Bytes, BytesPerSec, Seconds, Sourced};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A composition as written: parts by name. [`crate::Library::parts`] looks the names up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Composition {
    /// The name of the machine; without one it is made of the parts' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What a reader should know of it: which testbed it is, and what of that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The parts.
    pub parts: PartNames,
}

/// The names of the parts of a machine: `this`, a shipped name, or a file. A host's name as a GPU,
/// a link or CXL memory stands for the one that was measured in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartNames {
    /// The host, or a datasheet CPU.
    pub cpu: String,
    /// Sockets of a datasheet CPU: how many, one where absent; or `{count: 2, link: upi2}` for each
    /// as a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketsChoice>,
    /// Cores in use of a datasheet CPU, all sockets together; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// The memory modules of a datasheet CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramChoice>,
    /// Lend the last core to a loopback device with so much memory behind so slow a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loopback: Option<LoopbackLimit>,
    /// A GPU, which needs a link: a name, or `{part: NAME, count: 4, link: nvlink3}` for several
    /// and the link between them; with `issue: 10 us` the host launches kernels one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuChoice>,
    /// The link to the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Memory behind CXL: a name, or `{part: NAME, count: 2, interleave: {dram: 5, cxl: 2}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cxl: Option<CxlChoice>,
    /// A disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<String>,
}

impl PartNames {
    /// Every name of a part.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let gpu = self.gpu.as_mut().map(|gpu| (&mut gpu.part, gpu.link.as_mut()));
        let (gpu, peer) = gpu.map_or((None, None), |(part, peer)| (Some(part), peer));
        let between = self.sockets.as_mut().and_then(|sockets| sockets.link.as_mut());
        let cxl = self.cxl.as_mut().map(|cxl| &mut cxl.part);
        let others = [between, gpu, peer, self.link.as_mut(), cxl, self.nvme.as_mut()];
        std::iter::once(&mut self.cpu).chain(others.into_iter().flatten())
    }
}

/// Expanders of one kind. In files: the part's name alone for one of them, or the keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CxlChoice {
    /// The part.
    pub part: String,
    /// How many, their pages interleaved.
    pub count: u64,
    /// Pages of DRAM to pages of theirs in stripes over both; what suits both rates where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleave: Option<Interleave>,
}

impl<'de> Deserialize<'de> for CxlChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            part: String,
            #[serde(default = "one", deserialize_with = "crate::units::checked")]
            count: u64,
            #[serde(default)]
            interleave: Option<Interleave>,
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = CxlChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a part, or {part: NAME, count: 2}")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<CxlChoice, E> {
                Ok(CxlChoice { part: name.to_owned(), count: 1, interleave: None })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<CxlChoice, A::Error> {
                let Keys { part, count, interleave } =
                    Keys::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(CxlChoice { part, count, interleave })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// GPUs of one kind. In files: the part's name alone for one of them, or the keys.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuChoice {
    /// The part.
    pub part: String,
    /// How many, each with a link of its own to the host.
    pub count: u64,
    /// The link between any two of them; over the host's where there is none.
    pub link: Option<String>,
    /// What the host takes to launch one kernel; what the part says where absent
    /// ([`crate::GpuPart::issue`]).
    pub issue: Option<Seconds>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuKeys {
    part: String,
    #[serde(default = "one", deserialize_with = "crate::units::checked")]
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issue: Option<Seconds>,
}

pub(crate) fn one() -> u64 {
    1
}

impl GpuChoice {
    /// One GPU.
    pub fn one(part: &str) -> Self {
        Self { part: part.to_owned(), count: 1, link: None, issue: None }
    }
}

impl Serialize for GpuChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, count, link, issue } = self.clone();
        match (count, &link, issue) {
            (1, None, None) => part.serialize(serializer),
            _ => GpuKeys { part, count, link, issue }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = GpuChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a part, or {part: NAME, count: 4, link: nvlink3}")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<GpuChoice, E> {
                Ok(GpuChoice::one(name))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<GpuChoice, A::Error> {
                let GpuKeys { part, count, link, issue } =
                    GpuKeys::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(GpuChoice { part, count, link, issue })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// What the loopback device is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopbackLimit {
    /// Its memory, taken from the host's.
    #[serde(deserialize_with = "crate::units::checked")]
    pub memory: Bytes,
    /// The rate of its link, each way; what was measured where that is less.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: BytesPerSec,
}

/// What a composition says of the DRAM of a datasheet CPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramChoice {
    /// How much there is, all sockets together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub capacity: Option<Sourced<Bytes>>,
    /// What long reads reach, all sockets together; what the part says where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub bandwidth: Option<Sourced<BytesPerSec>>,
}

/// Sockets of a datasheet CPU. In files: how many, which then are one device with one memory; or,
/// with the link between any two of them, each a device with a memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketsChoice {
    /// How many.
    pub count: u64,
    /// The link between any two, where each is a device.
    pub link: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default = "one")]
    count: u64,
    link: String,
}

/// No board has more.
const MOST: u64 = 16;

impl SocketsChoice {
    /// Refuses what no board has.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let message = match self.count {
            0 => "0 sockets hold no CPU: use 1 or more".to_owned(),
            count if count > MOST => {
                format!("{count} sockets are more than the {MOST} that a board can have")
            }
            1 if self.link.is_some() => {
                "a link joins sockets, and there is one: leave it out, or say `count: 2`".to_owned()
            }
            _ => return Ok(()),
        };
        Err(ProfileError::Unfit { part: "sockets".to_owned(), message })
    }
}

impl Serialize for SocketsChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.clone() {
            Self { count, link: None } => count.serialize(serializer),
            Self { count, link: Some(link) } => Keys { count, link }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SocketsChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SocketsChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("how many sockets, or {count: 2, link: NAME} for each as a device")
            }
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<SocketsChoice, E> {
                Ok(SocketsChoice { count, link: None })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<SocketsChoice, A::Error> {
                let Keys { count, link } = Keys::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(SocketsChoice { count, link: Some(link) })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
