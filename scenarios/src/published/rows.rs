//! The rows of a publication.

use hwprofiles::{RowsError, TableRows};
use std::collections::BTreeMap;

/// One published number.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedRow {
    /// The row's id.
    pub id: String,
    /// The number; `None` if a range like `1.8-2.1` was published, which cannot be scored.
    pub value: Option<f64>,
    /// Unit of the number.
    pub unit: String,
    /// What was measured, like `decode_throughput`.
    pub metric: String,
    /// The kind of source: `table`, `repo-log`, `figure-vector`, `abstract`, `secondary`, …
    pub certainty: String,
    /// All cells of the row, by column.
    pub cells: BTreeMap<String, String>,
}

impl PublishedRow {
    /// Whether the publication describes the setup well enough to compare a prediction with the
    /// number.
    pub fn has_full_setup(&self) -> bool {
        matches!(self.certainty.as_str(), "table" | "repo-log")
    }
}

/// Reads rows from a CSV with the columns `id`, `value`, `unit`, `metric`, `certainty` and any
/// others.
///
/// # Errors
/// A column is missing, a value is neither a number nor a range, or an id appears twice.
pub fn read_rows(text: &str, file: &str) -> Result<Vec<PublishedRow>, RowsError> {
    let mut rows = TableRows::new(text.as_bytes(), file)?;
    let need = |rows: &TableRows<&[u8]>, name: &str| {
        let missing = || rows.refuse_header(name, "this column is missing".to_owned());
        rows.column(name)?.ok_or_else(missing)
    };
    let [id, value, unit, metric, certainty] = [
        need(&rows, "id")?,
        need(&rows, "value")?,
        need(&rows, "unit")?,
        need(&rows, "metric")?,
        need(&rows, "certainty")?,
    ];
    let names = rows.names().to_vec();
    let mut published: Vec<PublishedRow> = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    while rows.advance()? {
        let text = |column: usize| String::from_utf8_lossy(rows.cell(column)).replace("\"\"", "\"");
        if !ids.insert(text(id)) {
            return Err(rows.refuse(id, format!("'{}' comes twice", text(id))));
        }
        let number = text(value).parse::<f64>().ok().filter(|number| number.is_finite());
        let wanted = || rows.refuse(value, format!("'{}' is no number", rows.shown(value)));
        published.push(PublishedRow {
            id: text(id),
            value: match number {
                None if !text(value).contains('-') => return Err(wanted()),
                number => number,
            },
            unit: text(unit),
            metric: text(metric),
            certainty: text(certainty),
            cells: names.iter().enumerate().map(|(at, name)| (name.clone(), text(at))).collect(),
        });
    }
    Ok(published)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "id,value,unit,metric,certainty,note\n";

    #[test]
    fn cells_are_by_column_and_quotes_are_gone() {
        let rows = read_rows(&format!("{HEAD}a,1.5,tok/s,rate,table,\"say \"\"b\"\", c\"\n"), "t.csv")
            .expect("rows");
        assert_eq!(rows[0].cells["note"], "say \"b\", c");
        assert!(rows[0].has_full_setup() && rows[0].value == Some(1.5));
    }

    #[test]
    fn a_table_that_is_wrong_is_refused_with_its_line() {
        let cases = [
            (format!("{HEAD}a,x,s,m,table,\n"), "t.csv:2: value"),
            (format!("{HEAD}a,1,s,m,table,\na,2,s,m,table,\n"), "t.csv:3: id"),
            ("id,value\n".to_owned(), "unit: this column is missing"),
        ];
        for (text, wanted) in cases {
            let error = read_rows(&text, "t.csv").expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
