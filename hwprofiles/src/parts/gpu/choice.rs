//! GPUs as a composition names them: one, several of a kind, or a list of kinds.

use crate::units::Seconds;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// GPUs of one kind. In files the part's name stands for one of them.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuChoice {
    /// The part.
    pub part: String,
    /// How many, each with a link of its own to the host.
    pub count: u64,
    /// The link between any two of them. Where absent, the part's own ([`crate::GpuPart::peer`]),
    /// or their links to the host.
    pub link: Option<String>,
    /// The link of each to the host; the machine's where absent ([`crate::PartNames::link`]).
    pub host_link: Option<String>,
    /// The time that the host takes to launch one kernel; the part's where absent
    /// ([`crate::GpuPart::issue`]).
    pub issue: Option<Seconds>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuKeys {
    part: String,
    #[serde(default = "crate::parts::composition::one", deserialize_with = "crate::units::checked")]
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_link: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issue: Option<Seconds>,
}

impl GpuChoice {
    /// One GPU.
    pub fn one(part: &str) -> Self {
        Self { part: part.to_owned(), count: 1, link: None, host_link: None, issue: None }
    }

    /// Its number and name in words: `2× rtx-3090`, or the name alone of one.
    pub fn in_words(&self) -> String {
        if self.count == 1 { self.part.clone() } else { format!("{}× {}", self.count, self.part) }
    }

    /// Every name of a part.
    pub(crate) fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        std::iter::once(&mut self.part).chain(self.link.as_mut()).chain(self.host_link.as_mut())
    }
}

impl Serialize for GpuChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, count, link, host_link, issue } = self.clone();
        match (count, &link, &host_link, issue) {
            (1, None, None, None) => part.serialize(serializer),
            _ => GpuKeys { part, count, link, host_link, issue }.serialize(serializer),
        }
    }
}

const NAME_OR_KEYS: &str = "the name of a part, or {part: NAME, count: 4, link: nvlink3}";

impl<'de> Deserialize<'de> for GpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = GpuChoice;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(NAME_OR_KEYS)
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<GpuChoice, E> {
                Ok(GpuChoice::one(name))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<GpuChoice, A::Error> {
                let GpuKeys { part, count, link, host_link, issue } =
                    GpuKeys::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(GpuChoice { part, count, link, host_link, issue })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// GPUs of any number of kinds, as the value of one key: a list where there are several.
pub(crate) mod gpu_choices {
    use super::{Deserialize, Deserializer, GpuChoice, NAME_OR_KEYS, Serialize, Serializer, de, fmt};

    pub fn serialize<S: Serializer>(gpus: &[GpuChoice], serializer: S) -> Result<S::Ok, S::Error> {
        match gpus {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GpuChoice>, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Vec<GpuChoice>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{NAME_OR_KEYS}, or a list of these")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(vec![GpuChoice::one(name)])
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(vec![GpuChoice::deserialize(de::value::MapAccessDeserializer::new(map))?])
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
