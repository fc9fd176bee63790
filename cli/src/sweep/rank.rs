//! The row of a sweep that has the least, or the most, of something: the cheapest machine that meets a limit.

use super::row::{self, Columns, Status};
use crate::exit::{Failure, Outcome};
use crate::table_file::Kind;
use anyhow::anyhow;
use serde_json::{Map, Value};

/// A column, and which of its values is best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// The column's name.
    pub column: String,
    /// Whether the largest is, rather than the smallest.
    pub most: bool,
}

/// The best row so far.
pub struct Best<'c> {
    columns: &'c Columns,
    at: usize,
    status: usize,
    most: bool,
    /// With its rank, less being better.
    best: Option<(f64, Vec<String>)>,
}

impl Rank {
    /// Nothing yet, of rows with `columns`.
    ///
    /// # Errors
    /// There is no such column of numbers.
    pub fn of<'c>(&self, columns: &'c Columns) -> Outcome<Best<'c>> {
        let named = columns.named();
        let find = |wanted: &str| named.iter().position(|(name, kind)| name == wanted && *kind != Kind::Text);
        let at = find(&self.column).ok_or_else(|| {
            let numbers: Vec<_> =
                named.iter().filter(|(_, kind)| *kind != Kind::Text).map(|(name, _)| &**name).collect();
            Failure::Input(anyhow!(
                "'{}' is no column of numbers: one of {} is wanted",
                self.column,
                numbers.join(", ")
            ))
        })?;
        let status = named.iter().position(|(name, _)| name == "status").expect("every row has one");
        Ok(Best { columns, at, status, most: self.most, best: None })
    }
}

impl Best<'_> {
    /// Looks at a row. Of equals the first is best.
    pub fn see(&mut self, row: &str) {
        let cells = row::cells(row);
        let Some(rank) = self.of_cells(&cells) else { return };
        if self.best.as_ref().is_none_or(|(known, _)| rank < *known) {
            self.best = Some((rank, cells));
        }
    }

    /// What a row has in the column, negative where most of it is best: less is better. `None` where it has nothing.
    pub fn rank(&self, row: &str) -> Option<f64> {
        self.of_cells(&row::cells(row))
    }

    fn of_cells(&self, cells: &[String]) -> Option<f64> {
        let value: f64 = cells[self.at].parse().ok().filter(|_| cells[self.status] == Status::Ok.name())?;
        Some(if self.most { -value } else { value })
    }

    /// The best row, by its columns' names; cells without a value left out.
    pub fn row(self) -> Option<Map<String, Value>> {
        let (_, cells) = self.best?;
        let named = self.columns.named().into_iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let value = |kind, cell: String| match kind {
            Kind::Text => Value::from(cell),
            Kind::Count | Kind::Number => serde_json::from_str(&cell).unwrap_or(Value::from(cell)),
        };
        Some(named.map(|((name, kind), cell)| (name, value(kind, cell))).collect())
    }
}
