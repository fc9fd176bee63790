//! The number formats that a scenario names, and which of them may be chosen.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::formats::file_type::GgufFileType;
use crate::model::formats::weight_format::WeightFormat;
use crate::model::operators::formats::{DEFAULT, Formats, KEYS, WeightClass, WeightFormats};
use crate::model::transformer::Model;
use crate::question::quality_loss::QualityLoss;
use hwprofiles::{DType, nearest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The formats that a scenario names; a list is empty if the scenario does not name any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormatLists {
    /// Formats of matrices.
    pub weights: WeightLists,
    /// Formats of the KV cache.
    pub kv: Vec<DType>,
    /// Formats of everything between operators.
    pub activations: Vec<DType>,
}

/// The formats that a scenario names for matrices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WeightLists {
    /// Formats of the classes without a list of their own; these classes share one choice. Empty if
    /// the scenario does not name any.
    pub rest: Vec<WeightChoice>,
    /// Formats of single classes.
    pub classes: BTreeMap<WeightClass, Vec<WeightFormat>>,
}

/// What a word for the formats of matrices means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightChoice {
    /// One format, or a mixture, for all of them.
    Format(WeightFormat),
    /// The mixture of a kind of GGUF file.
    File(GgufFileType),
    /// Those in which the model's own files hold them.
    Published,
}

/// The word for [`WeightChoice::Published`].
const PUBLISHED: &str = "published";

impl WeightChoice {
    /// The formats of `model`; `own` are those of its files.
    fn formats(self, own: WeightFormats, model: &Model) -> Result<WeightFormats, String> {
        match self {
            WeightChoice::Format(format) => Ok(WeightFormats::from(format)),
            WeightChoice::File(file) => file.formats(model),
            WeightChoice::Published => Ok(own),
        }
    }
}

impl From<DType> for WeightChoice {
    fn from(dtype: DType) -> Self {
        Self::Format(dtype.into())
    }
}

/// The largest number of combinations of formats in one scenario; each of them is planned.
const FORMAT_LIMIT: usize = 96;

/// The combinations of formats of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FormatChoice {
    /// Combinations that may be chosen; at least one. Those with more bits come first, equal ones
    /// in the order of the file.
    pub allowed: Vec<Formats>,
    /// Combinations that lose too much, each with the reason.
    pub lossy: Vec<(Formats, String)>,
}

impl WeightLists {
    /// Every combination; classes that are not named have the formats of `default`.
    fn combinations(&self, default: WeightFormats, model: &Model) -> Result<Vec<WeightFormats>, String> {
        let mut all = match &self.rest[..] {
            [] => vec![default],
            rest => rest.iter().map(|choice| choice.formats(default, model)).collect::<Result<_, _>>()?,
        };
        for (&class, formats) in &self.classes {
            let each =
                |so_far: WeightFormats| formats.iter().map(move |&format| so_far.with_format(class, format));
            all = all.into_iter().flat_map(each).collect();
        }
        Ok(all)
    }

    /// The number of combinations.
    fn count(&self) -> usize {
        self.classes.values().map(Vec::len).fold(self.rest.len().max(1), usize::saturating_mul)
    }
}

impl FormatLists {
    /// Every combination for `model`; what is not named has the format of `default`.
    ///
    /// # Errors
    /// The formats of a kind of file cannot be mixed.
    pub fn combinations(&self, default: &Formats, model: &Model) -> Result<Vec<Formats>, String> {
        let or = |named: &[DType], default: DType| match named {
            [] => vec![default],
            named => named.to_vec(),
        };
        let (weights, kv) = (self.weights.combinations(default.weights, model)?, or(&self.kv, default.kv));
        let activations = or(&self.activations, default.activations);
        let mut all = Vec::new();
        for &weights in &weights {
            for &kv in &kv {
                all.extend(activations.iter().map(|&activations| Formats { weights, kv, activations }));
            }
        }
        // All classes have the same weight.
        let classes = WeightClass::ALL.len() as f64;
        let bits = |f: &Formats| {
            let weights: f64 = f.weights.classes().map(|(_, format)| format.bits()).sum();
            weights + classes * (f.kv.bits() + f.activations.bits())
        };
        all.sort_by(|a, b| bits(b).total_cmp(&bits(a)));
        Ok(all)
    }

    /// The number of combinations.
    fn count(&self) -> usize {
        let others = [&self.kv, &self.activations].map(|list| list.len().max(1));
        others.into_iter().fold(self.weights.count(), usize::saturating_mul)
    }
}

impl FormatChoice {
    /// Divides `combinations` into those with which `model` loses at most `limit`, and the others.
    /// Each is kept once.
    pub(crate) fn within(limit: Option<QualityLoss>, combinations: Vec<Formats>, model: &Model) -> Self {
        let mut choice = Self { allowed: vec![], lossy: vec![] };
        for formats in combinations {
            let formats = Formats { weights: formats.weights.for_model(model), ..formats };
            if choice.allowed.contains(&formats) || choice.lossy.iter().any(|(other, _)| *other == formats) {
                continue;
            }
            match limit.and_then(|limit| too_lossy(&formats, model, limit)) {
                None => choice.allowed.push(formats),
                Some(why) => choice.lossy.push((formats, why)),
            }
        }
        choice
    }
}

/// The reason why `formats` lose more than `limit`; `None` if they do not.
fn too_lossy(formats: &Formats, model: &Model, limit: QualityLoss) -> Option<String> {
    match QualityLoss::from_formats(formats, model) {
        Err(unknown) => Some(unknown),
        Ok(loss) if loss > limit => Some(format!("loses {loss}: quality.max_loss is {limit}")),
        Ok(_) => None,
    }
}

/// Reads `dtype`: each of its keys has one format, or a list to choose from. Without keys it is the
/// format of weights.
pub(crate) fn read_formats(root: &DocumentSection<'_>) -> Result<FormatLists, ScenarioError> {
    if root.get("dtype").is_some_and(|value| value.is_string() || value.is_array()) {
        let rest = choices(root, "dtype", WeightChoice::from, file_or_format)?;
        return Ok(FormatLists { weights: WeightLists { rest, ..Default::default() }, ..Default::default() });
    }
    let Some(section) = root.section("dtype")? else { return Ok(FormatLists::default()) };
    section.only(&["weights", "kv", "activations"])?;
    let float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    let lists = FormatLists {
        weights: weights(root, &section)?,
        kv: formats(&section, "kv", DType::holds_kv)?,
        activations: formats(&section, "activations", float)?,
    };
    match lists.count() {
        ..=FORMAT_LIMIT => Ok(lists),
        many => {
            let wanted = format!(
                "at most {FORMAT_LIMIT} combinations of number formats are planned, not {many}: name fewer"
            );
            Err(root.wrong("dtype", &wanted))
        }
    }
}

/// Reads `dtype.weights`: formats for all matrices, or a mapping from classes to formats.
fn weights(root: &DocumentSection<'_>, section: &DocumentSection<'_>) -> Result<WeightLists, ScenarioError> {
    match section.get("weights") {
        Some(value) if value.is_object() => {}
        _ => {
            let rest = choices(section, "weights", WeightChoice::from, file_or_format)?;
            return Ok(WeightLists { rest, ..WeightLists::default() });
        }
    }
    let Some(section) = root.section("dtype.weights")? else { return Ok(WeightLists::default()) };
    section.only(&KEYS)?;
    let rest = choices(&section, DEFAULT, WeightChoice::from, |word| word_of_class(word).map(Into::into))?;
    let mut lists = WeightLists { rest, ..WeightLists::default() };
    for class in WeightClass::ALL {
        let named = choices(&section, class.name(), |format| format, word_of_class)?;
        if !named.is_empty() {
            lists.classes.insert(class, named);
        }
    }
    Ok(lists)
}

impl From<WeightFormat> for WeightChoice {
    fn from(format: WeightFormat) -> Self {
        Self::Format(format)
    }
}

/// A format of weights that a class may have.
fn word_of_class(word: &str) -> Result<WeightFormat, String> {
    match word.parse::<DType>() {
        Ok(dtype) if dtype.holds_weights() => Ok(dtype.into()),
        Ok(dtype) => Err(format!("{dtype} is a format of KV caches, not of weights")),
        Err(message) if GgufFileType::find(word).is_some() => {
            Err(format!("{message}; {word} is a mixture of a whole file: write `weights: {word}`"))
        }
        Err(message) => Err(message),
    }
}

/// A format of all weights: a kind of GGUF file where the word names one, a number format
/// otherwise.
fn file_or_format(word: &str) -> Result<WeightChoice, String> {
    let plain = word.to_lowercase().replace('-', "_");
    if plain == PUBLISHED {
        return Ok(WeightChoice::Published);
    }
    if let Some(file) = GgufFileType::find(word) {
        return Ok(WeightChoice::File(file));
    }
    if plain.ends_with("_xl") {
        let kinds = GgufFileType::ALL.map(|entry| entry.1);
        let near = nearest(&plain.replace("ud_", "").replace("_xl", "_m"), kinds).join(", ");
        return Err(format!(
            "the tensors of '{word}' have types chosen for each model: name the file itself as the model, or \
             the nearest kinds {near}"
        ));
    }
    match word_of_class(word) {
        Ok(format) => Ok(WeightChoice::Format(format)),
        Err(_) if word.parse::<DType>().is_err() => {
            let words = DType::ALL.map(DType::name).into_iter().filter(|word| *word != DType::Int2.name());
            let kinds = GgufFileType::ALL.map(|entry| entry.1).into_iter();
            // "4bit" says how wide the numbers are.
            let width = plain.strip_suffix("bit").map(|bits| format!("int{}", bits.trim_end_matches('_')));
            let mut near = nearest(width.as_deref().unwrap_or(word), words.chain(kinds).chain([PUBLISHED]));
            near.dedup();
            Err(format!(
                "'{word}' is neither a number format nor a kind of GGUF file; the nearest are {}",
                near.join(", ")
            ))
        }
        Err(message) => Err(message),
    }
}

/// Reads one choice or a list under `key`; empty if the key is absent. A mapping is a mixture.
fn choices<T: Copy + PartialEq>(
    section: &DocumentSection<'_>,
    key: &str,
    of_mixture: impl Fn(WeightFormat) -> T,
    of_word: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ScenarioError> {
    const WANTED: &str = "a number format, a list of them, or a mixture as {q4_k: 3, q6_k: 1} is wanted";
    let Some(value) = section.get(key) else { return Ok(vec![]) };
    let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    if items.is_empty() {
        return Err(section.wrong(key, &format!("{WANTED}, as bf16, int8 or q4_k")));
    }
    let mut choices = Vec::new();
    for item in items {
        let choice = match item {
            Value::String(word) => of_word(word),
            Value::Object(_) => {
                WeightFormat::deserialize(item).map(&of_mixture).map_err(|error| error.to_string())
            }
            _ => Err(WANTED.to_owned()),
        };
        let choice = choice.map_err(|message| section.wrong(key, &message))?;
        if choices.contains(&choice) {
            return Err(section.wrong(key, &format!("{item} is there twice: name each format once")));
        }
        choices.push(choice);
    }
    Ok(choices)
}

/// Reads one format or a list under `key`; empty if the key is absent.
fn formats(
    section: &DocumentSection<'_>,
    key: &str,
    possible: impl Fn(DType) -> bool,
) -> Result<Vec<DType>, ScenarioError> {
    let Some(value) = section.get(key) else { return Ok(vec![]) };
    let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let words =
        || DType::OWN.into_iter().filter(|&d| possible(d)).map(DType::name).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return Err(section.wrong(key, &format!("one or more of {} are wanted", words())));
    }
    let mut formats = Vec::new();
    for name in names {
        let Some(name) = name.as_str() else {
            return Err(section.wrong(key, &format!("one of {}, or a list of them, is wanted", words())));
        };
        let dtype: DType = name.parse().map_err(|error: String| section.wrong(key, &error))?;
        if !possible(dtype) {
            return Err(section.wrong(key, &format!("one of {} is wanted", words())));
        }
        if formats.contains(&dtype) {
            return Err(section.wrong(key, &format!("'{dtype}' is there twice: name each format once")));
        }
        formats.push(dtype);
    }
    Ok(formats)
}
