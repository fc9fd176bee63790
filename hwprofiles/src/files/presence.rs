//! Parts that a document may say are absent.

use crate::units::Checked;
use serde::de::{self, MapAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// A part of a host that may not be there. In files: the part itself, or the word `absent`.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Presence<T> {
    /// The document says that there is none.
    #[default]
    Absent,
    /// There is one.
    Present(T),
}

impl<T> Presence<T> {
    /// The part, where it is present.
    pub fn as_option(&self) -> Option<&T> {
        match self {
            Presence::Absent => None,
            Presence::Present(part) => Some(part),
        }
    }

    /// The part changed by `change`, where it is present.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Presence<U> {
        match self {
            Presence::Absent => Presence::Absent,
            Presence::Present(part) => Presence::Present(change(part)),
        }
    }
}

impl<T> From<Option<T>> for Presence<T> {
    fn from(part: Option<T>) -> Self {
        part.map_or(Presence::Absent, Presence::Present)
    }
}

impl<T: Serialize> Serialize for Presence<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Presence::Absent => serializer.serialize_str("absent"),
            Presence::Present(part) => part.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Presence<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = Presence<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the part's keys, or the word `absent`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                if text == "absent" {
                    return Ok(Presence::Absent);
                }
                // A quantity is a text too, and its own message is the better one.
                match T::deserialize(de::value::StrDeserializer::<E>::new(text)) {
                    Ok(part) => Ok(Presence::Present(part)),
                    Err(error) if error.to_string().starts_with("invalid type") => {
                        Err(E::invalid_value(de::Unexpected::Str(text), &self))
                    }
                    Err(error) => Err(error),
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                T::deserialize(de::value::U64Deserializer::new(number)).map(Presence::Present)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                T::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Presence::Present)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Presence::Present)
            }
        }
        deserializer.deserialize_any(Visitor(PhantomData))
    }
}

impl<T: Checked> Checked for Presence<T> {
    fn check(&self) -> Result<(), String> {
        self.as_option().map_or(Ok(()), T::check)
    }
}
