//! `fulcrum predict [MACHINE] --ops FILE`

use crate::text::terminal::{self, err, out, out_json};
use crate::written::{READ_IN_PLACE, WRITTEN_FILE};
use fulcrum::{OrError, PredictionOptions, Result, predict_rows};
use hwprofiles::AtomicFile;
use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;

/// Predict the times of operators in bulk: the rows of a CSV file, with columns for the prediction
/// added.
///
/// A row is a matrix product (columns dtype,m,n,k) or attention
/// (phase,batch,new_tokens,past_tokens,heads,kv_heads, head_dim). Added are predicted_us, bound
/// (launch, compute or memory), source (measured, interpolated, extrapolated or estimated), and
/// low_us to high_us, which holds 80 % of such times. Where there is a column latency_us, a summary
/// says how far the predictions lie from it.
#[derive(Debug, clap::Args)]
pub struct PredictArguments {
    /// A machine, a GPU, `this`, or a file. Nothing, or a folder of GPU files: the rows' column gpu
    /// says which.
    machine: Option<String>,
    /// The rows.
    #[arg(long, value_name = "FILE", value_hint = READ_IN_PLACE)]
    ops: PathBuf,
    /// Where to write the rows; otherwise to stdout and the summary to stderr. With --json alone,
    /// only the summary.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// The device of the machine; without it, its GPU.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Keep only the rows whose column gpu says this, whatever the machine calls its GPU.
    #[arg(long, value_name = "GPU")]
    only: Option<String>,
}

impl PredictArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let options = PredictionOptions {
            machine: self.machine.as_deref(),
            device: self.device.as_deref(),
            only: self.only.as_deref(),
        };
        let target = RefCell::new(RowTarget::Nowhere);
        let begin = || {
            *target.borrow_mut() = match &self.out {
                Some(path) => RowTarget::File(AtomicFile::create(path).or_failed()?),
                None if json => RowTarget::Nowhere,
                None => RowTarget::Stdout(Vec::new()),
            };
            Ok(|row: &[u8]| target.borrow_mut().write(row))
        };
        let errors = predict_rows(&self.ops, options, begin)?;
        target.into_inner().publish()?;
        let summary = errors.summary();
        match &self.out {
            _ if json => out_json!(&summary),
            Some(path) => out!("{}written to {}\n", summary.to_text(), path.display()),
            None => err!("{}", summary.to_text()),
        }
        Ok(())
    }
}

const BUFFER: usize = 1 << 16;

/// Where rows are written.
enum RowTarget {
    File(AtomicFile),
    /// The rows that are not printed yet; an error drops them.
    Stdout(Vec<u8>),
    Nowhere,
}

impl RowTarget {
    fn write(&mut self, row: &[u8]) -> Result {
        match self {
            RowTarget::File(draft) => draft.write_all(row).or_failed(),
            RowTarget::Stdout(pending) => {
                pending.extend_from_slice(row);
                if pending.len() >= BUFFER {
                    terminal::print(pending);
                    pending.clear();
                }
                Ok(())
            }
            RowTarget::Nowhere => Ok(()),
        }
    }

    fn publish(self) -> Result {
        match self {
            RowTarget::File(draft) => draft.publish().or_failed(),
            RowTarget::Stdout(pending) => {
                terminal::print(&pending);
                Ok(())
            }
            RowTarget::Nowhere => Ok(()),
        }
    }
}
