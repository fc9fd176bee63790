//! The `fulcrum` command: arguments and words around the library `fulcrum`.
//!
//! Results go to stdout or a file, diagnostics and progress to stderr; `--json` prints the
//! machine-readable form of whatever a command prints. Exit statuses: 0 done, 1 failed, 2 wrong
//! usage or input, 3 infeasible.
//!
//! Rooms, each using only those before it: text, commands.
#![forbid(unsafe_code)]

mod commands;
mod text;

use clap::{Parser, Subcommand};
#[cfg(feature = "run")]
use commands::bench::BenchArguments;
use commands::capacity::CapacityArguments;
use commands::completions::CompletionsArguments;
use commands::explain::ExplainArguments;
use commands::export::ExportArguments;
use commands::machine::MachineArguments;
use commands::manual::ManualArguments;
use commands::merge::MergeArguments;
use commands::model::ModelArguments;
use commands::plan::PlanArguments;
use commands::predict::PredictArguments;
#[cfg(feature = "run")]
use commands::quickstart::QuickstartArguments;
use commands::replay::ReplayArguments;
use commands::report::ReportArguments;
use commands::reproduce::ReproduceArguments;
#[cfg(feature = "run")]
use commands::run::RunArguments;
use commands::schema::SchemaArguments;
use commands::sim::SimArguments;
use commands::sweep::SweepArguments;
#[cfg(feature = "run")]
use commands::validate::ValidateArguments;
use fulcrum::Error;
#[cfg(feature = "run")]
use fulcrum::KernelPath;
use mimalloc::MiMalloc;
use std::io::Write;
use std::process::ExitCode;
use text::terminal;

/// A planner makes many short vectors: a sweep takes a seventh less time than with the system's
/// allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Finds which part of each transformer layer should run on the CPU and which on the GPU, where
/// weights and KV cache should live, predicts what that does, runs it, and shows how far the
/// prediction was off.
#[derive(Debug, Parser)]
#[command(name = "fulcrum", version, max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    /// Print the machine-readable form of the result.
    #[arg(long, global = true)]
    json: bool,
    /// The CPU kernels to measure and run with instead of the fastest that this CPU has: reference,
    /// avx2, avx512 (the last without rounding activations to bf16), avx512-bf16, amx.
    #[cfg(feature = "run")]
    #[arg(long, global = true, value_name = "PATH")]
    kernels: Option<KernelPath>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "run")]
    Quickstart(QuickstartArguments),
    #[cfg(feature = "run")]
    Bench(BenchArguments),
    Machine(MachineArguments),
    Model(ModelArguments),
    Predict(PredictArguments),
    Plan(PlanArguments),
    Explain(ExplainArguments),
    Export(ExportArguments),
    Sim(SimArguments),
    Sweep(SweepArguments),
    Capacity(CapacityArguments),
    Merge(MergeArguments),
    #[cfg(feature = "run")]
    Run(RunArguments),
    #[cfg(feature = "run")]
    Validate(ValidateArguments),
    Replay(ReplayArguments),
    Report(ReportArguments),
    Reproduce(ReproduceArguments),
    Schema(SchemaArguments),
    Manual(ManualArguments),
    Completions(CompletionsArguments),
}

impl Command {
    fn run(self, json: bool) -> fulcrum::Result {
        match self {
            #[cfg(feature = "run")]
            Self::Quickstart(arguments) => arguments.run(json),
            #[cfg(feature = "run")]
            Self::Bench(arguments) => arguments.run(json),
            Self::Machine(arguments) => arguments.run(json),
            Self::Model(arguments) => arguments.run(json),
            Self::Predict(arguments) => arguments.run(json),
            Self::Plan(arguments) => arguments.run(json),
            Self::Explain(arguments) => arguments.run(json),
            Self::Export(arguments) => arguments.run(json),
            Self::Sim(arguments) => arguments.run(json),
            Self::Sweep(arguments) => arguments.run(json),
            Self::Capacity(arguments) => arguments.run(json),
            Self::Merge(arguments) => arguments.run(json),
            #[cfg(feature = "run")]
            Self::Run(arguments) => arguments.run(json),
            #[cfg(feature = "run")]
            Self::Validate(arguments) => arguments.run(json),
            Self::Replay(arguments) => arguments.run(json),
            Self::Report(arguments) => arguments.run(json),
            Self::Reproduce(arguments) => arguments.run(json),
            Self::Schema(arguments) => arguments.run(),
            Self::Manual(arguments) => arguments.run(),
            Self::Completions(arguments) => arguments.run(),
        }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        // A message that cannot be logged is dropped: an unwritable stderr must not end the
        // program.
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
    // No team of threads runs yet, so the choice cannot come too late.
    #[cfg(feature = "run")]
    let _ = arguments.kernels.is_none_or(KernelPath::choose);
    match arguments.command.run(arguments.json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::errln!("error: {error}");
            ExitCode::from(match error {
                Error::Failed(_) => 1,
                Error::Input(_) => 2,
                Error::Infeasible(_) => 3,
            })
        }
    }
}
