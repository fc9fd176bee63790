//! The number formats that a scenario allows, and those of them that lose too much.

use crate::error::ScenarioError;
use crate::operator::Formats;
use crate::quality::Loss;
use crate::section::Section;
use hwprofiles::{DType, GROUP};

/// The formats that a scenario names for each class of numbers; nothing where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormatLists {
    /// Of matrices.
    pub weights: Vec<DType>,
    /// Of the KV cache.
    pub kv: Vec<DType>,
    /// Of everything between operators.
    pub activations: Vec<DType>,
}

/// What a scenario leaves to choose from.
#[derive(Debug, Clone, PartialEq)]
pub struct FormatChoice {
    /// Combinations that may be chosen, at least one, those of most bits first, of equals as they are written.
    pub allowed: Vec<Formats>,
    /// Combinations that lose too much, and why.
    pub lossy: Vec<(Formats, String)>,
}

impl FormatLists {
    /// Every combination, where a class of which nothing is said has what `default` has.
    pub fn combinations(&self, default: &Formats) -> Vec<Formats> {
        let or = |named: &[DType], default: DType| match named {
            [] => vec![default],
            named => named.to_vec(),
        };
        let (weights, kv) = (or(&self.weights, default.weights), or(&self.kv, default.kv));
        let activations = or(&self.activations, default.activations);
        let mut all = Vec::new();
        for &weights in &weights {
            for &kv in &kv {
                all.extend(activations.iter().map(|&activations| Formats { weights, kv, activations }));
            }
        }
        // Bytes of a group, so that scales count.
        let bytes = |dtype: DType| dtype.matrix_bytes(1, GROUP).get();
        all.sort_by_key(|f| std::cmp::Reverse(bytes(f.weights) + bytes(f.kv) + bytes(f.activations)));
        all
    }
}

impl FormatChoice {
    /// The combinations that lose at most `limit`.
    pub(crate) fn within(limit: Option<Loss>, combinations: Vec<Formats>) -> Self {
        let mut choice = Self { allowed: vec![], lossy: vec![] };
        for formats in combinations {
            match limit.and_then(|limit| too_lossy(&formats, limit)) {
                None => choice.allowed.push(formats),
                Some(why) => choice.lossy.push((formats, why)),
            }
        }
        choice
    }
}

fn too_lossy(formats: &Formats, limit: Loss) -> Option<String> {
    match Loss::of(formats) {
        Err(unknown) => Some(unknown),
        Ok(loss) if loss > limit => Some(format!("loses {loss}: quality.max_loss is {limit}")),
        Ok(_) => None,
    }
}

/// The formats under `dtype`: each a name, or a list to choose from.
pub(crate) fn read_formats(root: &Section<'_>) -> Result<FormatLists, ScenarioError> {
    let Some(section) = root.section("dtype")? else { return Ok(FormatLists::default()) };
    section.only(&["weights", "kv", "activations"])?;
    let float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    Ok(FormatLists {
        weights: formats(&section, "weights", |_| true)?,
        kv: formats(&section, "kv", |_| true)?,
        activations: formats(&section, "activations", float)?,
    })
}

fn formats(
    section: &Section<'_>,
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
