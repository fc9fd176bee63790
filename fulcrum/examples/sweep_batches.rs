//! Plans and simulates batches of every size up to 64, and shows which has the most tokens a
//! second.
//!
//! `cargo run --release -p fulcrum --example sweep_batches [TABLE.csv]`

use fulcrum::{Document, ExtraKey, OrError, ProgressEvent, RowRank, Setting, Sweep, SweepRun};
use scenarios::SweepAxis;
use std::path::PathBuf;

const SCENARIO: &str = "
machine: rtx4090-desktop
model: llama-3.1-8b
dtype: {weights: int8, kv: bf16}
workload: {batch: 1, prompt_tokens: 256, output_tokens: 32}
";

fn main() -> fulcrum::Result {
    let table = std::env::args().nth(1).map(PathBuf::from);
    let table = table.unwrap_or_else(|| std::env::temp_dir().join("batches.csv"));
    let document = Document::from_yaml("scenario", SCENARIO).or_input()?;
    let batches: Setting = "workload.batch=1..64*2".parse().or_input()?;
    let sweep = Sweep::new(document, vec![SweepAxis::from(batches)], None, None, ExtraKey::None)?;
    let rank = RowRank { column: "output_tokens_per_s".to_owned(), most: true };
    let run = SweepRun { rank: Some(rank), ..SweepRun::new(&table) };
    let counts = sweep.run(run, &|event| {
        if let ProgressEvent::Steps { done, of } = event {
            eprintln!("{done} of {of}");
        }
    })?;
    println!("{}: {}", table.display(), counts.to_text());
    if let Some(best) = &counts.best {
        println!("batch {}: {} tokens/s", best["workload.batch"], best["output_tokens_per_s"]);
    }
    Ok(())
}
