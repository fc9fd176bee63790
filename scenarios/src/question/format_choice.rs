//! The number formats that a scenario names, and which of them may be chosen.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::operators::formats::{DEFAULT, Formats, KEYS, WeightClass, WeightFormats};
use crate::model::transformer::Model;
use crate::question::quality_loss::QualityLoss;
use hwprofiles::{DType, GROUP};
use serde::Serialize;
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
    /// Formats of the classes without a list of their own; these classes share one format. Empty if
    /// the scenario does not name any.
    pub rest: Vec<DType>,
    /// Formats of single classes.
    pub classes: BTreeMap<WeightClass, Vec<DType>>,
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
    fn combinations(&self, default: WeightFormats) -> Vec<WeightFormats> {
        let mut all = match &self.rest[..] {
            [] => vec![default],
            rest => rest.iter().map(|&dtype| WeightFormats::all(dtype)).collect(),
        };
        for (&class, formats) in &self.classes {
            let each = |so_far: WeightFormats| formats.iter().map(move |&dtype| so_far.with(class, dtype));
            all = all.into_iter().flat_map(each).collect();
        }
        all
    }

    /// The number of combinations.
    fn count(&self) -> usize {
        self.classes.values().map(Vec::len).fold(self.rest.len().max(1), usize::saturating_mul)
    }
}

impl FormatLists {
    /// Every combination; what is not named has the format of `default`.
    pub fn combinations(&self, default: &Formats) -> Vec<Formats> {
        let or = |named: &[DType], default: DType| match named {
            [] => vec![default],
            named => named.to_vec(),
        };
        let (weights, kv) = (self.weights.combinations(default.weights), or(&self.kv, default.kv));
        let activations = or(&self.activations, default.activations);
        let mut all = Vec::new();
        for &weights in &weights {
            for &kv in &kv {
                all.extend(activations.iter().map(|&activations| Formats { weights, kv, activations }));
            }
        }
        // Bytes of one quantisation group, so that its scale counts. All classes have the same
        // weight.
        let bytes = |dtype: DType| dtype.matrix_bytes(1, GROUP).get();
        let classes = WeightClass::ALL.len() as u64;
        all.sort_by_key(|f| {
            let weights: u64 = f.weights.classes().map(|(_, dtype)| bytes(dtype)).sum();
            std::cmp::Reverse(weights + classes * (bytes(f.kv) + bytes(f.activations)))
        });
        all
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

/// Reads `dtype`: each of its keys has one format, or a list to choose from.
pub(crate) fn read_formats(root: &DocumentSection<'_>) -> Result<FormatLists, ScenarioError> {
    let Some(section) = root.section("dtype")? else { return Ok(FormatLists::default()) };
    section.only(&["weights", "kv", "activations"])?;
    let float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    let lists = FormatLists {
        weights: weights(root, &section)?,
        kv: formats(&section, "kv", |_| true)?,
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
            return Ok(WeightLists {
                rest: formats(section, "weights", DType::holds_weights)?,
                ..WeightLists::default()
            });
        }
    }
    let Some(section) = root.section("dtype.weights")? else { return Ok(WeightLists::default()) };
    section.only(&KEYS)?;
    let mut lists =
        WeightLists { rest: formats(&section, DEFAULT, DType::holds_weights)?, ..WeightLists::default() };
    for class in WeightClass::ALL {
        let named = formats(&section, class.name(), DType::holds_weights)?;
        if !named.is_empty() {
            lists.classes.insert(class, named);
        }
    }
    Ok(lists)
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
        || DType::ALL.into_iter().filter(|&d| possible(d)).map(DType::name).collect::<Vec<_>>().join(", ");
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
