//! `fulcrum run PLAN --model-dir DIR`

use crate::exit::{Failure, Outcome, Sort};
use crate::measure;
use crate::pipeline::Planned;
use crate::terminal::{out, outln};
use anyhow::anyhow;
use executor::{Checkpoint, Sampling, Session, Tokenizer};
use reports::Rates;
use scenarios::Workload;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Run a plan on a real model, and write down when each task began and ended.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan.
    plan: PathBuf,
    /// The model's folder (config.json, safetensors, tokenizer.json), or a GGUF file.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// Continue this text, as a batch of one, instead of random tokens; at most the plan's prompt tokens.
    #[arg(long)]
    prompt: Option<String>,
    /// Output tokens; with the prompt at most the plan's context.
    #[arg(long)]
    output_tokens: Option<u64>,
    /// Sample at this temperature instead of taking the most probable token.
    #[arg(long)]
    temperature: Option<f32>,
    /// Sample from so many of the most probable tokens.
    #[arg(long, requires = "temperature")]
    top_k: Option<usize>,
    /// Sample from the most probable tokens that together have this probability.
    #[arg(long, requires = "temperature")]
    top_p: Option<f32>,
    /// Seed of sampling and of random prompts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the trace, task by task.
    #[arg(long)]
    trace: Option<PathBuf>,
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    let planned = Planned::read(&arguments.plan)?;
    let checkpoint = Checkpoint::open(&arguments.model_dir).or_input()?;
    let text = arguments.prompt.as_ref().map(|text| Text::new(&arguments, text, &planned)).transpose()?;
    let load = &planned.plan.workload;
    let prompts = match &text {
        Some(text) => vec![text.tokens.clone()],
        None => measure::random_prompts(&planned.model, load.batch, load.prompt_tokens, arguments.seed),
    };
    let output_tokens = arguments.output_tokens.unwrap_or(load.output_tokens);
    let mut session = Session::new(planned.setup()?, &checkpoint).or_input()?;
    let mut printed = Printed { text: text.as_ref(), tokens: Vec::new(), shown: 0, silent: json };
    let generation = session
        .generate(&prompts, output_tokens, sampling(&arguments), |tokens| printed.show(tokens))
        .or_input()?;
    if let Some(path) = &arguments.trace {
        generation.trace.write(path).or_failed()?;
    }
    let rates = Rates::of(&generation.trace, &planned.machine, planned.plan.formats.weights);
    match json {
        true => outln!("{}", json!({"tokens": generation.tokens, "rates": rates})),
        false => {
            if text.is_some() {
                outln!("");
            }
            let sizes = (prompts.len() as u64, prompts[0].len() as u64);
            let load = Workload { batch: sizes.0, prompt_tokens: sizes.1, output_tokens, speculation: None };
            out!("{}{rates}", planned.heading_of(&load));
        }
    }
    Ok(())
}

fn sampling(arguments: &Arguments) -> Sampling {
    match arguments.temperature {
        None => Sampling::Greedy,
        Some(temperature) => Sampling::Random {
            temperature,
            top_k: arguments.top_k,
            top_p: arguments.top_p,
            seed: arguments.seed,
        },
    }
}

/// A prompt in words.
struct Text {
    tokenizer: Tokenizer,
    tokens: Vec<u32>,
}

impl Text {
    fn new(arguments: &Arguments, text: &str, planned: &Planned) -> Outcome<Self> {
        let tokenizer = Tokenizer::open(&arguments.model_dir).or_input()?;
        let tokens = tokenizer.encode(text).or_input()?;
        let most = planned.plan.workload.prompt_tokens;
        if tokens.is_empty() || tokens.len() as u64 > most {
            let count = tokens.len();
            let message =
                format!("--prompt has {count} tokens: the plan is for 1 to {most} (workload.prompt_tokens)");
            return Err(Failure::Input(anyhow!(message)));
        }
        Ok(Self { tokenizer, tokens })
    }
}

/// The text so far. A token may be part of a character, so the whole is decoded and only what is new is printed.
struct Printed<'a> {
    text: Option<&'a Text>,
    tokens: Vec<u32>,
    shown: usize,
    silent: bool,
}

impl Printed<'_> {
    fn show(&mut self, tokens: &[u32]) {
        let (Some(text), false) = (self.text, self.silent) else { return };
        self.tokens.extend(tokens.first());
        let Ok(decoded) = text.tokenizer.decode(&self.tokens) else { return };
        // An unfinished character decodes to U+FFFD: wait for the rest of it.
        let whole = decoded.trim_end_matches('\u{FFFD}');
        if let Some(new) = whole.get(self.shown..) {
            let _ = write!(std::io::stdout(), "{new}").and_then(|()| std::io::stdout().flush());
            self.shown = whole.len().max(self.shown);
        }
    }
}
