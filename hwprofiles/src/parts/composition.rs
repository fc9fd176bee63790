//! A composition as written: parts by name.
//!
//! ```yaml
//! parts:
//!   cpu: this                                   # a host: what `fulcrum bench` wrote, or a file
//!   loopback: {memory: 200 MB, bandwidth: 4 GB/s}
//! ```
//! The loopback device is the host's last core, behind a copy that is limited to the given
//! bandwidth. The cpu device keeps the other cores. `gpu:` with `link:`, `cxl:` and `nvme:` name
//! more parts. `cpu:` may also name a datasheet CPU, with `sockets:`, `cores:` and `dram:` next to
//! it.

use crate::files::ProfileError;
use crate::machine::Interleave;
use crate::parts::gpu::{GpuChoice, gpu_choices};
use crate::parts::modules::MemoryModules;
use crate::parts::reached::ReachedRates;
use crate::units::{Bytes, BytesPerSec, Sourced};
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A composition as written: parts by name. [`crate::Library::parts`] looks the names up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Composition {
    /// The name of the machine; where absent, it is made of the parts' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A note for readers: which testbed it is, and which of its numbers are unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The parts.
    pub parts: PartNames,
}

/// The names of a machine's parts: `this`, a shipped name, or a file. A host's name as a GPU, a
/// link or CXL memory stands for the part that was measured in that host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartNames {
    /// The host, or a datasheet CPU.
    pub cpu: String,
    /// Sockets of a datasheet CPU: a number, one where absent; or `{count: 2, link: upi2}`, which
    /// makes each a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketsChoice>,
    /// The cores of a datasheet CPU that are used, over all sockets; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u64>,
    /// The memory modules of a datasheet CPU; a size alone stands for all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "size_or_keys")]
    pub dram: Option<DramChoice>,
    /// A loopback device on the last core, with this much memory behind a link this slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loopback: Option<LoopbackLimit>,
    /// A GPU: a name, or `{part: NAME, count: 4, link: nvlink3}` for several
    /// and the link between them. With `issue: 10 us` the host launches kernels one by one. GPUs of
    /// several kinds are a list: `[rtx-4090, {part: rtx-3060-12, host_link: pcie3-x4}]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "gpu", with = "gpu_choices")]
    pub gpus: Vec<GpuChoice>,
    /// The link to each GPU that names no `host_link`: a name, or what copies reach each way, with
    /// the latency where it is known (`120 GB/s, 1 us`). Where absent, that of the GPU's usual
    /// server, at most as fast as the CPU's slots, which is told as assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Memory behind CXL: a name, its size and bandwidth with its latency where that is known
    /// (`1 TB, 200 GB/s, 300 ns`), or `{part: NAME, count: 2, interleave: {dram: 5, cxl: 2}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cxl: Option<CxlChoice>,
    /// A disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<String>,
    /// What runs on this machine reached of the rates that these parts promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ReachedRates>,
}

impl PartNames {
    /// The key of these parts whose value `error` is about, as a dotted path, and what is wrong
    /// with it. `None` where the error tells its own place.
    pub fn wrong_key(&self, error: &ProfileError) -> Option<(String, String)> {
        match error {
            ProfileError::Unknown { name, .. }
            | ProfileError::LinkRate { name }
            | ProfileError::CxlMemory { name }
            | ProfileError::WrongKind { name, .. } => Some((self.key_of(name)?, error.to_string())),
            ProfileError::Unfit { part, message } => Some((part.clone(), message.clone())),
            _ => None,
        }
    }

    /// The key of one kind of GPUs, which has its place where there is a list of them.
    pub(crate) fn gpu_key(&self, index: usize) -> String {
        if self.gpus.len() == 1 { "gpu".to_owned() } else { format!("gpu.{index}") }
    }

    /// The key under which `name` is written.
    fn key_of(&self, name: &str) -> Option<String> {
        let gpus = self.gpus.iter().enumerate().flat_map(|(index, gpu)| {
            let key = self.gpu_key(index);
            let links = [("link", gpu.link.as_ref()), ("host_link", gpu.host_link.as_ref())];
            let links = links.map(|(name, link)| (format!("{key}.{name}"), link));
            std::iter::once((key, Some(&gpu.part))).chain(links)
        });
        let others = [
            ("cpu", Some(&self.cpu)),
            ("link", self.link.as_ref()),
            ("sockets.link", self.sockets.as_ref().and_then(|sockets| sockets.link.as_ref())),
            ("cxl", self.cxl.as_ref().map(|cxl| &cxl.part)),
            ("nvme", self.nvme.as_ref()),
        ];
        let mut names = gpus.chain(others.into_iter().map(|(key, written)| (key.to_owned(), written)));
        names.find(|(_, written)| written.is_some_and(|text| text == name)).map(|(key, _)| key)
    }

    /// Every name of a part.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let gpus = self.gpus.iter_mut().flat_map(GpuChoice::names_mut);
        let between = self.sockets.as_mut().and_then(|sockets| sockets.link.as_mut());
        let cxl = self.cxl.as_mut().map(|cxl| &mut cxl.part);
        let others = [between, self.link.as_mut(), cxl, self.nvme.as_mut()];
        std::iter::once(&mut self.cpu).chain(gpus).chain(others.into_iter().flatten())
    }
}

pub(crate) fn one() -> u64 {
    1
}

/// CXL expanders of one kind. In files the part's name stands for one of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CxlChoice {
    /// The part.
    pub part: String,
    /// How many. Their pages are interleaved.
    pub count: u64,
    /// How pages alternate between DRAM and theirs in stripes over both; as suits both rates where
    /// absent.
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

/// The limits of the loopback device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopbackLimit {
    /// Its memory, taken from the host's.
    #[serde(deserialize_with = "crate::units::checked")]
    pub memory: Bytes,
    /// The rate of its link each way; the measured rate where that is less.
    #[serde(deserialize_with = "crate::units::checked")]
    pub bandwidth: BytesPerSec,
}

/// The DRAM of a datasheet CPU, as a composition gives it. A plain size or rate, without a source,
/// is what the person asking states.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DramChoice {
    /// Its size, over all sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::stated")]
    pub capacity: Option<Sourced<Bytes>>,
    /// The peak rate of reads, or the measured one, over all sockets; the part's where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::stated")]
    pub bandwidth: Option<Sourced<BytesPerSec>>,
    /// The modules that make up that peak, over all sockets; a [`crate::Library`] replaces them by
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<MemoryModules>,
}

/// A memory by its size alone, `64 GB`, or by its keys.
fn size_or_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DramChoice>, D::Error> {
    struct Visitor;
    impl<'de> de::Visitor<'de> for Visitor {
        type Value = DramChoice;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size, as 64 GB, or {capacity: 64 GB, bandwidth: 89.6 GB/s}")
        }
        fn visit_str<E: de::Error>(self, size: &str) -> Result<DramChoice, E> {
            let capacity = crate::units::stated(size.into_deserializer())?;
            Ok(DramChoice { capacity, ..DramChoice::default() })
        }
        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<DramChoice, A::Error> {
            DramChoice::deserialize(de::value::MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_any(Visitor).map(Some)
}

impl DramChoice {
    /// The same with the peak of its modules as bandwidth, on a board with so many channels.
    pub(crate) fn on_channels(self, channels: Option<u64>) -> Result<Self, ProfileError> {
        let Some(modules) = self.modules else { return Ok(self) };
        if let Some(bandwidth) = &self.bandwidth {
            let message = format!("{modules} and {} say it twice: leave one out", bandwidth.value);
            return Err(ProfileError::Unfit { part: "dram".to_owned(), message });
        }
        let bandwidth = Sourced::estimated(modules.peak(channels), &format!("the peak of {modules}"));
        Ok(Self { bandwidth: Some(bandwidth), modules: None, ..self })
    }
}

/// Sockets of a datasheet CPU. In files a number makes them one device with one memory; a number
/// with a link makes each a device with its own memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketsChoice {
    /// How many.
    pub count: u64,
    /// The link between any two sockets, where each is a device.
    pub link: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default = "one")]
    count: u64,
    link: String,
}

/// The most sockets of a board.
const MOST_SOCKETS: u64 = 16;

impl SocketsChoice {
    /// Refuses numbers of sockets that no board has.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let message = match self.count {
            0 => "0 sockets hold no CPU: use 1 or more".to_owned(),
            count if count > MOST_SOCKETS => {
                format!("{count} sockets are more than the {MOST_SOCKETS} that a board can have")
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
