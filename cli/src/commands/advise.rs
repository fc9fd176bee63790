//! `fulcrum advise`

use crate::text::terminal::strong;
use crate::text::terminal::{out, out_json};
use fulcrum::{
    AdviceQuestion, AdvisedEngine, AdvisedMachine, Error, OrError, Purpose, Result, UpgradePrices,
};
use scenarios::token_count;
use std::path::{Path, PathBuf};

/// Say what a machine can run, how fast, and what would make it faster.
///
/// Without --machine it is this machine: as `fulcrum bench` measured it, or of the parts that the
/// system names. Models and formats are placed as the engine can place them and ranked by size, age
/// and loss of quality of the model against the time that an answer takes.
#[derive(Debug, clap::Args)]
pub struct AdviseArguments {
    /// Another machine, in words: "RTX 4090, i7-14700K, 64 GB DDR5-6000". What is left out is
    /// assumed and told. `this`, or a machine's file, too.
    #[arg(long, value_name = "WORDS")]
    machine: Option<String>,
    /// The machine in words, without `--machine`.
    #[arg(value_name = "WORDS", conflicts_with = "machine")]
    words: Vec<String>,
    /// What the model is for: chat, code or batch.
    #[arg(long = "for", value_name = "PURPOSE", default_value_t)]
    purpose: Purpose,
    /// The fewest tokens per second, of all sequences together [default: 10 to chat, 20 to code, 50
    /// in batches].
    #[arg(long, value_name = "N", value_parser = positive)]
    min_tps: Option<f64>,
    /// Tokens for which each sequence has room [default: 8192 to chat, 32768 to code, 2048 in
    /// batches].
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    context: Option<u64>,
    /// Tokens of the prompt whose time is told [default: 1024 to chat, 8192 to code, 512 in
    /// batches].
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    prompt: Option<u64>,
    /// Tokens of a prefill step, as `-ub` of llama.cpp [default: what is best for the prompt].
    #[arg(long, value_name = "TOKENS", value_parser = token_count)]
    micro_batch: Option<u64>,
    /// The engine: llama.cpp, ik_llama.cpp, ollama, lmstudio, ktransformers, vllm or sglang.
    #[arg(long, default_value_t)]
    engine: AdvisedEngine,
    /// One model, a preset, a folder or a GGUF file: its formats, and what an upgrade brings.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// One format: a kind of GGUF file, as q4_k_m, or a number format.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Prices of upgrades: a table with the columns kind, name, usd, date, source.
    #[arg(long, value_name = "FILE", requires = "model")]
    prices: Option<PathBuf>,
    /// All models instead of the best ten.
    #[arg(long)]
    all: bool,
}

impl AdviseArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let words = Some(self.words.join(" ")).filter(|words| !words.is_empty());
        let machine = match self.machine.or(words).as_deref() {
            None => this_machine()?,
            Some(name) if name == "this" || is_file(name) => {
                AdvisedMachine::from_machine(fulcrum::machine(name)?)
            }
            Some(words) => AdvisedMachine::from_words(words)?,
        };
        let prices = match &self.prices {
            None => UpgradePrices::usual(),
            Some(path) => {
                let file = path.display().to_string();
                let text = std::fs::read_to_string(path).or_input().map_err(|error| error.within(&file))?;
                UpgradePrices::from_csv(&text, &file)?
            }
        };
        let question = AdviceQuestion {
            purpose: self.purpose,
            min_rate: self.min_tps,
            context: self.context,
            prompt: self.prompt,
            micro_batch: self.micro_batch,
            engine: self.engine,
            model: self.model,
            format: self.format,
        };
        let advice = fulcrum::advise(&machine, &question, &prices)?;
        match json {
            true => out_json!(&advice),
            false => out!("{}", advice.to_text(question.model.is_some(), self.all, strong)),
        }
        match advice.rows.is_empty() {
            true => Err(Error::infeasible(advice.nothing_fits())),
            false => Ok(()),
        }
    }
}

/// Whether words are the name of a machine's file, which may be missing.
fn is_file(words: &str) -> bool {
    let path = Path::new(words);
    path.is_file() || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// This machine by its measurement or its parts.
#[cfg(feature = "run")]
fn this_machine() -> Result<AdvisedMachine> {
    fulcrum::this_machine()
}

/// Without real runs nothing reads this machine.
#[cfg(not(feature = "run"))]
fn this_machine() -> Result<AdvisedMachine> {
    Err(Error::input("this build does not read the machine: say --machine \"RTX 4090, i7-14700K, 64 GB\""))
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| format!("'{text}': a number above 0 is wanted"))
}
