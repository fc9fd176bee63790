//! The names that expressions and templates of a row may use.

use super::expression::Expression;
use super::rows::PublishedRow;
use serde_json::Value;
use std::collections::BTreeMap;

/// Numbers and texts by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scope {
    numbers: BTreeMap<String, f64>,
    texts: BTreeMap<String, String>,
}

impl Scope {
    /// Defines `name` as a number.
    pub fn set(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.to_owned(), number);
    }

    /// Defines `name` as a text.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.texts.insert(name.to_owned(), text.to_owned());
    }

    /// Defines each column of a row as the text of its cell, and also as a number if it is one.
    pub fn set_row(&mut self, row: &PublishedRow) {
        for (column, cell) in &row.cells {
            if let Ok(number) = cell.parse::<f64>() {
                self.set(column, number);
            }
            self.texts.insert(column.clone(), cell.clone());
        }
    }

    /// The number that `name` stands for.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// A name is not defined, or the value is not finite.
    pub fn value(&self, expression: &Expression) -> Result<f64, String> {
        expression.value(&|name| self.number(name))
    }

    /// A copy of `template` in which each `${…}` is replaced by its value. A text that consists of
    /// one `${…}` becomes a number.
    ///
    /// # Errors
    /// A name is not defined, or a brace is not closed.
    pub fn filled(&self, template: &Value) -> Result<Value, String> {
        Ok(match template {
            Value::String(text) => self.filled_text(text)?,
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.filled(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(entries) => {
                let filled = entries.iter().map(|(key, value)| Ok((key.clone(), self.filled(value)?)));
                Value::Object(filled.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }

    fn filled_text(&self, text: &str) -> Result<Value, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            filled += &rest[..start];
            let end = rest[start..].find('}').ok_or_else(|| format!("'{text}': a brace is not closed"))?;
            let (inner, after) = (&rest[start + 2..start + end], &rest[start + end + 1..]);
            match self.texts.get(inner) {
                Some(cell) if !self.numbers.contains_key(inner) => filled += cell,
                _ => {
                    let number = self.value(&Expression::parse(inner)?)?;
                    if rest.len() == text.len() && start == 0 && after.is_empty() {
                        return Ok(as_number(number));
                    }
                    filled += &number.to_string();
                }
            }
            rest = after;
        }
        Ok(Value::String(filled + rest))
    }
}

/// A number as JSON, without a fraction if it is a whole number, because counts must be whole.
fn as_number(number: f64) -> Value {
    const WHOLE: f64 = (1u64 << 53) as f64;
    match number {
        n if n.fract() == 0.0 && n.abs() < WHOLE => Value::from(n as i64),
        n => serde_json::Number::from_f64(n).map_or(Value::Null, Value::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_filled_at_every_level() {
        let mut scope = Scope::default();
        scope.set("rate", 0.000_02);
        scope.texts.insert("model".to_owned(), "OPT-30B".to_owned());
        let template = json!({"a": ["${rate * 2} s", "${rate}"], "b": {"c": "x ${model} y"}, "d": "${rate * 50000}", "e": "plain"});
        let filled = json!({"a": ["0.00004 s", 0.000_02], "b": {"c": "x OPT-30B y"}, "d": 1, "e": "plain"});
        assert_eq!(scope.filled(&template), Ok(filled));
        assert!(scope.filled(&json!("${missing}")).is_err());
        assert!(scope.filled(&json!("${rate")).is_err());
    }
}
