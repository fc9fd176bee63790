//! Reading of values that families spell differently, or for each layer.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use serde_json::Value;

/// A property of a family, or one that a key switches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Switch {
    No,
    Yes,
    /// The key, and its value if it is absent.
    Key(&'static str, bool),
}

impl Switch {
    /// Its value in `config`.
    pub fn read(self, config: &DocumentSection<'_>) -> Result<bool, ScenarioError> {
        match self {
            Switch::No => Ok(false),
            Switch::Yes => Ok(true),
            Switch::Key(key, default) => Ok(config.flag(key)?.unwrap_or(default)),
        }
    }
}

/// The spelling of a key that `config` uses: one that the file itself writes before one with a
/// default.
///
/// # Errors
/// The file writes two spellings with different values.
pub(crate) fn spelling<'k>(
    config: &DocumentSection<'_>,
    keys: &[&'k str],
) -> Result<Option<&'k str>, ScenarioError> {
    let mut written = keys.iter().filter(|key| config.writes(key) && config.get(key).is_some());
    if let Some(first) = written.next() {
        for other in written {
            if config.get(other) != config.get(first) {
                let value = config.get(first).map_or_else(String::new, Value::to_string);
                let wanted = format!("it contradicts {first}, which is {value}: leave one of them out");
                return Err(config.wrong(other, &wanted));
            }
        }
        return Ok(Some(first));
    }
    Ok(keys.iter().find(|key| config.get(key).is_some()).copied())
}

/// A whole number from 1 to `limit` under one of several spellings.
pub(crate) fn count_of(
    config: &DocumentSection<'_>,
    keys: &[&str],
    limit: u64,
) -> Result<Option<u64>, ScenarioError> {
    match spelling(config, keys)? {
        Some(key) => Ok(Some(only_count(config, key, limit)?)),
        None => Ok(None),
    }
}

/// The same, which must be present.
pub(crate) fn need_count(
    config: &DocumentSection<'_>,
    keys: &[&str],
    limit: u64,
) -> Result<u64, ScenarioError> {
    count_of(config, keys, limit)?
        .ok_or_else(|| config.missing(keys[0], &format!("a whole number from 1 to {limit} is wanted")))
}

/// A whole number from 1, or a list that repeats one.
fn only_count(config: &DocumentSection<'_>, key: &str, limit: u64) -> Result<u64, ScenarioError> {
    let Some(Value::Array(list)) = config.get(key) else {
        let wanted = format!("a whole number from 1 to {limit} is wanted");
        return config.count(key, limit)?.ok_or_else(|| config.missing(key, &wanted));
    };
    let first = list.first().and_then(Value::as_u64).filter(|count| (1..=limit).contains(count));
    match first.filter(|_| list.windows(2).all(|pair| pair[0] == pair[1])) {
        Some(count) => Ok(count),
        None => Err(config
            .wrong(key, &format!("a whole number from 1 to {limit} is wanted, or a list of equal ones"))),
    }
}

/// A whole number from 0 under one of several spellings; absent means 0. A list must repeat one.
pub(crate) fn count_from_zero(config: &DocumentSection<'_>, keys: &[&str]) -> Result<u64, ScenarioError> {
    let Some(key) = spelling(config, keys)? else { return Ok(0) };
    let value = match config.get(key) {
        Some(Value::Array(list)) if list.windows(2).all(|pair| pair[0] == pair[1]) => list.first(),
        other => other,
    };
    match value.map(Value::as_u64) {
        None => Ok(0),
        Some(Some(count)) if count <= 1 << 20 => Ok(count),
        Some(_) => Err(config.wrong(key, "a whole number from 0 to 1048576 is wanted")),
    }
}

/// A list of texts with one for each of `layers` layers, and perhaps further ones for the modules
/// of multi-token prediction behind them; `None` if the key is absent.
pub(crate) fn texts_of_layers<'a>(
    config: &DocumentSection<'a>,
    key: &str,
    layers: u64,
) -> Result<Option<Vec<&'a str>>, ScenarioError> {
    let Some(value) = config.get(key) else { return Ok(None) };
    let texts = value.as_array().and_then(|all| all.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
    let modules = config.get("num_nextn_predict_layers").and_then(Value::as_u64).unwrap_or(0);
    let whole =
        texts.filter(|texts| [layers, layers.saturating_add(modules)].contains(&(texts.len() as u64)));
    let own = whole.map(|mut texts| {
        texts.truncate(layers as usize);
        texts
    });
    match own {
        Some(texts) => Ok(Some(texts)),
        None => Err(config.wrong(key, &format!("one text for each of {layers} layers is wanted"))),
    }
}

/// A list of whole numbers with one for each of `layers` layers; `None` if the key is absent or not
/// a list.
pub(crate) fn counts_of_layers(
    config: &DocumentSection<'_>,
    key: &str,
    layers: u64,
) -> Result<Option<Vec<u64>>, ScenarioError> {
    let Some(Value::Array(list)) = config.get(key) else { return Ok(None) };
    let number = |value: &Value| value.as_u64().or(value.as_bool().map(u64::from));
    let counts = list.iter().map(number).collect::<Option<Vec<_>>>();
    match counts.filter(|counts| counts.len() as u64 == layers) {
        Some(counts) => Ok(Some(counts)),
        None => {
            let wanted = format!(
                "it has {} entries: one whole number for each of {layers} layers is wanted",
                list.len()
            );
            Err(config.wrong(key, &wanted))
        }
    }
}
