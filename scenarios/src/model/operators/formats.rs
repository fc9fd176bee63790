//! Number formats of a run: of weights, which may have one for each class of matrices, of the KV
//! cache and of activations.

use crate::model::formats::file_type::GgufFileType;
use crate::model::formats::weight_format::WeightFormat;
use crate::model::operators::sublayer::Sublayer;
use crate::model::transformer::Model;
use hwprofiles::DType;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
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

/// The key in plans for the token table, where it differs from the output head.
const EMBED: &str = "embed";

/// The key in plans for the kind of file.
const FILE: &str = "file";

/// The keys that a mapping in a file may have.
pub(crate) const KEYS: [&str; 5] = [DEFAULT, "attention", "ffn", "experts", "ends"];

/// The number format of each class of matrices.
///
/// In files it is one word if all classes have the same format, otherwise a mapping. A class that
/// the mapping does not name has the format under `default`. Plans also write `embed`, where the
/// token table differs from the output head, and `file`, the kind of GGUF file that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightFormats {
    classes: [WeightFormat; WeightClass::ALL.len()],
    /// The token table's format, where it differs from the output head's.
    embed: Option<WeightFormat>,
    file: Option<GgufFileType>,
}

impl WeightFormats {
    /// The same format for all matrices.
    pub const fn all(dtype: DType) -> Self {
        let classes = [WeightFormat::one_of(dtype); WeightClass::ALL.len()];
        Self { classes, embed: None, file: None }
    }

    /// The same formats, with another one for `class`.
    #[must_use]
    pub const fn with(self, class: WeightClass, dtype: DType) -> Self {
        self.with_format(class, WeightFormat::one_of(dtype))
    }

    /// The same formats, with another one or a mixture for `class`.
    #[must_use]
    pub const fn with_format(mut self, class: WeightClass, format: WeightFormat) -> Self {
        self.classes[class as usize] = format;
        if matches!(class, WeightClass::Ends) {
            self.embed = None;
        }
        self.file = None;
        self
    }

    /// The same formats, with another one for the token table.
    #[must_use]
    pub fn with_embed(mut self, format: impl Into<WeightFormat>) -> Self {
        let format = format.into();
        self.embed = (format != self.for_class(WeightClass::Ends)).then_some(format);
        self.file = None;
        self
    }

    /// The same formats as those of a `file`.
    #[must_use]
    pub fn named(self, file: GgufFileType) -> Self {
        Self { file: Some(file), ..self }
    }

    /// The kind of GGUF file that has these formats, where they were chosen as such a file.
    pub fn file(self) -> Option<GgufFileType> {
        self.file
    }

    /// The format of a class; of `Ends` that of the output head.
    pub fn for_class(self, class: WeightClass) -> WeightFormat {
        self.classes[class as usize]
    }

    /// The format of a sublayer's matrix.
    pub fn for_sublayer(self, sublayer: Sublayer) -> WeightFormat {
        match (sublayer, self.embed) {
            (Sublayer::Embed, Some(embed)) => embed,
            _ => self.for_class(WeightClass::from_sublayer(sublayer)),
        }
    }

    /// The format of all matrices; `None` if they differ.
    pub fn one(self) -> Option<DType> {
        let first = self.classes[0].one()?;
        (self == first).then_some(first)
    }

    /// Each class with its format.
    pub fn classes(self) -> impl Iterator<Item = (WeightClass, WeightFormat)> {
        WeightClass::ALL.into_iter().zip(self.classes)
    }

    /// Each distinct format once, in the order of the classes.
    pub fn distinct(self) -> impl Iterator<Item = DType> {
        let formats = self.classes.into_iter().chain(self.embed);
        let mut seen: Vec<DType> = Vec::new();
        for (dtype, _) in formats.flat_map(WeightFormat::weighted) {
            if !seen.contains(&dtype) {
                seen.push(dtype);
            }
        }
        seen.into_iter()
    }

    /// The formats with `change` applied to each.
    #[must_use]
    pub fn map(self, mut change: impl FnMut(DType) -> DType) -> Self {
        let classes = self.classes.map(|format| format.map(&mut change));
        let changed = Self { classes, embed: self.embed.map(|format| format.map(&mut change)), file: None };
        let embed = changed.embed.filter(|embed| *embed != changed.for_class(WeightClass::Ends));
        let same = (changed.classes, embed) == (self.classes, self.embed);
        Self { embed, file: self.file.filter(|_| same), ..changed }
    }

    /// The formats as `model` uses them. If it has no experts, their format becomes that of the
    /// feed-forward networks, so that formats that give the same computation compare equal.
    #[must_use]
    pub fn for_model(mut self, model: &Model) -> Self {
        if model.experts.is_none() {
            self.classes[WeightClass::Experts as usize] = self.for_class(WeightClass::Ffn);
        }
        self
    }

    /// The main format of most classes. A tie goes to that of the feed-forward networks, which hold
    /// most of a model's weights.
    pub fn usual(self) -> DType {
        let mains = self.classes.map(WeightFormat::main);
        let count = |dtype: DType| mains.iter().filter(|&&other| other == dtype).count();
        let ffn = self.for_class(WeightClass::Ffn).main();
        mains.into_iter().fold(ffn, |best, dtype| if count(dtype) > count(best) { dtype } else { best })
    }

    /// The class that most classes are like. A tie goes to the feed-forward networks.
    fn usual_format(self) -> WeightFormat {
        let count = |format: WeightFormat| self.classes.iter().filter(|&&other| other == format).count();
        let ffn = self.for_class(WeightClass::Ffn);
        self.classes
            .into_iter()
            .fold(ffn, |best, format| if count(format) > count(best) { format } else { best })
    }
}

impl From<DType> for WeightFormats {
    fn from(dtype: DType) -> Self {
        Self::all(dtype)
    }
}

impl From<WeightFormat> for WeightFormats {
    fn from(format: WeightFormat) -> Self {
        Self { classes: [format; WeightClass::ALL.len()], embed: None, file: None }
    }
}

impl PartialEq<DType> for WeightFormats {
    /// Whether all matrices have this format.
    fn eq(&self, dtype: &DType) -> bool {
        self.classes.iter().chain(&self.embed).all(|own| own == dtype)
    }
}

impl fmt::Display for WeightFormats {
    /// As a scenario writes it: one word, or `{default: bf16, experts: int4}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = self.file {
            return file.fmt(f);
        }
        let usual = self.usual_format();
        if let Some(dtype) = self.one() {
            // Alone, the word would mean the kind of file.
            return match GgufFileType::find(dtype.name()) {
                Some(_) => f.pad(&format!("{{{DEFAULT}: {usual}}}")),
                None => dtype.fmt(f),
            };
        }
        let others = self.classes().filter(|(_, format)| *format != usual);
        let others = others.map(|(class, format)| format!(", {class}: {format}"));
        let embed = self.embed.map(|embed| format!(", {EMBED}: {embed}"));
        let others: String = others.chain(embed).collect();
        f.pad(&format!("{{{DEFAULT}: {usual}{others}}}"))
    }
}

impl Serialize for WeightFormats {
    /// One word if all classes have the same format, otherwise a mapping of every class.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (Some(dtype), None) = (self.one(), self.file) {
            return dtype.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(file) = &self.file {
            map.serialize_entry(FILE, file)?;
        }
        for (class, format) in self.classes() {
            map.serialize_entry(class.name(), &format)?;
        }
        if let Some(embed) = &self.embed {
            map.serialize_entry(EMBED, embed)?;
        }
        map.end()
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
        let (mut default, mut embed, mut file) = (None, None, None);
        let mut named: [Option<WeightFormat>; WeightClass::ALL.len()] = [None; WeightClass::ALL.len()];
        while let Some(key) = map.next_key::<String>()? {
            match (key.as_str(), WeightClass::ALL.into_iter().find(|class| class.name() == key)) {
                (_, Some(class)) => named[class as usize] = Some(map.next_value()?),
                (DEFAULT, None) => default = Some(map.next_value()?),
                (EMBED, None) => embed = Some(map.next_value::<WeightFormat>()?),
                (FILE, None) => file = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    return Err(de::Error::unknown_field(&key, &KEYS));
                }
            }
        }
        let mut formats = WeightFormats::all(DType::F32);
        for class in WeightClass::ALL {
            let missing = || de::Error::missing_field(class.name());
            formats = formats.with_format(class, named[class as usize].or(default).ok_or_else(missing)?);
        }
        let formats = embed.map_or(formats, |embed| formats.with_embed(embed));
        Ok(WeightFormats { file, ..formats })
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
