//! The row of a sweep that has the least, or the most, of something: the cheapest machine that
//! meets a limit.

use super::row::{PointStatus, SweepColumns};
use crate::error::{Error, Result};
use crate::table::{ColumnType, cells};
use hwprofiles::nearest_name;
use serde_json::{Map, Value};

/// A column, and which of its values is best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRank {
    /// The column's name.
    pub column: String,
    /// Whether the largest value is best, rather than the smallest.
    pub most: bool,
}

/// The best row so far.
pub(crate) struct BestRow<'c> {
    columns: &'c SweepColumns,
    /// The index of the column by which rows are ranked.
    ranked: usize,
    /// The index of the column `status`.
    status: usize,
    most: bool,
    /// The row's number, less being better, and its cells.
    best: Option<(f64, Vec<String>)>,
}

impl RowRank {
    /// What to say where no row has a number in the column.
    pub fn no_row_has_it(&self) -> String {
        let what = format!("No point has a number in the column '{}'", self.column);
        match self.column.contains("cost") {
            true => format!("{what}: a cost needs `costs.lifetime` and `costs.per_kwh` in the scenario."),
            false => format!("{what}."),
        }
    }

    /// The best of no row yet, of rows with `columns`.
    ///
    /// # Errors
    /// There is no such column of numbers.
    pub(crate) fn best_of<'c>(&self, columns: &'c SweepColumns) -> Result<BestRow<'c>> {
        let named = columns.named();
        let is_number = |of: &ColumnType| *of != ColumnType::Text;
        let place = named.iter().position(|(name, of)| *name == self.column && is_number(of));
        let ranked = place.ok_or_else(|| {
            let numbers = named.iter().filter(|(_, of)| is_number(of)).map(|(name, _)| &**name);
            let numbers = numbers.collect::<Vec<_>>();
            let near = nearest_name(&self.column, numbers.iter().copied());
            let near = near.or_else(|| numbers.iter().find(|name| name.starts_with(&self.column)).copied());
            let near = near.map_or(String::new(), |near| format!("did you mean {near}? "));
            let all = numbers.join(", ");
            Error::input(format!("'{}' is no column of numbers: {near}one of {all} is wanted", self.column))
        })?;
        let status = named.iter().position(|(name, _)| name == "status").expect("every row has one");
        Ok(BestRow { columns, ranked, status, most: self.most, best: None })
    }
}

impl BestRow<'_> {
    /// Looks at a row. Of equal rows the first is best.
    pub(crate) fn see(&mut self, row: &str) {
        let cells = cells(row);
        let Some(rank) = self.rank_of_cells(&cells) else { return };
        if self.best.as_ref().is_none_or(|(known, _)| rank < *known) {
            self.best = Some((rank, cells));
        }
    }

    /// The number by which a row is ranked, negated where the largest is best, so that less is
    /// better. `None` where the row has none.
    pub(crate) fn rank(&self, row: &str) -> Option<f64> {
        self.rank_of_cells(&cells(row))
    }

    fn rank_of_cells(&self, cells: &[String]) -> Option<f64> {
        let is_ok = cells[self.status] == PointStatus::Ok.name();
        let value: f64 = cells[self.ranked].parse().ok().filter(|_| is_ok)?;
        Some(if self.most { -value } else { value })
    }

    /// The best row, by the names of its columns, without its empty cells.
    pub(crate) fn row(self) -> Option<Map<String, Value>> {
        let (_, cells) = self.best?;
        let named = self.columns.named().into_iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        let value = |of, cell: String| match of {
            ColumnType::Text => Value::from(cell),
            ColumnType::Count | ColumnType::Number => {
                serde_json::from_str(&cell).unwrap_or(Value::from(cell))
            }
        };
        Some(named.map(|((name, of), cell)| (name, value(of, cell))).collect())
    }
}
