//! Number formats of weights: one for all matrices, or one for each class of them.

use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Matrices that have one number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightClass {
    /// q, k, v and the output projection.
    Attention,
    /// What every token passes of feed-forward networks: the dense ones, the shared expert and the router.
    Ffn,
    /// The experts that tokens are routed to.
    Experts,
    /// The token table and the output projection, which may be one matrix.
    Ends,
}

impl WeightClass {
    /// Every class, in the order of the enum.
    pub const ALL: [Self; 4] = [Self::Attention, Self::Ffn, Self::Experts, Self::Ends];

    /// The class of a sublayer's matrix. Attention itself has none, so that its class does not matter.
    pub fn of(sublayer: Sublayer) -> Self {
        match sublayer {
            Sublayer::Qkv | Sublayer::Attention | Sublayer::Out => Self::Attention,
            Sublayer::FfnUp | Sublayer::FfnDown | Sublayer::Router | Sublayer::SharedExpert => Self::Ffn,
            Sublayer::Experts => Self::Experts,
            Sublayer::Embed | Sublayer::Head => Self::Ends,
        }
    }

    /// The word used in files.
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

/// The word in files for the classes that are not named.
pub(crate) const DEFAULT: &str = "default";

/// The number format of each class of matrices.
///
/// In files one word where all agree, otherwise a mapping; one that names no class has the format under `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightFormats([DType; WeightClass::ALL.len()]);

impl WeightFormats {
    /// All matrices in one format.
    pub const fn all(dtype: DType) -> Self {
        Self([dtype; WeightClass::ALL.len()])
    }

    /// The same with another format for one class.
    #[must_use]
    pub const fn with(mut self, class: WeightClass, dtype: DType) -> Self {
        self.0[class as usize] = dtype;
        self
    }

    /// The format of a class.
    pub fn of_class(self, class: WeightClass) -> DType {
        self.0[class as usize]
    }

    /// The format of a sublayer's matrix.
    pub fn of(self, sublayer: Sublayer) -> DType {
        self.of_class(WeightClass::of(sublayer))
    }

    /// The format of all matrices, where they have the same.
    pub fn one(self) -> Option<DType> {
        (self == self.0[0]).then_some(self.0[0])
    }

    /// Each class with its format.
    pub fn classes(self) -> impl Iterator<Item = (WeightClass, DType)> {
        WeightClass::ALL.into_iter().zip(self.0)
    }

    /// Each format once, in the order of the classes.
    pub fn distinct(self) -> impl Iterator<Item = DType> {
        (0..self.0.len()).filter(move |&at| !self.0[..at].contains(&self.0[at])).map(move |at| self.0[at])
    }

    /// The same with `change` made to the format of every class.
    #[must_use]
    pub fn map(self, change: impl FnMut(DType) -> DType) -> Self {
        Self(self.0.map(change))
    }

    /// The same for `model`: experts that it does not have agree with the other feed-forward networks, so that what
    /// computes alike is equal.
    #[must_use]
    pub fn of_model(self, model: &Model) -> Self {
        match model.experts {
            Some(_) => self,
            None => self.with(WeightClass::Experts, self.of_class(WeightClass::Ffn)),
        }
    }

    /// The format that most classes have; of equals that of feed-forward networks, which are most of a model.
    pub fn usual(self) -> DType {
        let count = |dtype: DType| self.0.iter().filter(|&&other| other == dtype).count();
        let ffn = self.of_class(WeightClass::Ffn);
        self.distinct().fold(ffn, |best, dtype| if count(dtype) > count(best) { dtype } else { best })
    }
}

impl From<DType> for WeightFormats {
    fn from(dtype: DType) -> Self {
        Self::all(dtype)
    }
}

impl PartialEq<DType> for WeightFormats {
    /// Whether all matrices have this one.
    fn eq(&self, dtype: &DType) -> bool {
        self.0.iter().all(|own| own == dtype)
    }
}

impl fmt::Display for WeightFormats {
    /// As a scenario could have it: one word, or `{default: bf16, experts: int4}`.
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
    /// One word where all agree, otherwise every class.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.one() {
            Some(dtype) => dtype.serialize(serializer),
            None => serializer.collect_map(self.classes()),
        }
    }
}

impl<'de> Deserialize<'de> for WeightFormats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

/// Reads both spellings.
struct Written;

impl<'de> Visitor<'de> for Written {
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

/// What a mapping may name.
pub(crate) const KEYS: [&str; 5] = [DEFAULT, "attention", "ffn", "experts", "ends"];
