//! Speculative decoding (Leviathan, Kalman, Matias, ICML 2023): a draft model proposes tokens, and
//! the model verifies them in one step.
//!
//! A proposed token is kept if it is the token that the model chooses at its place. So the tokens
//! are those of a run without a draft, greedy or not: the sampler of a sequence draws one random
//! number for each token of the sequence, and none behind a rejected one.
//!
//! Both models have their own session. A rejected token stays in both KV caches until the next
//! token of its position overwrites it. A recurrence of the model takes the tokens of a step into
//! its state only with the next step, when it is known which of them stay.
//!
//! The draft may be the model's own MTP module. Its row i joins the model's hidden state of token
//! i with the embedding of token i + 1, and predicts token i + 2. So its sequences begin with the
//! second token, its prompts follow the model's chunk by chunk, and what the model has verified
//! enters its cache again with the model's hidden states. To propose further tokens it reads its
//! own hidden states.

use crate::batch::pass::{Pass, ScheduledSequence, slots_of};
use crate::batch::sampling::{Sampler, Sampling};
use crate::batch::sequence::SlotSequence;
use crate::error::ExecutorError;
use crate::run::shared::{SharedRun, TaskTimes};
use crate::serve::hidden_states::HiddenStates;
use crate::serve::request::GeneratedBatch;
use crate::serve::session::Session;
use kernels::KernelError;
use planner::{Recorder, StepSpan, Trace};
use scenarios::{Model, Phase, Step, Workload};
use std::time::Instant;

/// A model and a draft that proposes tokens for it, both ready to run.
pub struct SpeculativeSession {
    model: Session,
    draft: Session,
}

/// What a speculative run generated.
#[derive(Debug, Clone)]
pub struct SpeculativeBatch {
    /// The tokens, and the steps of both models. The trace lists no tasks.
    pub generated: GeneratedBatch,
    /// Tokens that the draft proposed and the model verified.
    pub proposed: u64,
    /// How many of them the model accepted.
    pub accepted: u64,
}

/// A sequence in both sessions.
struct DraftedSequence {
    /// Its slot in the model's session, and in the draft's.
    slots: [usize; 2],
    /// Verified tokens, the prompt included.
    tokens: Vec<u32>,
    /// Its length at the end.
    length: usize,
    /// Rows in the draft's cache that are verified.
    drafted: usize,
    /// Tokens that the draft has proposed and the model has not verified.
    proposed: Vec<u32>,
}

impl DraftedSequence {
    fn is_done(&self) -> bool {
        self.tokens.len() >= self.length
    }
}

/// The passes of one run of one session.
struct Played {
    sequences: Vec<SlotSequence>,
    /// Start and end of each pass, in nanoseconds since the run's origin.
    spans: Vec<(u64, u64)>,
}

impl SpeculativeSession {
    /// A session of `model` with `draft`. The model's extent says how many tokens are verified in
    /// one step: `step_tokens`, one more than the draft proposes.
    ///
    /// # Errors
    /// [`ExecutorError::Refused`] if the two have different vocabularies, if the extent of either
    /// is too small, or if a layer has a window, or a layer of the draft a state: then a rejected
    /// token could not be taken back. An MTP module of another model, and one on a GPU.
    pub fn new(model: Session, draft: Session) -> Result<Self, ExecutorError> {
        let [ours, theirs] = [&model, &draft].map(|session| &session.setup().model);
        if ours.vocab != theirs.vocab {
            let wanted = format!("{} tokens, as '{}' has", ours.vocab, ours.name);
            let found = format!("'{}' with a vocabulary of {}", theirs.name, theirs.vocab);
            return Err(ExecutorError::refused("draft", found, wanted));
        }
        let has_window = |model: &Model| model.shapes().iter().any(|shape| shape.wiring.window.is_some());
        if let Some(model) = [ours, theirs].into_iter().find(|model| has_window(model)) {
            let wanted = "layers without a window: it cannot take a rejected token back";
            return Err(ExecutorError::refused("draft", format!("'{}'", model.name), wanted));
        }
        if !theirs.shapes().iter().all(|shape| shape.keeps_everything()) {
            let wanted = "layers without a state: a draft takes back the tokens of several steps";
            return Err(ExecutorError::refused("draft", format!("'{}'", theirs.name), wanted));
        }
        let [ours, theirs] = [&model, &draft].map(|session| session.setup().extent);
        if ours.step_tokens < 2 {
            let wanted = "at least 2: one token and one proposed token";
            return Err(ExecutorError::refused("extent.step_tokens", ours.step_tokens, wanted));
        }
        let needed = ours.for_draft(&draft.setup().model);
        for (key, found, wanted) in [
            ("draft.extent.batch", theirs.batch, needed.batch),
            ("draft.extent.context", theirs.context, needed.context),
            ("draft.extent.step_tokens", theirs.step_tokens, needed.step_tokens),
        ] {
            if found < wanted {
                return Err(ExecutorError::refused(key, found, format!("at least {wanted}")));
            }
        }
        let drafted = Self { model, draft };
        drafted.check_module()?;
        Ok(drafted)
    }

    /// Refuses an MTP module that cannot read the model's hidden states.
    fn check_module(&self) -> Result<(), ExecutorError> {
        if !self.has_module() {
            return Ok(());
        }
        let [model, draft] = [&self.model, &self.draft].map(Session::setup);
        if model.model.mtp_module().map(|module| module.fingerprint()) != Some(draft.model.fingerprint()) {
            let wanted = format!("the module of '{}'", model.model.name);
            return Err(ExecutorError::refused("draft", format!("'{}'", draft.model.name), wanted));
        }
        if let Some(gpu) = &self.draft.engine().gpu {
            let device = &draft.machine.device(gpu.device()).name;
            let wanted = "an MTP module runs on a device of the host: plan it there, or name a draft model";
            return Err(ExecutorError::refused("draft.device", format!("'{device}'"), wanted));
        }
        if draft.extent.chunk < model.extent.chunk {
            let wanted = format!("at least {}", model.extent.chunk);
            return Err(ExecutorError::refused("draft.extent.chunk", draft.extent.chunk, wanted));
        }
        Ok(())
    }

    /// Whether the draft is the model's own MTP module.
    fn has_module(&self) -> bool {
        self.draft.setup().model.wiring.module_behind.is_some()
    }

    /// Tokens of a sequence that come before the draft's first row.
    fn skipped(&self) -> usize {
        usize::from(self.has_module())
    }

    /// The model's session.
    pub fn model(&self) -> &Session {
        &self.model
    }

    /// The draft's session.
    pub fn draft(&self) -> &Session {
        &self.draft
    }

    /// Continues each of `prompts` (of equal length) by `output_tokens` tokens. After each step of
    /// the model, `on_token` gets the index of a prompt and a token, for each new token in order;
    /// the run ends after the step in which it returns true.
    ///
    /// # Errors
    /// As [`Session::generate`]; and random sampling where a GPU chooses the model's tokens, since
    /// it draws random numbers for rejected tokens too.
    pub fn generate_until(
        &mut self,
        prompts: &[Vec<u32>],
        output_tokens: u64,
        sampling: Sampling,
        mut on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<SpeculativeBatch, ExecutorError> {
        let prompt_tokens = self.model.check(prompts, output_tokens)?;
        self.draft.check(prompts, output_tokens)?;
        if sampling != Sampling::Greedy && self.model.chooses_on_gpu() {
            let wanted = "greedy: a GPU draws random numbers for rejected tokens too";
            return Err(ExecutorError::refused("sampling", "random", wanted));
        }
        let origin = Instant::now();
        let mut spans = Vec::new();
        let mut all = self.sequences(prompts, output_tokens);
        let mut slots =
            [self.model.empty_slots(prompts, sampling)?, self.draft.empty_slots(prompts, Sampling::Greedy)?];
        let mut checked = self.read_prompts(&all, prompt_tokens, &mut slots, origin, &mut spans)?;
        let [mut ours, mut theirs] = slots;
        let mut ended = false;
        for (index, sequence) in all.iter_mut().enumerate() {
            sequence.drafted = prompt_tokens as usize - self.skipped();
            sequence.tokens.clone_from(&ours[sequence.slots[0]].tokens);
            ended |= on_token(index, sequence.tokens[prompt_tokens as usize]);
        }
        let (mut proposed, mut accepted) = (0, 0);
        while !ended && all.iter().any(|sequence| !sequence.is_done()) {
            theirs = self.propose(&mut all, theirs, &checked, origin, &mut spans)?;
            let before: Vec<_> = all.iter().map(|sequence| sequence.tokens.len()).collect();
            proposed += all.iter().map(|sequence| sequence.proposed.len() as u64).sum::<u64>();
            (ours, checked) = self.verify(&mut all, ours, origin, &mut spans)?;
            for (index, (sequence, before)) in all.iter().zip(before).enumerate() {
                let new = &sequence.tokens[before..];
                accepted += new.len().saturating_sub(1) as u64;
                ended |= new.iter().fold(false, |ended, &token| ended | on_token(index, token));
            }
        }
        let tokens = all.into_iter().map(|mut it| it.tokens.split_off(prompt_tokens as usize)).collect();
        let trace = self.trace(spans);
        Ok(SpeculativeBatch { generated: GeneratedBatch { tokens, trace }, proposed, accepted })
    }

    fn sequences(&self, prompts: &[Vec<u32>], output_tokens: u64) -> Vec<DraftedSequence> {
        let slots = [&self.model, &self.draft].map(|session| session.slots(prompts.len() as u64));
        let sequence = |(index, prompt): (usize, &Vec<u32>)| DraftedSequence {
            slots: [slots[0][index], slots[1][index]],
            tokens: prompt.clone(),
            length: prompt.len() + output_tokens as usize,
            drafted: 0,
            proposed: vec![],
        };
        prompts.iter().enumerate().map(sequence).collect()
    }

    /// The prompts enter both caches. `slots` are those of the model's session and of the draft's.
    /// Returns the model's last pass.
    fn read_prompts(
        &self,
        all: &[DraftedSequence],
        prompt_tokens: u64,
        slots: &mut [Vec<SlotSequence>; 2],
        origin: Instant,
        spans: &mut Vec<StepSpan>,
    ) -> Result<Pass, ExecutorError> {
        let steps = |session: &Session| {
            let load = Workload::new(all.len() as u64, prompt_tokens, 1);
            planner::steps(&load, session.setup().extent.chunk)
        };
        let [ours, theirs] = slots;
        let [model, draft] = [&self.model, &self.draft].map(steps);
        if !self.has_module() {
            let drafted = self.draft.read_prompt(theirs, &draft, origin, |_| Ok(()))?;
            spans.extend(drafted.into_iter().map(by_draft));
            spans.extend(self.model.read_prompt(ours, &model, origin, |_| Ok(()))?);
            return Ok(last_of(&self.model, &model));
        }
        for sequence in all {
            theirs[sequence.slots[1]].tokens.drain(..self.skipped());
        }
        for &step in &model {
            let pass = self.model.uniform(&step);
            spans.extend(self.model.read_prompt(ours, &[step], origin, |_| Ok(()))?);
            // The last row waits for the token behind the prompt.
            let new_tokens = step.new_tokens.min(prompt_tokens - 1 - step.past_tokens);
            let rows = Step { new_tokens, ..step };
            let states = |_| self.give_model_states(all, &pass, &self.draft.uniform(&rows));
            if new_tokens > 0 {
                let drafted = self.draft.read_prompt(theirs, &[rows], origin, states)?;
                spans.extend(drafted.into_iter().map(by_draft));
            }
        }
        Ok(last_of(&self.model, &model))
    }

    /// Gives `pass` of the module the hidden states of `checked`, the model's last pass.
    fn give_model_states(
        &self,
        all: &[DraftedSequence],
        checked: &Pass,
        pass: &Pass,
    ) -> Result<(), KernelError> {
        let slots = all.iter().map(|sequence| (sequence.slots[0], sequence.slots[1]));
        let states: HiddenStates = self.model.hidden_states(checked)?.moved(slots);
        self.draft.give_hidden_states(pass, &states, 0);
        Ok(())
    }

    /// The draft proposes tokens for every sequence that is not done: as many as a step verifies,
    /// but none that could not be among the output. `checked` is the model's last pass.
    fn propose(
        &mut self,
        all: &mut [DraftedSequence],
        mut slots: Vec<SlotSequence>,
        checked: &Pass,
        origin: Instant,
        spans: &mut Vec<StepSpan>,
    ) -> Result<Vec<SlotSequence>, ExecutorError> {
        let most = self.model.setup().extent.step_tokens as usize - 1;
        let skipped = self.skipped();
        let mut wanted = Vec::new();
        for sequence in all.iter_mut() {
            sequence.proposed.clear();
            // The model itself adds a token to those that it accepts.
            let count = most.min((sequence.length - sequence.tokens.len()).saturating_sub(1));
            slots[sequence.slots[1]].tokens = sequence.tokens[skipped..].to_vec();
            wanted.push(count);
        }
        let rounds = wanted.iter().copied().max().unwrap_or(0);
        let mut passes = Vec::new();
        for round in 0..rounds {
            let entering = all.iter().zip(&wanted).filter(|&(_, &count)| round < count);
            let pass = entering.map(|(sequence, _)| {
                let rows = sequence.tokens.len() - skipped;
                let past = if round == 0 { sequence.drafted } else { rows + round - 1 };
                let new = rows + round - past;
                ScheduledSequence { slot: sequence.slots[1], past, new, logits: 1 }
            });
            passes.push(pass.collect::<Vec<_>>());
        }
        let steps: Vec<_> = passes.iter().map(|pass| mean_step(pass)).collect();
        let passes: Vec<_> = passes.iter().map(|pass| self.draft.pass(Phase::Decode, pass)).collect();
        let states = |round: usize| match round {
            _ if !self.has_module() => Ok(()),
            0 => self.give_model_states(all, checked, &passes[0]),
            _ => {
                let own = self.draft.hidden_states(&passes[round - 1])?;
                self.draft.give_hidden_states(&passes[round], &own, 1);
                Ok(())
            }
        };
        let played = self.draft.play_passes(slots, passes.clone(), origin, states)?;
        let mut slots = played.sequences;
        for (sequence, count) in all.iter_mut().zip(wanted) {
            if count > 0 {
                let rows = sequence.tokens.len() - skipped;
                sequence.proposed = slots[sequence.slots[1]].tokens.split_off(rows);
                // The last proposed token has not entered the cache. Of a module's rows only the
                // first ones have the model's hidden states.
                sequence.drafted = if self.has_module() { rows } else { rows + count - 1 };
            }
        }
        let played = steps.into_iter().zip(played.spans);
        spans.extend(played.map(|(step, (start, end))| by_draft(StepSpan::new(step, start, end))));
        if let Some(last) = passes.last() {
            self.draft.set_last(last);
        }
        Ok(slots)
    }

    /// The model verifies what is proposed, and adds a token to each sequence that is not done.
    /// Returns the sequences and the pass.
    fn verify(
        &self,
        all: &mut [DraftedSequence],
        mut slots: Vec<SlotSequence>,
        origin: Instant,
        spans: &mut Vec<StepSpan>,
    ) -> Result<(Vec<SlotSequence>, Pass), ExecutorError> {
        let mut entering = Vec::new();
        for sequence in all.iter().filter(|sequence| !sequence.is_done()) {
            let slot = &mut slots[sequence.slots[0]];
            slot.tokens.extend(&sequence.proposed);
            slot.proposed = sequence.proposed.len();
            let (past, new) = (sequence.tokens.len() - 1, sequence.proposed.len() + 1);
            entering.push(ScheduledSequence { slot: sequence.slots[0], past, new, logits: new });
        }
        let pass = self.model.pass(Phase::Decode, &entering);
        let played = self.model.play_passes(slots, vec![pass.clone()], origin, |_| Ok(()))?;
        let slots = played.sequences;
        let mut new = 0;
        for sequence in all.iter_mut().filter(|sequence| !sequence.is_done()) {
            let verified = &slots[sequence.slots[0]].tokens;
            new += verified.len() - sequence.tokens.len();
            sequence.tokens.clone_from(verified);
            // The cache holds no token that the model chose instead of a proposed one.
            sequence.drafted = sequence.drafted.min(sequence.tokens.len() - 1);
        }
        spans.extend(played.spans.into_iter().map(|(start, end)| StepSpan {
            tokens: Some(new as f64),
            ..StepSpan::new(mean_step(&entering), start, end)
        }));
        Ok((slots, pass))
    }

    /// The trace of the steps of both models. Time 0 is when the first step began.
    fn trace(&self, spans: Vec<StepSpan>) -> Trace {
        let zero = spans.first().map_or(0, |span| span.start_ns);
        let shifted = spans.into_iter().map(|span| StepSpan {
            start_ns: span.start_ns - zero,
            end_ns: span.end_ns - zero,
            ..span
        });
        self.model.setup().trace(Recorder::Measured, shifted.collect(), vec![])
    }
}

/// A step of the draft, which yields no token.
fn by_draft(span: StepSpan) -> StepSpan {
    StepSpan { draft: true, tokens: Some(0.0), ..span }
}

/// The pass of the last of these steps of a prompt.
fn last_of(session: &Session, steps: &[Step]) -> Pass {
    session.uniform(steps.last().expect("a prompt has a step"))
}

/// The step that these sequences make, each with the mean number of past tokens and the most new
/// ones.
fn mean_step(sequences: &[ScheduledSequence]) -> Step {
    let count = sequences.len().max(1);
    let past = sequences.iter().map(|it| it.past).sum::<usize>() / count;
    let new = sequences.iter().map(|it| it.new).max().unwrap_or(0);
    Step::verify(sequences.len() as u64, new as u64, past as u64)
}

impl Session {
    /// The slots of `sequences` sequences.
    fn slots(&self, sequences: u64) -> Vec<usize> {
        let parts = self.setup().placement.pipelining.micro_batches;
        slots_of(sequences, self.setup().extent.batch, parts).collect()
    }

    /// Slots with the prompts, and a sampler for each.
    fn empty_slots(
        &self,
        prompts: &[Vec<u32>],
        sampling: Sampling,
    ) -> Result<Vec<SlotSequence>, ExecutorError> {
        let mut all = SlotSequence::empty_slots(self.setup().extent.batch);
        for ((slot, prompt), index) in self.slots(prompts.len() as u64).into_iter().zip(prompts).zip(0..) {
            all[slot] = SlotSequence::new(prompt.clone(), Sampler::new(sampling.for_sequence(index))?);
        }
        Ok(all)
    }

    fn uniform(&self, step: &Step) -> Pass {
        let setup = self.setup();
        Pass::uniform(step, setup.extent.batch, setup.placement.pipelining.micro_batches)
    }

    fn pass(&self, phase: Phase, sequences: &[ScheduledSequence]) -> Pass {
        let setup = self.setup();
        Pass::new(phase, sequences, setup.extent.batch, setup.placement.pipelining.micro_batches)
    }

    /// Whether a GPU chooses the tokens of decode.
    fn chooses_on_gpu(&self) -> bool {
        let head = self.setup().placement.head[0].device(Phase::Decode);
        self.engine().gpu.as_ref().is_some_and(|gpu| gpu.device() == head)
    }

    /// Runs the `steps` of prompts, as [`Session::play_passes`] does.
    fn read_prompt(
        &self,
        slots: &mut Vec<SlotSequence>,
        steps: &[Step],
        origin: Instant,
        before: impl FnMut(usize) -> Result<(), KernelError> + Send,
    ) -> Result<Vec<StepSpan>, ExecutorError> {
        let passes = steps.iter().map(|step| self.uniform(step)).collect();
        let played = self.play_passes(std::mem::take(slots), passes, origin, before)?;
        *slots = played.sequences;
        let spans = steps.iter().zip(played.spans);
        Ok(spans.map(|(step, (start, end))| StepSpan::new(*step, start, end)).collect())
    }

    /// Runs `passes` one after the other. `before` is called in front of each, with its index,
    /// while nothing runs.
    fn play_passes(
        &self,
        sequences: Vec<SlotSequence>,
        passes: Vec<Pass>,
        origin: Instant,
        mut before: impl FnMut(usize) -> Result<(), KernelError> + Send,
    ) -> Result<Played, ExecutorError> {
        if passes.is_empty() {
            return Ok(Played { sequences, spans: vec![] });
        }
        let run = SharedRun::new(self.engine(), sequences, origin, TaskTimes::None);
        let (mut ends, mut left) = (Vec::with_capacity(passes.len() + 1), passes.into_iter());
        run.play(
            |state, _| {
                let index = ends.len();
                ends.push(state.now);
                let next = left.next()?;
                before(index).map_err(|error| run.keep_failure(error)).ok()?;
                Some(next)
            },
            |(): ()| (),
        );
        if let Some(error) = run.take_failure() {
            return Err(ExecutorError::from(error).naming_gpu(&self.setup().machine));
        }
        let sequences = run.sequences.into_inner().expect("no lane has panicked");
        let spans = ends.windows(2).map(|ends| (ends[0], ends[1])).collect();
        Ok(Played { sequences, spans })
    }
}
