//! A run with speculative decoding: the plan's model and its draft, each with its own session.

use super::session::{GenerationOptions, TextEnds, run_error};
use super::text_stream::TextStream;
use crate::error::{Error, OrError, Result};
use crate::pipeline::ResolvedPlan;
use executor::{Checkpoint, RunSetup, Session, SpeculativeBatch, SpeculativeSession};
use hwprofiles::Bytes;
use planner::{CostModel, PhasePrograms, StepSpan, Trace};
use sim::{BatchRun, Drafting};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sessions of a plan's model and of its draft.
pub struct DraftedSession<'l> {
    session: SpeculativeSession,
    interrupted: &'l AtomicBool,
}

impl ResolvedPlan {
    /// What the executor needs to run the plan's model and its draft, in this order. The model has
    /// the memory that the draft leaves.
    ///
    /// # Errors
    /// The plan has no draft, or the draft does not fit.
    pub fn drafted_setups(&self) -> Result<[RunSetup; 2]> {
        let Some((placed, draft)) = self.plan.draft.as_ref().zip(self.draft.as_ref()) else {
            return Err(Error::input(
                "the plan has no draft: plan with speculative, or leave --draft-dir out",
            ));
        };
        let model = RunSetup::from_plan(self.machine.clone(), self.model.clone(), &self.plan).or_input()?;
        let machine = placed.leaves(&self.machine);
        let machine =
            machine.ok_or_else(|| Error::input("the draft does not fit into the machine's memory"))?;
        let placement = placed.placement(&self.machine, draft).or_input()?;
        let mut formats = self.plan.formats;
        formats.weights = formats.weights.for_model(draft);
        let draft = RunSetup {
            machine: self.machine.clone(),
            model: draft.clone(),
            formats,
            placement,
            extent: model.extent.for_draft(draft),
            plan: model.plan.clone(),
        };
        Ok([RunSetup { machine, ..model }, draft])
    }

    /// Whether its draft is the model's own MTP module.
    pub fn drafts_with_module(&self) -> bool {
        self.draft.as_ref().is_some_and(|draft| draft.wiring.module_behind.is_some())
    }

    /// The checkpoint of its draft: the MTP module in `model_dir`, or the model in `draft_dir`.
    ///
    /// # Errors
    /// A file is missing or wrong, or there is a `draft_dir` beside a module.
    pub fn draft_checkpoint(&self, model_dir: &Path, draft_dir: Option<&Path>) -> Result<Option<Checkpoint>> {
        match (self.drafts_with_module(), draft_dir) {
            (true, None) => Checkpoint::open_mtp(model_dir).map(Some).or_input(),
            (true, Some(_)) => Err(Error::input(
                "--draft-dir: the plan drafts with the model's own MTP module: leave it out",
            )),
            (false, folder) => folder.map(Checkpoint::open).transpose().or_input(),
        }
    }

    /// The simulator's times of the steps of a measured run, those of the draft among them.
    ///
    /// # Errors
    /// A rate is missing.
    pub(crate) fn predict_steps(&self, measured: &[StepSpan]) -> Result<Trace> {
        let programs = PhasePrograms::lower(&self.machine, &self.model, &self.placement).or_input()?;
        let drafts = self.draft_programs()?;
        let draft = self.draft.as_ref().zip(drafts.as_ref()).map(|(model, programs)| {
            let (cost_model, workload) = (CostModel { model, ..self.cost_model() }, self.plan.workload);
            Drafting { cost_model, programs, chunk: planner::prefill_chunk(&workload), workload }
        });
        let run = BatchRun { draft, ..BatchRun::new(self.cost_model(), &programs, &[]) };
        run.repeat(measured, &self.plan.fingerprint()).or_input()
    }
}

impl<'l> DraftedSession<'l> {
    /// Loads the weights of both checkpoints where `planned` places them.
    ///
    /// # Errors
    /// The plan has no draft, a checkpoint is of another model, or the executor cannot run one of
    /// them.
    pub fn new(
        planned: &ResolvedPlan,
        checkpoint: &Checkpoint,
        draft: &Checkpoint,
        interrupted: &'l AtomicBool,
    ) -> Result<Self> {
        let [ours, theirs] = planned.drafted_setups()?;
        let session = |setup, checkpoint| Session::new(setup, checkpoint).map_err(run_error);
        let sessions = SpeculativeSession::new(session(ours, checkpoint)?, session(theirs, draft)?);
        Ok(Self { session: sessions.map_err(run_error)?, interrupted })
    }

    /// Bytes allocated in each of the machine's memories, by index.
    pub(crate) fn memory_used(&self) -> Vec<Bytes> {
        let [model, draft] = [self.session.model(), self.session.draft()].map(Session::memory_used);
        model.into_iter().zip(draft).map(|(model, draft)| model + draft).collect()
    }

    /// Continues `prompts`, all of one length, until every answer has its tokens; a single prompt
    /// also until `ends` end its answer. `on_token` hears the tokens of the first answer.
    ///
    /// # Errors
    /// The prompts do not fit the plan, tasks are to be recorded, or a device fails.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        options: GenerationOptions,
        ends: Option<TextEnds<'_>>,
        mut on_token: impl FnMut(u32),
    ) -> Result<SpeculativeBatch> {
        let GenerationOptions { output_tokens, sampling, record_tasks, .. } = options;
        if record_tasks {
            return Err(Error::input(
                "--trace lists the tasks of one model: leave it out of a run with a draft",
            ));
        }
        let mut ends = ends.map(|ends| (TextStream::new(ends.tokenizer, ends.stops), ends.tokens));
        let mut ended = false;
        let interrupted = self.interrupted;
        let heard = |index: usize, token: u32| {
            // The model may verify tokens behind the one that ends the answer.
            if index == 0 && !ended {
                on_token(token);
                if let Some((stream, end_tokens)) = &mut ends {
                    stream.add(token);
                    ended = stream.is_stopped() || end_tokens.contains(&token);
                }
            }
            ended || interrupted.load(Ordering::Acquire)
        };
        self.session.generate_until(prompts, output_tokens, sampling, heard).map_err(run_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{parse_scenario, plan};
    use crate::run::{init_model, random_prompts};
    use executor::Sampling;
    use scenarios::Model;

    #[test]
    fn a_plan_with_a_draft_runs_and_has_the_tokens_of_a_plan_without() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The draft has the same width and few of the layers, so that it is cheaper.
        let tiny = Model::preset("fulcrum-tiny").expect("a preset");
        let deep = Model { name: "deep".into(), layers: 12 * tiny.layers, ..tiny.clone() };
        let [weights, draft] = ["model", "draft"].map(|name| folder.path().join(name));
        init_model(&deep, &weights, 4).expect("written");
        init_model(&tiny, &draft, 4).expect("written");
        let planned = |speculative: &str| {
            let scenario = format!(
                "{{machine: example-loopback, model: {:?}, dtype: {{weights: f32, kv: f32}}{speculative},
                 workload: {{batch: 2, prompt_tokens: 8, output_tokens: 12}}}}",
                weights.display().to_string()
            );
            plan(&parse_scenario(&scenario).expect("valid")).expect("a plan")
        };
        let plain = planned("");
        let drafted = planned(", speculative: {draft: fulcrum-tiny, tokens: 3, acceptance: 0.95}");
        assert!(drafted.plan.draft.is_some(), "a draft that is nearly always right is worth it");
        let [checkpoint, draft] = [&weights, &draft].map(|path| Checkpoint::open(path).expect("it opens"));
        let prompts = random_prompts(&plain.model, 2, 8, 5);
        let mut session = Session::new(plain.setup().expect("no draft"), &checkpoint).expect("it fits");
        let expected = session.generate(&prompts, 12, Sampling::Greedy, |_| {}).expect("it runs").tokens;
        let interrupted = AtomicBool::new(false);
        let mut live = DraftedSession::new(&drafted, &checkpoint, &draft, &interrupted).expect("it fits");
        let options = GenerationOptions {
            output_tokens: 12,
            sampling: Sampling::Greedy,
            record_tasks: false,
            prepares: false,
        };
        let mut heard = Vec::new();
        let made = live.generate(&prompts, options, None, |token| heard.push(token)).expect("it runs");
        assert_eq!(made.generated.tokens, expected);
        assert_eq!(heard, expected[0]);
        assert!(made.accepted <= made.proposed && made.proposed > 0);
        assert!(drafted.setup().is_err() && plain.drafted_setups().is_err());
    }
}
