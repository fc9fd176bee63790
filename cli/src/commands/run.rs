//! `fulcrum run PLAN --model-dir DIR`

use crate::asked::{self, Asked, Habits};
use crate::exit::{Failure, Outcome, Sort};
use crate::lines::Lines;
use crate::live::Live;
use crate::measure;
use crate::pipeline::Planned;
use crate::repeat::{Compared, Day};
use crate::speech::Speech;
use crate::spoken::Spoken;
use crate::terminal::{out, outln};
use anyhow::anyhow;
use executor::{Batching, Checkpoint, Sampling, Session, Tokenizer};
use planner::{Programs, Trace};
use reports::Rates;
use scenarios::{Scheduler, Workload};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a plan on a real model: continue a text, answer a file of requests, or serve requests that come and go.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The plan.
    plan: PathBuf,
    /// The model's folder (config.json, safetensors, tokenizer.json), or a GGUF file.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// Continue this text, as a batch of one, instead of random tokens; at most the plan's prompt tokens.
    #[arg(long, conflicts_with_all = ["batch", "serve"])]
    prompt: Option<String>,
    /// Answer the requests of a file, one JSON object a line: prompt or tokens, max_tokens, stop, seed, temperature, top_k, top_p.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["serve", "trace"])]
    batch: Option<PathBuf>,
    /// Where to write their answers, a line for each in the same order; stdout otherwise.
    #[arg(short, long, requires = "batch")]
    out: Option<PathBuf>,
    /// Serve requests as they come, beside what is forecast of them: those of a scenario for `fulcrum sim`, or a table.
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    serve: Option<PathBuf>,
    /// Write a table of the requests served, a line for each, as `fulcrum sim` does; Parquet where the name ends so.
    #[arg(long, requires = "serve")]
    requests: Option<PathBuf>,
    /// The same of what was forecast.
    #[arg(long, requires = "serve")]
    forecast: Option<PathBuf>,
    /// Follow another placement when a device becomes slower than planned and that is worth what must be moved.
    #[arg(long)]
    replan: bool,
    /// Output tokens, at most; with the prompt at most the plan's context.
    #[arg(long)]
    output_tokens: Option<u64>,
    /// End an answer before this text; several times for several.
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on behind an end of text.
    #[arg(long)]
    ignore_eos: bool,
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
    sampling(&arguments).check().or_input()?;
    if arguments.stop.iter().any(String::is_empty) {
        return Err(Failure::Input(anyhow!("--stop is empty: a text is wanted")));
    }
    let interrupted = kernels::interrupts();
    let job = Job { arguments: &arguments, planned: &planned, checkpoint: &checkpoint, interrupted, json };
    match (&arguments.batch, &arguments.serve, &arguments.prompt) {
        (Some(file), ..) => job.answer(file),
        (_, Some(file), _) => job.serve(&Day::read(file, &planned)?),
        (.., Some(text)) => job.continue_text(text),
        _ => job.random(),
    }
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

/// What a run is made of.
struct Job<'j> {
    arguments: &'j Arguments,
    planned: &'j Planned,
    checkpoint: &'j Checkpoint,
    interrupted: &'static AtomicBool,
    json: bool,
}

impl<'j> Job<'j> {
    fn live(&self) -> Outcome<Live<'j>> {
        let session = Session::new(self.planned.setup()?, self.checkpoint).map_err(Failure::of_run)?;
        let (planned, checkpoint, interrupted) = (self.planned, self.checkpoint, self.interrupted);
        Ok(Live { planned, checkpoint, session, replans: self.arguments.replan, interrupted })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The tokens that end an answer.
    fn end_of_text(&self) -> Outcome<Vec<u32>> {
        if self.arguments.ignore_eos { Ok(vec![]) } else { self.checkpoint.end_of_text().or_input() }
    }

    fn output_tokens(&self) -> u64 {
        self.arguments.output_tokens.unwrap_or(self.planned.plan.workload.output_tokens)
    }

    /// Passes made up of requests that are all there.
    fn batching(&self) -> Batching {
        let extent = self.planned.plan.extent();
        Batching {
            max_num_seqs: extent.batch,
            max_num_batched_tokens: extent.batch * extent.chunk,
            prefill_first: false,
            scheduler: Scheduler::Fcfs,
        }
    }

    /// The plan's batch of random prompts, or one text of which a trace is wanted.
    fn generate(&self, prompts: &[Vec<u32>], mut spoken: Spoken<'_>) -> Outcome {
        let mut live = self.live()?;
        let stop = spoken.ends();
        let tokenizer = spoken.tokenizer();
        let mut heard = tokenizer.map(|tokenizer| Speech::new(tokenizer, &self.arguments.stop));
        let ends = |tokens: &[u32]| {
            if let (Some(heard), [token]) = (&mut heard, tokens) {
                heard.add(*token);
                return heard.is_stopped() || stop.contains(token) || self.is_interrupted();
            }
            self.is_interrupted()
        };
        let wanted = self.output_tokens();
        let tasks = self.arguments.trace.is_some();
        let generation = live
            .session
            .generate_until(prompts, wanted, sampling(self.arguments), tasks, ends, |tokens| {
                spoken.add(tokens[0])
            })
            .map_err(Failure::of_run)?;
        live.say_passes();
        if let Some(path) = &self.arguments.trace {
            generation.trace.write(path).or_failed()?;
        }
        let rates = match tasks {
            true => self.planned.rates(&generation.trace),
            false => self.rates(&generation.trace)?,
        };
        let sizes = (prompts.len() as u64, prompts[0].len() as u64, generation.tokens[0].len() as u64);
        self.conclude(spoken, sizes, json!({"tokens": generation.tokens, "rates": rates}), &rates)
    }

    /// The rates of a run of which only the steps were written down.
    fn rates(&self, trace: &Trace) -> Outcome<Rates> {
        let Planned { machine, model, placement, .. } = self.planned;
        let programs = Programs::lower(machine, model, placement).or_input()?;
        Rates::of_steps(trace, self.planned.pricing(), &programs).or_input()
    }

    /// Prints what came of `batch` prompts of so many tokens, and of outputs of so many.
    fn conclude(
        &self,
        spoken: Spoken<'_>,
        (batch, prompt_tokens, output_tokens): (u64, u64, u64),
        mut numbers: serde_json::Value,
        rates: &Rates,
    ) -> Outcome {
        let interrupted = self.is_interrupted();
        if let Some((text, finish)) = spoken.finish(interrupted) {
            numbers["text"] = json!(text);
            numbers["finish_reason"] = json!(finish);
        }
        match self.json {
            true => outln!("{numbers}"),
            false => {
                let load = Workload { batch, prompt_tokens, output_tokens, speculation: None };
                out!("{}{rates}", self.planned.heading_of(&load));
            }
        }
        self.whole(output_tokens, "tokens")
    }

    /// Refuses to call a run whole that was ended before.
    fn whole(&self, done: u64, what: &str) -> Outcome {
        match self.is_interrupted() {
            true => Err(Failure::Failed(anyhow!("interrupted after {done} {what}"))),
            false => Ok(()),
        }
    }

    fn random(&self) -> Outcome {
        let load = &self.planned.plan.workload;
        let prompts =
            measure::random_prompts(&self.planned.model, load.batch, load.prompt_tokens, self.arguments.seed);
        self.generate(&prompts, Spoken::silent())
    }

    fn continue_text(&self, text: &str) -> Outcome {
        let tokenizer = Tokenizer::open(&self.arguments.model_dir).or_input()?;
        let prompt = tokenizer.encode(text).or_input()?;
        let (count, most) = (prompt.len() as u64, self.planned.plan.workload.prompt_tokens);
        if count == 0 || count > most {
            let message =
                format!("--prompt has {count} tokens: the plan is for 1 to {most} (workload.prompt_tokens)");
            return Err(Failure::Input(anyhow!(message)));
        }
        let ends = self.end_of_text()?;
        let mut spoken = Spoken::new(&tokenizer, &self.arguments.stop, ends.clone(), !self.json);
        if self.arguments.trace.is_some() {
            return self.generate(&[prompt], spoken);
        }
        let asked = Asked {
            prompt,
            output_tokens: self.output_tokens(),
            stops: self.arguments.stop.clone(),
            sampling: sampling(self.arguments),
        };
        executor::check_request(
            &Lines::request(0, &asked, &ends),
            self.planned.plan.extent().context,
            self.planned.model.vocab,
        )
        .or_input()?;
        let mut live = self.live()?;
        let asked = [asked];
        let lines = Lines::new(&asked, &ends, Some(&tokenizer));
        let mut service = live.session.service(self.batching(), lines).or_input()?;
        let (answered, outcome) = Lines::run(&mut live, &mut service, |token| spoken.add(token));
        outcome?;
        let Some(answer) = answered.answers.first() else { return self.whole(0, "tokens") };
        let rates = self.rates(&answered.trace(self.planned))?;
        let sizes = (1, count, answer.tokens.len() as u64);
        self.conclude(spoken, sizes, json!({"tokens": [answer.tokens], "rates": rates}), &rates)
    }

    fn answer(&self, file: &std::path::Path) -> Outcome {
        let folder = &self.arguments.model_dir;
        let has_words = folder.is_file() || folder.join("tokenizer.json").is_file();
        let tokenizer = has_words.then(|| Tokenizer::open(folder)).transpose().or_input()?;
        let extent = self.planned.plan.extent();
        let habits = Habits {
            tokenizer: tokenizer.as_ref(),
            output_tokens: self.output_tokens(),
            stops: &self.arguments.stop,
            sampling: sampling(self.arguments),
            most: extent.context + 1,
            vocab: self.planned.model.vocab,
        };
        let asked = asked::read(file, &habits)?;
        let ends = self.end_of_text()?;
        let mut live = self.live()?;
        let lines = Lines::new(&asked, &ends, tokenizer.as_ref());
        let mut service = live.session.service(self.batching(), lines).or_input()?;
        let (answered, outcome) = Lines::run(&mut live, &mut service, |_| ());
        let text = answered.to_jsonl(&asked, tokenizer.as_ref());
        match &self.arguments.out {
            Some(path) => hwprofiles::write_atomically(path, text).or_failed()?,
            None => out!("{text}"),
        }
        crate::terminal::errln!("{}", answered.summary());
        outcome?;
        self.whole(answered.whole(), "answers")
    }

    fn serve(&self, day: &Day) -> Outcome {
        let forecast = day.forecast(self.planned)?;
        let mut live = self.live()?;
        let measured = day.run(&mut live, sampling(self.arguments))?;
        let done = measured.len() as u64;
        let mut compared = Compared::of(measured, forecast);
        compared.write(self.arguments.requests.as_deref(), self.arguments.forecast.as_deref())?;
        match self.json {
            true => outln!("{}", compared.json()),
            false => out!("{}{compared}", self.planned.heading()),
        }
        self.whole(done, "requests")
    }
}
