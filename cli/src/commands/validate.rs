//! `fulcrum validate PLAN... --model-dir DIR` and `fulcrum validate --endpoint URL --load FILE`

use crate::text::served_comparison;
use crate::text::terminal::{ProgressDisplay, errln, out, outln};
use crate::written::WRITTEN_FILE;
use fulcrum::{
    EndpointDay, Error, OrError, PreparedScenario, ProgressEvent, ResolvedPlan, Result, ServedComparison,
    ValidationOptions, read_scenario,
};
use server::{Endpoint, MeasuredLoad, measure_endpoint};
use std::path::{Path, PathBuf};

/// Run plans for real and compare with what the simulator predicted; or send a load to a server and
/// compare its answers with the simulator.
#[derive(Debug, clap::Args)]
pub struct ValidateArguments {
    /// The plans, all for one machine and one model. With --endpoint, the plan that the server
    /// runs, where it is `fulcrum serve`.
    #[arg(required_unless_present = "endpoint")]
    plans: Vec<PathBuf>,
    /// The model's folder.
    #[arg(long, value_name = "DIR", required_unless_present = "endpoint")]
    model_dir: Option<PathBuf>,
    /// The folder or GGUF file of the draft model, for plans with one.
    #[arg(long, value_name = "DIR", conflicts_with = "endpoint")]
    draft_dir: Option<PathBuf>,
    /// Runs of each plan; medians are compared.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Where to write the results; `fulcrum report` makes a page of them.
    #[arg(short, long, value_hint = WRITTEN_FILE)]
    out: Option<PathBuf>,
    /// Go on behind the plans that an earlier run has measured and kept beside the file of -o.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Run plans for another machine too.
    #[arg(long)]
    anyway: bool,
    /// Write the page at once.
    #[arg(long, value_name = "FILE", value_hint = WRITTEN_FILE)]
    html: Option<PathBuf>,
    /// A server of OpenAI's protocol over HTTP, like http://127.0.0.1:8000/v1, that takes prompts
    /// as tokens: `fulcrum serve`, vLLM, llama-server.
    #[arg(long, value_name = "URL", requires = "load", conflicts_with_all = ["model_dir", "repeats", "out", "html"])]
    endpoint: Option<String>,
    /// The requests to send: those of a scenario for `fulcrum sim`, whose engine is the forecast;
    /// with a plan also a table.
    #[arg(long, value_name = "FILE", requires = "endpoint")]
    load: Option<PathBuf>,
    /// The model's name in requests; the first one that the server tells otherwise.
    #[arg(long, requires = "endpoint")]
    model: Option<String>,
    /// The server's token.
    #[arg(long, requires = "endpoint")]
    token: Option<String>,
    /// Write a table of the requests as they were answered; Parquet where the name ends so.
    #[arg(long, value_name = "FILE", requires = "endpoint", value_hint = WRITTEN_FILE)]
    requests: Option<PathBuf>,
    /// Write the same table for the forecast requests.
    #[arg(long, value_name = "FILE", requires = "endpoint", value_hint = WRITTEN_FILE)]
    forecast: Option<PathBuf>,
}

impl ValidateArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        if let (Some(url), Some(load)) = (&self.endpoint, &self.load) {
            return self.measure(url, load, json);
        }
        let Self { plans, model_dir, draft_dir, repeats, out, resume, anyway, html, .. } = self;
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let model_dir = model_dir.expect("clap requires it without --endpoint");
        let options =
            ValidationOptions { plans, model_dir, draft_dir, repeats, out, resume, anyway, command };
        let display = ProgressDisplay::default();
        let validation = fulcrum::validate(&options, &|event: ProgressEvent<'_>| display.show(event))?;
        if let Some(path) = &html {
            validation.write_html(path).or_failed()?;
        }
        match json {
            true => out!("{}", validation.to_json()),
            false => out!("{}", validation.to_text()),
        }
        Ok(())
    }

    /// Sends a load to a server, and compares its answers with their forecast.
    fn measure(&self, url: &str, load: &Path, json: bool) -> Result {
        let endpoint = Endpoint::new(url, self.token.clone())?;
        let day = match &self.plans[..] {
            [] => EndpointDay::for_scenario(&PreparedScenario::new(&read_scenario(load, &[])?)?)?,
            [plan] => EndpointDay::for_plan(load, &ResolvedPlan::read(plan)?)?,
            _ => return Err(Error::input("--endpoint: one server runs one plan: give one, or none")),
        };
        let display = ProgressDisplay::default();
        let progress = |event: ProgressEvent<'_>| display.show(event);
        let measured = measure_endpoint(&endpoint, &day, self.model.clone(), &progress)?;
        let MeasuredLoad { requests, other_lengths, other_prompts } = measured;
        for (count, what) in [(other_lengths, "answers"), (other_prompts, "prompts")] {
            if count > 0 {
                errln!("warning: {count} {what} have another number of tokens than the forecast");
            }
        }
        let mut compared = ServedComparison::new(requests, day.forecast);
        compared.write(self.requests.as_deref(), self.forecast.as_deref())?;
        match json {
            true => outln!("{}", compared.to_json()),
            false => out!("{}", served_comparison::table(&compared)),
        }
        Ok(())
    }
}
