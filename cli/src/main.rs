//! The `fulcrum` command: one file per subcommand, no logic.
//!
//! Results go to stdout or a file, diagnostics and progress to stderr; `--json` prints the
//! machine-readable form of whatever a command prints.
#![forbid(unsafe_code)]

mod asked;
mod capacity;
mod commands;
mod day;
mod engines;
mod exit;
mod feed;
mod inputs;
mod lines;
mod live;
mod machines;
mod measure;
mod models;
mod parquet_rows;
mod pipeline;
mod plan_grid;
mod plan_text;
mod rebalance;
mod repeat;
mod reproduce;
mod row_devices;
mod serve;
mod serve_tables;
mod serve_text;
mod speech;
mod spoken;
mod sweep;
mod table_file;
mod terminal;
mod train;
mod tried;
mod window;

use clap::{Parser, Subcommand};
use commands::{
    bench, capacity as capacity_command, completions, explain, export, machine, merge, model, plan, predict,
    quickstart, report, reproduce as reproduce_command, run, sim, sweep as sweep_command, validate,
};
use mimalloc::MiMalloc;
use std::io::Write;
use std::process::ExitCode;

/// A planner makes many short vectors: a sweep takes a seventh less time than with the system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Finds which part of each transformer layer should run on the CPU and which on the GPU, where weights and
/// KV cache should live, predicts what that does, runs it, and shows how far the prediction was off.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    /// Print the machine-readable form of the result.
    #[arg(long, global = true)]
    json: bool,
    /// The CPU kernels to measure and run with instead of the fastest that this CPU has: reference, avx2, avx512 (the last
    /// without rounding activations to bf16), avx512-bf16, amx.
    #[arg(long, global = true, value_name = "PATH")]
    kernels: Option<kernels::Path>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Quickstart(quickstart::Arguments),
    Bench(bench::Arguments),
    Machine(machine::Arguments),
    Model(model::Arguments),
    Predict(predict::Arguments),
    Plan(plan::Arguments),
    Explain(explain::Arguments),
    Export(export::Arguments),
    Sim(sim::Arguments),
    Sweep(sweep_command::Arguments),
    Capacity(capacity_command::Arguments),
    Merge(merge::Arguments),
    Run(run::Arguments),
    Validate(validate::Arguments),
    Report(report::Arguments),
    Reproduce(reproduce_command::Arguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        // What cannot be logged is dropped: an unwritable stderr must not end the program.
        .log_internal_errors(false)
        .init();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(message) => {
            let written = message.print();
            if !message.use_stderr() {
                terminal::check(written.and_then(|()| std::io::stdout().flush()));
            }
            return ExitCode::from(message.exit_code() as u8);
        }
    };
    let json = arguments.json;
    // Before the first team there is nobody to be too late for.
    let _ = arguments.kernels.is_none_or(kernels::Path::choose);
    let outcome = match arguments.command {
        Command::Quickstart(arguments) => quickstart::run(arguments, json),
        Command::Bench(arguments) => bench::run(arguments, json),
        Command::Machine(arguments) => machine::run(arguments, json),
        Command::Model(arguments) => model::run(arguments, json),
        Command::Predict(arguments) => predict::run(arguments, json),
        Command::Plan(arguments) => plan::run(arguments, json),
        Command::Explain(arguments) => explain::run(arguments, json),
        Command::Export(arguments) => export::run(arguments, json),
        Command::Sim(arguments) => sim::run(arguments, json),
        Command::Sweep(arguments) => sweep_command::run(arguments, json),
        Command::Capacity(arguments) => capacity_command::run(arguments, json),
        Command::Merge(arguments) => merge::run(arguments, json),
        Command::Run(arguments) => run::run(arguments, json),
        Command::Validate(arguments) => validate::run(arguments, json),
        Command::Report(arguments) => report::run(arguments, json),
        Command::Reproduce(arguments) => reproduce_command::run(arguments, json),
        Command::Completions(arguments) => completions::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::errln!("error: {:#}", failure.error());
            failure.status()
        }
    }
}
