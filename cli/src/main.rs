//! The `fulcrum` command: arguments and words around the library `fulcrum`.
//!
//! Results go to stdout or a file, diagnostics and progress to stderr; `--json` prints the
//! machine-readable form of whatever a command prints, of its error too. Exit statuses: 0 done, 1
//! failed, 2 wrong usage or input, 3 infeasible, 101 a bug.
//!
//! Rooms, each using only those before it: text, written, commands.
#![forbid(unsafe_code)]

mod commands;
mod text;
mod written;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::advise::AdviseArguments;
#[cfg(feature = "run")]
use commands::bench::BenchArguments;
use commands::capacity::CapacityArguments;
use commands::explain::ExplainArguments;
use commands::export::ExportArguments;
use commands::machine::MachineArguments;
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
#[cfg(feature = "run")]
use commands::serve::ServeArguments;
use commands::share::ShareArguments;
use commands::shell::{CompletionsArguments, ManualArguments};
use commands::sim::SimArguments;
use commands::sweep::SweepArguments;
#[cfg(feature = "run")]
use commands::validate::ValidateArguments;
#[cfg(feature = "run")]
use commands::web::WebArguments;
use fulcrum::Error;
#[cfg(feature = "run")]
use fulcrum::KernelPath;
use mimalloc::MiMalloc;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, ExitCode};
#[cfg(feature = "run")]
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
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
    Advise(AdviseArguments),
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
    Serve(ServeArguments),
    /// Render conversations for `serve`, in a process with limits.
    #[cfg(feature = "run")]
    #[command(hide = true)]
    RenderConversations,
    #[cfg(feature = "run")]
    Validate(ValidateArguments),
    Replay(ReplayArguments),
    Report(ReportArguments),
    Reproduce(ReproduceArguments),
    #[cfg(feature = "run")]
    Web(WebArguments),
    Share(ShareArguments),
    Schema(SchemaArguments),
    Manual(ManualArguments),
    Completions(CompletionsArguments),
}

impl Command {
    fn run(self, json: bool) -> fulcrum::Result {
        match self {
            Self::Advise(arguments) => arguments.run(json),
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
            Self::Serve(arguments) => arguments.run(json),
            #[cfg(feature = "run")]
            Self::RenderConversations => {
                server::render_conversations(std::io::stdin().lock(), std::io::stdout().lock())
            }
            #[cfg(feature = "run")]
            Self::Validate(arguments) => arguments.run(json),
            Self::Replay(arguments) => arguments.run(json),
            Self::Report(arguments) => arguments.run(json),
            Self::Reproduce(arguments) => arguments.run(json),
            #[cfg(feature = "run")]
            Self::Web(arguments) => arguments.run(json),
            Self::Share(arguments) => arguments.run(json),
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
    ignore_file_limits();
    let mut command = Arguments::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = parsed.and_then(|matches| Ok((Arguments::from_arg_matches(&matches)?, matches)));
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => {
            let message = message.format(&mut command);
            if message.use_stderr() && std::env::args_os().any(|word| word == "--json") {
                terminal::errln!("{}", Error::input(message.to_string()).to_json());
                return ExitCode::from(message.exit_code() as u8);
            }
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
    let json = arguments.json;
    let run = || {
        if written::check(&command, &matches)? {
            terminal::give_stdout_away();
        }
        arguments.command.run(json)
    };
    // Only the text of a panic that nobody catches is told: a reader may catch that of a library.
    let panicked = panic_text();
    let ran = panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let text = panicked.lock().unwrap_or_else(PoisonError::into_inner);
        terminal::errln!("error: this is a bug, please report it: {text}");
        process::exit(BUG);
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match json {
                true => terminal::errln!("{}", error.to_json()),
                false => terminal::errln!("error: {error}"),
            }
            ExitCode::from(match error {
                Error::Failed(_) => 1,
                Error::Input(_) => 2,
                Error::Infeasible(_) => 3,
            })
        }
    }
}

/// The exit status of a bug.
const BUG: i32 = 101;

/// The text of the last panic, which is not told before it is known that nobody catches it. With
/// RUST_BACKTRACE every panic is told at once, as ever.
fn panic_text() -> Arc<Mutex<String>> {
    let last = Arc::new(Mutex::new(String::new()));
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        let text = last.clone();
        panic::set_hook(Box::new(move |panic| {
            *text.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string().replace('\n', " ");
        }));
    }
    last
}

/// Lets a write that exceeds the limit on the size of files fail, instead of ending the program
/// with what it has written so far.
fn ignore_file_limits() {
    #[cfg(feature = "run")]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
