//! `fulcrum run PLAN --model-dir DIR`

use crate::text::interrupt::interrupt_flag;
use crate::text::plan;
use crate::text::printed_answer::PrintedAnswer;
use crate::text::served_comparison;
use crate::text::terminal::{ProgressDisplay, errln, out, outln};
use crate::written::WRITTEN_FILE;
use fulcrum::{
    AnswerFile, BatchDefaults, BatchJob, BatchRequest, Checkpoint, DraftedSession, Error, GenerationOptions,
    GenerationResult, LiveOptions, LiveSession, OrError, ProgressEvent, ProgressFn, RequestDay, ResolvedPlan,
    Result, Sampling, ServedComparison, SpeculativeBatch, TextEnds, Tokenizer, answer_line, check_request,
    random_prompts, read_batch, require_this_host,
};
use hwprofiles::{AtomicFile, is_stream};
use reports::StepRates;
use scenarios::Workload;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Run a plan on a real model: continue a text, answer a file of requests, or serve requests that
/// come and go.
#[derive(Debug, clap::Args)]
pub struct RunArguments {
    /// The plan.
    plan: PathBuf,
    /// The model's folder (config.json, safetensors, tokenizer.json), or a GGUF file.
    #[arg(long, value_name = "DIR")]
    model_dir: PathBuf,
    /// The folder or GGUF file of the draft model, for a plan with one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["batch", "serve", "trace", "replan"])]
    draft_dir: Option<PathBuf>,
    /// Continue this text, as a batch of one, instead of random tokens; at most the plan's prompt
    /// tokens.
    #[arg(long, conflicts_with_all = ["batch", "serve"])]
    prompt: Option<String>,
    /// Answer the requests of a file, one JSON object a line: prompt or tokens, max_tokens, stop,
    /// seed, temperature, top_k, top_p.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["serve", "trace"])]
    batch: Option<PathBuf>,
    /// Where to write their answers, a line for each in the same order; stdout otherwise.
    #[arg(short, long, requires = "batch", value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// Go on with --batch where an earlier run was stopped: its answers are beside the file of -o.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Serve requests as they come, beside what is forecast of them: those of a scenario for
    /// `fulcrum sim`, or a table.
    #[arg(long, value_name = "FILE", conflicts_with = "trace")]
    serve: Option<PathBuf>,
    /// Write a table of the requests served, a line for each, as `fulcrum sim` does; Parquet where
    /// the name ends so.
    #[arg(long, requires = "serve", value_hint = WRITTEN_FILE)]
    requests: Option<PathBuf>,
    /// Write the same table for the forecast requests.
    #[arg(long, requires = "serve", value_hint = WRITTEN_FILE)]
    forecast: Option<PathBuf>,
    /// Run the plan even though it is for another machine.
    #[arg(long)]
    anyway: bool,
    /// Follow another placement when a device becomes slower than planned and that is worth what
    /// must be moved.
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
    #[arg(long, value_hint = WRITTEN_FILE)]
    trace: Option<PathBuf>,
}

impl RunArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let planned = ResolvedPlan::read(&self.plan)?;
        let checkpoint = Checkpoint::open(&self.model_dir).or_input()?;
        let display = ProgressDisplay::default();
        let progress = |event: ProgressEvent<'_>| display.show(event);
        require_this_host(&planned, self.anyway, &progress)
            .map_err(|error| error.within(&self.plan.display().to_string()))?;
        self.sampling().check().or_input()?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::input("--stop is empty: a text is wanted"));
        }
        let interrupted = interrupt_flag();
        let job = RunJob {
            arguments: &self,
            planned: &planned,
            checkpoint: &checkpoint,
            interrupted: &interrupted,
            progress: &progress,
            json,
        };
        match (&self.batch, &self.serve, &self.prompt) {
            (Some(file), ..) => job.answer_file(file),
            (_, Some(file), _) => job.serve(file),
            (.., Some(text)) => job.continue_text(text),
            _ => job.continue_random_prompts(),
        }
    }

    fn sampling(&self) -> Sampling {
        let &Self { temperature, top_k, top_p, seed, .. } = self;
        match temperature {
            None => Sampling::Greedy,
            Some(temperature) => Sampling::Random { temperature, top_k, top_p, seed },
        }
    }
}

/// A run and everything that it is made of.
struct RunJob<'j> {
    arguments: &'j RunArguments,
    planned: &'j ResolvedPlan,
    checkpoint: &'j Checkpoint,
    interrupted: &'j AtomicBool,
    progress: &'j ProgressFn<'j>,
    json: bool,
}

/// How many prompts were continued, and how long they and their answers are.
struct RunSize {
    batch: u64,
    prompt_tokens: u64,
    output_tokens: u64,
}

impl<'j> RunJob<'j> {
    fn session(&self) -> Result<LiveSession<'j>> {
        let Self { interrupted, progress, .. } = *self;
        let options = LiveOptions { replan: self.arguments.replan, interrupted, progress };
        LiveSession::new(self.planned, self.checkpoint, options)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The tokens that end an answer.
    fn end_tokens(&self) -> Result<Vec<u32>> {
        match self.arguments.ignore_eos {
            true => Ok(vec![]),
            false => self.checkpoint.end_of_text().or_input(),
        }
    }

    fn output_tokens(&self) -> u64 {
        self.arguments.output_tokens.unwrap_or(self.planned.plan.workload.output_tokens)
    }

    /// Continues the plan's batch of random prompts.
    fn continue_random_prompts(&self) -> Result {
        let load = &self.planned.plan.workload;
        let seed = self.arguments.seed;
        let prompts = random_prompts(&self.planned.model, load.batch, load.prompt_tokens, seed);
        self.generate(&prompts, None, None)
    }

    fn continue_text(&self, text: &str) -> Result {
        let tokenizer = Tokenizer::open(&self.arguments.model_dir).or_input()?;
        let prompt = tokenizer.encode(text).or_input()?;
        let (count, most) = (prompt.len() as u64, self.planned.plan.workload.prompt_tokens);
        if count == 0 || count > most {
            return Err(Error::input(format!(
                "--prompt has {count} tokens: the plan is for 1 to {most} (workload.prompt_tokens)"
            )));
        }
        let ends = self.end_tokens()?;
        let stops = &self.arguments.stop;
        let mut printed = PrintedAnswer::new(&tokenizer, stops, ends.clone(), !self.json);
        let drafts = self.arguments.draft_dir.is_some() || self.planned.drafts_with_module();
        if self.arguments.trace.is_some() || drafts {
            let ends = TextEnds { tokenizer: &tokenizer, stops, tokens: ends };
            return self.generate(&[prompt], Some(ends), Some(printed));
        }
        let (output_tokens, sampling) = (self.output_tokens(), self.arguments.sampling());
        let request = BatchRequest { prompt, output_tokens, stops: stops.clone(), sampling };
        check_request(self.planned, &request, &ends)?;
        let mut live = self.session()?;
        let requests = [request];
        let mut answered =
            live.answer(&requests, &ends, Some(&tokenizer), |token| printed.add(token), |_| ())?;
        answered.check()?;
        let Some(answer) = answered.answers.first() else { return self.check_whole(0, "tokens") };
        let rates = self.planned.step_rates(&answered.trace(self.planned))?;
        let output_tokens = answer.tokens.len() as u64;
        let size = RunSize { batch: 1, prompt_tokens: count, output_tokens };
        let numbers = json!({"tokens": [answer.tokens], "rates": rates});
        self.conclude(Some(printed), size, numbers, &rates)
    }

    /// Continues prompts of one length, with a trace where one is wanted.
    fn generate(
        &self,
        prompts: &[Vec<u32>],
        ends: Option<TextEnds<'_>>,
        mut printed: Option<PrintedAnswer<'_>>,
    ) -> Result {
        let record_tasks = self.arguments.trace.is_some();
        let (output_tokens, sampling) = (self.output_tokens(), self.arguments.sampling());
        let options = GenerationOptions { output_tokens, sampling, record_tasks, prepares: ends.is_none() };
        let on_token = |token| printed.iter_mut().for_each(|printed| printed.add(token));
        let (model_dir, draft_dir) = (&self.arguments.model_dir, self.arguments.draft_dir.as_deref());
        if let Some(draft) = self.planned.draft_checkpoint(model_dir, draft_dir)? {
            let mut live = DraftedSession::new(self.planned, self.checkpoint, &draft, self.interrupted)?;
            let made = live.generate(prompts, options, ends, on_token)?;
            return self.conclude_drafted(prompts, &made, printed);
        }
        let mut live = self.session()?;
        let generation = live.generate(prompts, options, ends, on_token)?;
        if let Some(path) = &self.arguments.trace {
            generation.trace.write(path).or_failed()?;
        }
        let rates = match record_tasks {
            true => self.planned.rates(&generation.trace),
            false => self.planned.step_rates(&generation.trace)?,
        };
        let size = RunSize {
            batch: prompts.len() as u64,
            prompt_tokens: prompts[0].len() as u64,
            output_tokens: generation.tokens[0].len() as u64,
        };
        self.conclude(printed, size, json!({"tokens": generation.tokens, "rates": rates}), &rates)
    }

    /// Prints what came of a run with a draft.
    fn conclude_drafted(
        &self,
        prompts: &[Vec<u32>],
        SpeculativeBatch { generated, proposed, accepted }: &SpeculativeBatch,
        printed: Option<PrintedAnswer<'_>>,
    ) -> Result {
        let rates = self.planned.step_rates(&generated.trace)?;
        let size = RunSize {
            batch: prompts.len() as u64,
            prompt_tokens: prompts[0].len() as u64,
            output_tokens: generated.tokens[0].len() as u64,
        };
        let draft = json!({"proposed": proposed, "accepted": accepted});
        let numbers = json!({"tokens": generated.tokens, "rates": rates, "draft": draft});
        self.conclude(printed, size, numbers, &rates)?;
        if !self.json && *proposed > 0 {
            let share = 100.0 * *accepted as f64 / *proposed as f64;
            outln!("draft: {accepted} of {proposed} proposed tokens accepted ({share:.0} %)");
        }
        Ok(())
    }

    /// Prints what came of a run.
    fn conclude(
        &self,
        printed: Option<PrintedAnswer<'_>>,
        RunSize { batch, prompt_tokens, output_tokens }: RunSize,
        mut numbers: Value,
        rates: &StepRates,
    ) -> Result {
        if let Some(printed) = printed {
            let (text, reason) = printed.finish(self.is_interrupted());
            numbers["text"] = json!(text);
            numbers["finish_reason"] = json!(reason);
        }
        match self.json {
            true => outln!("{numbers}"),
            false => {
                let load = Workload { batch, prompt_tokens, output_tokens, speculation: None };
                out!("{}{rates}", plan::heading_of_load(self.planned, &load));
            }
        }
        self.check_whole(output_tokens, "tokens")
    }

    /// Fails where the run was interrupted.
    fn check_whole(&self, done: u64, what: &str) -> Result {
        match self.is_interrupted() {
            true => Err(Error::failed(format!("interrupted after {done} {what}"))),
            false => Ok(()),
        }
    }

    /// Answers a file of requests.
    fn answer_file(&self, file: &Path) -> Result {
        let folder = &self.arguments.model_dir;
        let has_words = folder.is_file() || folder.join("tokenizer.json").is_file();
        let tokenizer = has_words.then(|| Tokenizer::open(folder)).transpose().or_input()?;
        let defaults = BatchDefaults {
            tokenizer: tokenizer.as_ref(),
            output_tokens: self.output_tokens(),
            stops: &self.arguments.stop,
            sampling: self.arguments.sampling(),
            most_tokens: self.planned.plan.extent().context + 1,
            vocab: self.planned.model.vocab,
        };
        let requests = read_batch(file, &defaults)?;
        let ends = self.end_tokens()?;
        let job = BatchJob { planned: self.planned, model_dir: folder, requests: &requests, ends: &ends };
        let mut kept = self.answer_target(&job)?;
        let places: Vec<usize> = {
            let answered = kept.answered(requests.len());
            (0..requests.len()).filter(|&place| !answered[place]).collect()
        };
        let asked: Vec<_> = places.iter().map(|&place| requests[place].clone()).collect();
        let mut live = self.session()?;
        let mut unwritten = None;
        let on_answer = |answer: &GenerationResult| {
            let place = places[answer.id as usize];
            let line = answer_line(Some(answer), &requests[place], tokenizer.as_ref());
            if let Err(error) = kept.add(place, line) {
                // An answer that nobody can read is worth no more time.
                unwritten.get_or_insert(error);
                self.interrupted.store(true, Ordering::Release);
            }
        };
        let mut answered = live.answer(&asked, &ends, tokenizer.as_ref(), |_| (), on_answer)?;
        unwritten.map_or(Ok(()), Err)?;
        let rest: BTreeMap<usize, &GenerationResult> =
            answered.answers.iter().map(|answer| (places[answer.id as usize], answer)).collect();
        let line = |place| answer_line(rest.get(&place).copied(), &requests[place], tokenizer.as_ref());
        kept.publish(requests.len(), line)?;
        errln!("{}", answered.summary());
        answered.check()?;
        self.check_whole(answered.whole(), "answers")
    }

    /// Where the answers of a file of requests go.
    fn answer_target(&self, job: &BatchJob<'_>) -> Result<AnswerFile<'static>> {
        match &self.arguments.out {
            None => Ok(AnswerFile::streamed(|line| {
                outln!("{line}");
                Ok(())
            })),
            Some(out) if is_stream(out) && !self.arguments.resume => {
                let mut to = AtomicFile::create(out).or_failed()?;
                Ok(AnswerFile::streamed(move |line| {
                    writeln!(to, "{line}").and_then(|()| to.flush()).or_failed()
                }))
            }
            Some(out) => AnswerFile::open(out, job, self.arguments.resume),
        }
    }

    /// Serves requests as they come, beside their forecast.
    fn serve(&self, file: &Path) -> Result {
        let day = RequestDay::read(file, self.planned)?;
        let forecast = day.forecast(self.planned)?;
        let mut live = self.session()?;
        let measured = day.run(&mut live, self.arguments.sampling())?;
        let done = measured.len() as u64;
        let mut compared = ServedComparison::new(measured, forecast);
        let Self { arguments: RunArguments { requests, forecast, .. }, .. } = self;
        compared.write(requests.as_deref(), forecast.as_deref())?;
        match self.json {
            true => outln!("{}", compared.to_json()),
            false => {
                out!("{}{}", plan::heading(self.planned), served_comparison::table(&compared));
            }
        }
        self.check_whole(done, "requests")
    }
}
