//! A table with many rows, stored by columns: the CSV and Parquet files of `fulcrum sweep` and
//! `fulcrum sim`.

use crate::results::error::ReportError;
use std::collections::HashMap;
use std::path::Path;

/// A table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataTable {
    /// The number of rows.
    pub(crate) rows: usize,
    /// The columns, each with one value for each row.
    pub(crate) columns: Vec<DataColumn>,
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct DataColumn {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: ColumnValues,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues {
    /// Numbers; `None` where a row has none.
    Numbers(Vec<Option<f64>>),
    /// Words: each different word once, in order of first appearance, and an index for each row.
    Words {
        /// The different words.
        words: Vec<String>,
        /// For each row, an index into `words`.
        rows: Vec<u32>,
    },
}

impl DataTable {
    /// A table with these columns.
    ///
    /// # Panics
    /// If the columns differ in length. Readers of rows make columns of equal length.
    pub fn from_columns(columns: Vec<DataColumn>) -> Self {
        let rows = columns.first().map_or(0, |column| column.values.len());
        assert!(columns.iter().all(|column| column.values.len() == rows), "columns are of one length");
        Self { rows, columns }
    }

    /// Reads CSV. A column with only numbers and empty cells holds numbers; any other column holds
    /// words.
    ///
    /// # Errors
    /// Names the file, and the line of a row with too many or too few cells or the name of a
    /// repeated column.
    pub fn from_csv(text: &str, path: &Path) -> Result<Self, ReportError> {
        let refused = |reason: String| ReportError::Table { path: path.to_owned(), reason };
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let names: Vec<_> =
            reader.headers().map_err(|e| refused(e.to_string()))?.iter().map(str::to_owned).collect();
        if let Some(twice) =
            names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name))
        {
            return Err(refused(format!(
                "two columns are called '{twice}': columns need names of their own"
            )));
        }
        let start = reader.position().clone();
        let mut numbers = vec![true; names.len()];
        let mut record = csv::StringRecord::new();
        let mut rows = 0;
        while reader.read_record(&mut record).map_err(|e| refused(e.to_string()))? {
            rows += 1;
            for (cell, numbers) in record.iter().zip(&mut numbers) {
                *numbers = *numbers && (cell.is_empty() || number(cell).is_some());
            }
        }
        let mut columns: Vec<_> =
            numbers.into_iter().map(|numbers| ColumnBuilder::new(numbers, rows)).collect();
        // Reads the rows a second time. The header has been read, so the next record is a row.
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(&text.as_bytes()[start.byte() as usize..]);
        while reader.read_record(&mut record).map_err(|e| refused(e.to_string()))? {
            record.iter().zip(&mut columns).for_each(|(cell, column)| column.push(cell));
        }
        let columns = names.into_iter().zip(columns).map(|(name, it)| DataColumn { name, values: it.values });
        Ok(Self { rows, columns: columns.collect() })
    }

    /// The index of a column.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The numbers of a column; `None` where the column is missing, holds words or is empty.
    pub(crate) fn numbers(&self, name: &str) -> Option<&[Option<f64>]> {
        match &self.columns[self.index(name)?].values {
            ColumnValues::Numbers(numbers) if numbers.iter().any(Option::is_some) => Some(numbers),
            _ => None,
        }
    }

    /// A cell as text; empty where there is no value.
    pub(crate) fn text(&self, column: usize, row: usize) -> String {
        match &self.columns[column].values {
            ColumnValues::Numbers(numbers) => numbers[row].map_or_else(String::new, |it| it.to_string()),
            ColumnValues::Words { words, rows } => words[rows[row] as usize].clone(),
        }
    }
}

impl ColumnValues {
    /// Makes a column of words.
    pub fn from_words<'w>(rows: impl Iterator<Item = &'w str>) -> Self {
        let mut growing = ColumnBuilder::new(false, 0);
        rows.for_each(|word| growing.push(word));
        growing.values
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Words { rows, .. } => rows.len(),
        }
    }
}

/// A column that grows row by row.
struct ColumnBuilder {
    values: ColumnValues,
    known: HashMap<String, u32>,
}

impl ColumnBuilder {
    fn new(numbers: bool, rows: usize) -> Self {
        let values = match numbers {
            true => ColumnValues::Numbers(Vec::with_capacity(rows)),
            false => ColumnValues::Words { words: vec![], rows: Vec::with_capacity(rows) },
        };
        Self { values, known: HashMap::new() }
    }

    fn push(&mut self, cell: &str) {
        match &mut self.values {
            ColumnValues::Numbers(numbers) => numbers.push(number(cell)),
            ColumnValues::Words { words, rows } => {
                let index = self.known.get(cell).copied().unwrap_or_else(|| {
                    self.known.insert(cell.to_owned(), words.len() as u32);
                    words.push(cell.to_owned());
                    words.len() as u32 - 1
                });
                rows.push(index);
            }
        }
    }
}

/// A finite number. `inf` and `nan` count as words.
fn number(cell: &str) -> Option<f64> {
    cell.parse().ok().filter(|it: &f64| it.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<DataTable, ReportError> {
        DataTable::from_csv(text, Path::new("t.csv"))
    }

    proptest! {
        #![proptest_config(crate::test_cases::config())]

        #[test]
        fn what_was_written_is_read(rows in proptest::collection::vec((proptest::option::of(-1e9..1e9_f64), "[ -~]{0,6}"), 0..20)) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["number", "word"]).unwrap();
            for (number, word) in &rows {
                writer.write_record([number.map_or(String::new(), |it| it.to_string()), format!("w{word}")]).unwrap();
            }
            let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
            let table = read(&text).unwrap();
            prop_assert_eq!(table.rows, rows.len());
            for (row, (number, word)) in rows.iter().enumerate() {
                prop_assert_eq!(table.text(0, row), number.map_or(String::new(), |it| it.to_string()));
                prop_assert_eq!(table.text(1, row), format!("w{word}"));
            }
        }
    }

    #[test]
    fn a_torn_table_is_refused_by_file_and_line() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        assert!(message("a,b\n1,2\n3\n").contains("line: 3"), "{}", message("a,b\n1,2\n3\n"));
        assert!(message("a,a\n").starts_with("t.csv: two columns are called 'a'"));
        assert_eq!(read("a,b\n").unwrap().rows, 0);
        assert!(read("a,b\n1,inf\n").unwrap().numbers("b").is_none());
    }
}
