//! Number formats of a run: of weights, which may have one for each class of matrices, of the KV
//! cache and of activations.

use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Matrices that share one number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightClass {
    /// q, k, v and the output projection.
    Attention,
    /// The feed-forward matrices that every token uses: dense networks, the shared expert, the
    /// router.
    Ffn,
    /// The experts that tokens are routed to.
    Experts,
    /// The token table and the output head, which may be one matrix.
    Ends,
}

impl WeightClass {
    /// Every class, in the order of the enum.
    pub const ALL: [Self; 4] = [Self::Attention, Self::Ffn, Self::Experts, Self::Ends];

    /// The class of a sublayer's matrix. `Sublayer::Attention` has no matrix; its class is not
    /// used.
    pub fn from_sublayer(sublayer: Sublayer) -> Self {
        match sublayer {
            Sublayer::Qkv | Sublayer::Attention | Sublayer::Out => Self::Attention,
            Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Router | Sublayer::SharedExpert => Self::Ffn,
            Sublayer::Experts => Self::Experts,
            Sublayer::Embed | Sublayer::Head => Self::Ends,
        }
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Ffn => "ffn",
            Self::Experts => "experts",
            Self::Ends => "ends",
        }
    }
}

impl fmt::Display for WeightClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The key in files for all classes that are not named.
pub(crate) const DEFAULT: &str = "default";

/// The keys that a mapping in a file may have.
pub(crate) const KEYS: [&str; 5] = [DEFAULT, "attention", "ffn", "experts", "ends"];

/// The number format of each class of matrices.
///
/// In files it is one word if all classes have the same format, otherwise a mapping. A class that
/// the mapping does not name has the format under `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightFormats([DType; WeightClass::ALL.len()]);

impl WeightFormats {
    /// The same format for all matrices.
    pub const fn all(dtype: DType) -> Self {
        Self([dtype; WeightClass::ALL.len()])
    }

    /// The same formats, with another one for `class`.
    #[must_use]
    pub const fn with(mut self, class: WeightClass, dtype: DType) -> Self {
        self.0[class as usize] = dtype;
        self
    }

    /// The format of a class.
    pub fn for_class(self, class: WeightClass) -> DType {
        self.0[class as usize]
    }

    /// The format of a sublayer's matrix.
    pub fn for_sublayer(self, sublayer: Sublayer) -> DType {
        self.for_class(WeightClass::from_sublayer(sublayer))
    }

    /// The format of all matrices; `None` if they differ.
    pub fn one(self) -> Option<DType> {
        (self == self.0[0]).then_some(self.0[0])
    }

    /// Each class with its format.
    pub fn classes(self) -> impl Iterator<Item = (WeightClass, DType)> {
        WeightClass::ALL.into_iter().zip(self.0)
    }

    /// Each distinct format once, in the order of the classes.
    pub fn distinct(self) -> impl Iterator<Item = DType> {
        (0..self.0.len()).filter(move |&at| !self.0[..at].contains(&self.0[at])).map(move |at| self.0[at])
    }

    /// The formats with `change` applied to each class.
    #[must_use]
    pub fn map(self, change: impl FnMut(DType) -> DType) -> Self {
        Self(self.0.map(change))
    }

    /// The formats as `model` uses them. If it has no experts, their format becomes that of the
    /// feed-forward networks, so that formats that give the same computation compare equal.
    #[must_use]
    pub fn for_model(self, model: &Model) -> Self {
        match model.experts {
            Some(_) => self,
            None => self.with(WeightClass::Experts, self.for_class(WeightClass::Ffn)),
        }
    }

    /// The format that most classes have. A tie goes to the format of the feed-forward networks,
    /// which hold most of a model's weights.
    pub fn usual(self) -> DType {
        let count = |dtype: DType| self.0.iter().filter(|&&other| other == dtype).count();
        let ffn = self.for_class(WeightClass::Ffn);
        self.distinct().fold(ffn, |best, dtype| if count(dtype) > count(best) { dtype } else { best })
    }
}

impl From<DType> for WeightFormats {
    fn from(dtype: DType) -> Self {
        Self::all(dtype)
    }
}

impl PartialEq<DType> for WeightFormats {
    /// Whether all matrices have this format.
    fn eq(&self, dtype: &DType) -> bool {
        self.0.iter().all(|own| own == dtype)
    }
}

impl fmt::Display for WeightFormats {
    /// As a scenario writes it: one word, or `{default: bf16, experts: int4}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(dtype) = self.one() {
            return dtype.fmt(f);
        }
        let usual = self.usual();
        let others = self.classes().filter(|(_, dtype)| *dtype != usual);
        let others: Vec<_> = others.map(|(class, dtype)| format!("{class}: {dtype}")).collect();
        f.pad(&format!("{{{DEFAULT}: {usual}, {}}}", others.join(", ")))
    }
}

impl Serialize for WeightFormats {
    /// One word if all classes have the same format, otherwise a mapping of every class.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.one() {
            Some(dtype) => dtype.serialize(serializer),
            None => serializer.collect_map(self.classes()),
        }
    }
}

impl<'de> Deserialize<'de> for WeightFormats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WeightFormatsVisitor)
    }
}

/// Reads one word or a mapping.
struct WeightFormatsVisitor;

impl<'de> Visitor<'de> for WeightFormatsVisitor {
    type Value = WeightFormats;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number format, or one for each of attention, ffn, experts and ends")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<WeightFormats, E> {
        word.parse().map(WeightFormats::all).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WeightFormats, A::Error> {
        let (mut default, mut named) = (None, [None; WeightClass::ALL.len()]);
        while let Some(key) = map.next_key::<String>()? {
            let place = match WeightClass::ALL.into_iter().find(|class| class.name() == key) {
                Some(class) => &mut named[class as usize],
                None if key == DEFAULT => &mut default,
                None => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(de::Error::unknown_field(&key, &KEYS));
                }
            };
            *place = Some(map.next_value()?);
        }
        let mut formats = [DType::F32; WeightClass::ALL.len()];
        for (class, format) in WeightClass::ALL.into_iter().zip(&mut formats) {
            let missing = || de::Error::missing_field(class.name());
            *format = named[class as usize].or(default).ok_or_else(missing)?;
        }
        Ok(WeightFormats(formats))
    }
}

/// Number formats of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Formats {
    /// Format of matrices. Norm weights and biases are always f32.
    pub weights: WeightFormats,
    /// Format of the KV cache.
    pub kv: DType,
    /// Format of everything between operators.
    pub activations: DType,
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weights {}, kv {}, activations {}", self.weights, self.kv, self.activations)
    }
}
