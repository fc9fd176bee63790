//! `fulcrum predict [MACHINE] --ops FILE`

use crate::exit::{Failure, Outcome, Sort};
use crate::row_devices::{Choice, RowDevices};
use crate::terminal::{self, out, outln};
use anyhow::anyhow;
use hwprofiles::{Draft, Operations};
use reports::{OperationErrors, PREDICTED_COLUMNS, append_prediction};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

/// Predict the times of operators in bulk: the rows of a CSV file, with columns for the prediction added.
///
/// A row is a matrix product (columns dtype,m,n,k) or attention (phase,batch,new_tokens,past_tokens,heads,kv_heads,
/// head_dim). Added are predicted_us, bound (launch, compute or memory), source (measured, interpolated, extrapolated
/// or estimated), and low_us to high_us, which holds 80 % of such times. Where there is a column latency_us, a
/// summary says how far the predictions lie from it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A machine, a GPU, `this`, or a file. Nothing, or a folder of GPU files: the rows' column gpu says which.
    machine: Option<String>,
    /// The rows.
    #[arg(long, value_name = "FILE")]
    ops: PathBuf,
    /// Where to write the rows; otherwise to stdout and the summary to stderr. With --json alone, only the summary.
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// The device of the machine; without it, its GPU.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Keep only the rows whose column gpu says this, whatever the machine calls its GPU.
    #[arg(long, value_name = "GPU")]
    only: Option<String>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let name = arguments.ops.display().to_string();
    let file = File::open(&arguments.ops).map_err(|error| anyhow!("{name}: cannot be read: {error}"));
    let operations = Operations::new(BufReader::with_capacity(BUFFER, file.or_input()?), &name).or_input()?;
    for column in PREDICTED_COLUMNS {
        if operations.rows().column(column).or_input()?.is_some() {
            let message = "predictions stand there already: drop the column or rename it";
            return Err(Failure::Input(operations.rows().refuse_header(column, message).into()));
        }
    }
    let choice = Choice {
        machine: arguments.machine.as_deref(),
        device: arguments.device.as_deref(),
        only: arguments.only.as_deref(),
    };
    let devices = RowDevices::of(choice, operations.rows(), operations.gpu_column())?;
    let mut target = match &arguments.out {
        Some(path) => Target::File(Draft::of(path).or_failed()?),
        None if json => Target::Nowhere,
        None => Target::Stdout(Vec::new()),
    };
    let errors = predict(operations, devices, &mut target)?;
    target.publish()?;
    let summary = errors.summary();
    match &arguments.out {
        _ if json => outln!("{}", serde_json::to_string_pretty(&json!(summary)).or_failed()?),
        Some(path) => out!("{}written to {}\n", summary.to_text(), path.display()),
        None => crate::terminal::err!("{}", summary.to_text()),
    }
    Ok(())
}

const BUFFER: usize = 1 << 16;

/// Writes every row with its prediction.
fn predict(
    mut operations: Operations<impl BufRead>,
    mut devices: RowDevices,
    target: &mut Target,
) -> Outcome<OperationErrors> {
    let mut errors = OperationErrors::default();
    let line_end = if operations.rows().line_end() == "\r\n" { "\r\n" } else { "\n" };
    let mut row = operations.rows().text().to_vec();
    for column in PREDICTED_COLUMNS {
        row.push(b',');
        row.extend_from_slice(column.as_bytes());
    }
    row.extend_from_slice(line_end.as_bytes());
    target.write(&row)?;
    while let Some(operation) = operations.advance().or_input()? {
        let rows = operations.rows();
        let Some((index, device)) = devices.of_row(rows)? else { continue };
        let estimate = operation.time_on(device).map_err(|missing| rows.refuse_line(missing)).or_input()?;
        let measured = operations.measured().or_input()?;
        errors.add((index, devices.name(index)), rows.line(), &operation, &estimate, measured);
        row.clear();
        row.extend_from_slice(rows.text());
        append_prediction(&mut row, &estimate);
        row.extend_from_slice(line_end.as_bytes());
        target.write(&row)?;
    }
    Ok(errors)
}

/// Where rows go.
enum Target {
    File(Draft),
    /// What was not printed yet: an error drops it.
    Stdout(Vec<u8>),
    Nowhere,
}

impl Target {
    fn write(&mut self, row: &[u8]) -> Outcome {
        match self {
            Target::File(draft) => draft.write_all(row).or_failed(),
            Target::Stdout(pending) => {
                pending.extend_from_slice(row);
                if pending.len() >= BUFFER {
                    terminal::print(pending);
                    pending.clear();
                }
                Ok(())
            }
            Target::Nowhere => Ok(()),
        }
    }

    fn publish(self) -> Outcome {
        match self {
            Target::File(draft) => draft.publish().or_failed(),
            Target::Stdout(pending) => {
                terminal::print(&pending);
                Ok(())
            }
            Target::Nowhere => Ok(()),
        }
    }
}
