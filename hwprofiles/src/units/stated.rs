//! Values that the person asking states, without a source.

use crate::units::checked::Checked;
use crate::units::provenance::Sourced;
use serde::de::{self, Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// A value that files may leave out, with its source or without: a plain one is what the person
/// asking states.
pub(crate) fn stated<'de, T, D>(deserializer: D) -> Result<Option<Sourced<T>>, D::Error>
where
    T: Checked + Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Visitor<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
        type Value = Sourced<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number with its unit, or {value: …, source: …}")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Sourced<T>, E> {
            let value = T::deserialize(text.into_deserializer())?;
            Ok(Sourced::estimated(value, "as stated by the person asking"))
        }
        // A bare number gets the message for a text without a unit.
        fn visit_u64<E: Error>(self, number: u64) -> Result<Sourced<T>, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_f64<E: Error>(self, number: f64) -> Result<Sourced<T>, E> {
            self.visit_str(&number.to_string())
        }
        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Sourced<T>, A::Error> {
            Sourced::deserialize(de::value::MapAccessDeserializer::new(map))
        }
    }
    let value = deserializer.deserialize_any(Visitor(PhantomData))?;
    value.check().map_err(D::Error::custom)?;
    Ok(Some(value))
}
