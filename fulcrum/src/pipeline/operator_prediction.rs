//! The times of operators in bulk: the rows of a CSV file, with columns for the prediction added.

use super::row_devices::{PredictionOptions, RowDevices};
use crate::error::{Error, OrError, Result};
use hwprofiles::Operations;
use reports::{OperationErrors, PREDICTED_COLUMNS, append_prediction};
use std::io::{BufRead, BufReader};
use std::path::Path;

const BUFFER: usize = 1 << 16;

/// Predicts each row of the CSV file at `path` and hands it, with the columns for the prediction
/// added and with its line end, to `write`; the header comes first. `begin` is called once, when
/// the header and the options have turned out to be right, and makes `write`.
///
/// The sums say how far the predictions lie from a column `latency_us`, where there is one.
///
/// # Errors
/// Names the file, the line and the column of the first row that is wrong.
pub fn predict_rows<W: FnMut(&[u8]) -> Result>(
    path: &Path,
    options: PredictionOptions<'_>,
    begin: impl FnOnce() -> Result<W>,
) -> Result<OperationErrors> {
    let name = path.display().to_string();
    let unreadable = |error| Error::input(format!("{name}: cannot be read: {error}"));
    let file = hwprofiles::open_input(path).map_err(unreadable)?;
    let operations = Operations::new(BufReader::with_capacity(BUFFER, file), &name).or_input()?;
    for column in PREDICTED_COLUMNS {
        if operations.rows().column(column).or_input()?.is_some() {
            let message = "predictions stand there already: drop the column or rename it";
            return Err(Error::input(operations.rows().refuse_header(column, message)));
        }
    }
    let devices = RowDevices::new(options, operations.rows(), operations.gpu_column())?;
    predict(operations, devices, begin()?)
}

fn predict(
    mut operations: Operations<impl BufRead>,
    mut devices: RowDevices,
    mut write: impl FnMut(&[u8]) -> Result,
) -> Result<OperationErrors> {
    let mut errors = OperationErrors::default();
    let line_end = if operations.rows().line_end() == "\r\n" { "\r\n" } else { "\n" };
    let mut row = operations.rows().text().to_vec();
    for column in PREDICTED_COLUMNS {
        row.push(b',');
        row.extend_from_slice(column.as_bytes());
    }
    row.extend_from_slice(line_end.as_bytes());
    write(&row)?;
    while let Some(operation) = operations.advance().or_input()? {
        let rows = operations.rows();
        let Some((index, device)) = devices.device_of_row(rows)? else { continue };
        let estimate = operation.time_on(device).map_err(|missing| rows.refuse_line(missing)).or_input()?;
        let measured = operations.measured().or_input()?;
        errors.add((index, devices.name(index)), rows.line(), &operation, &estimate, measured);
        row.clear();
        row.extend_from_slice(rows.text());
        append_prediction(&mut row, &estimate);
        row.extend_from_slice(line_end.as_bytes());
        write(&row)?;
    }
    Ok(errors)
}
