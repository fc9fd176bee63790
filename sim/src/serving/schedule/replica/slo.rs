//! Scheduling by the time that is left (`scheduler: slo`).
//!
//! SOLA (MLSys 2025) divides each step between prompts and decodes by the nearer limit: the limit
//! on the time to the first token of waiting requests, or the limit on the time per output token of
//! decodes. The details here are our own. The step prices say how long a step takes. Prompts always
//! share steps with decodes.
//!
//! - A waiting request must begin at arrival + ttft − the time of its prompt alone, at the latest.
//!   Among the requests that can still do so after the tokens already in the step, the one with the
//!   earliest such time comes first. Late requests follow, the oldest first, so that they make no
//!   others late. Preempted sequences that had their first token in time come before all of them.
//! - Token g + 1 of a decode is due at f + g · tpot, where f is the time of its first token. With A
//!   tokens in the mean answer so far, a decode can make up for at most A · (tpot − a step of
//!   decodes alone). This is the *stake*. A decode counts if f was in time and it is not late by
//!   more than the stake.
//! - Prompts enter a step until the next token of a counting decode is due, or a first token that
//!   was promised in this step. If a chunk would make the step longer, a part of it enters. The
//!   part lies on a straight line between the step without the chunk and the step with it. Step
//!   times bend upwards, so the step is rather too short. A step without prompts takes as long as
//!   it takes.
//! - A chunk enters nevertheless if its prompt would be lost without it and less is lost with it. A
//!   prompt would be lost if it can be in time only so: at the pace that decodes leave of each
//!   tpot, it would be late. The same holds for a prompt behind it, which waits until this one has
//!   fully entered. The loss of a decode that becomes late is its delay as a share of the stake. A
//!   whole stake counts as much as a prompt.
//!
//! Which sequences are late changes with time, so steps are made one by one while a sequence could
//! enter.

use super::Replica;
use crate::clock::SimTime;
use crate::serving::engine::settings::AdmissionPolicy;
use crate::serving::prices::batch::{Batch, PrefillChunk, StepPrices};
use crate::serving::schedule::step_budget::{StepBudget, keeps};
use hwprofiles::MissingRate;

impl<P: StepPrices> Replica<P> {
    /// Computes the latest begin of new arrivals.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn sort_arrivals(&mut self) -> Result<(), MissingRate> {
        let AdmissionPolicy::Slo { ttft, .. } = self.engine.policy else { return Ok(()) };
        let Some(slack) = self.waiting.slack() else { return Ok(()) };
        slack.sort_arrivals(|place| {
            let sequence = &mut self.sequences[place as usize];
            let prompt = [PrefillChunk { new: sequence.request.prompt_tokens, past: 0 }];
            let alone = Batch { chunks: &prompt, decodes: 0, decode_tokens: 0, sampled: 1 };
            let time = self.prices.step(&alone)? + self.engine.host.time(1);
            sequence.latest = (sequence.request.arrival + ttft).saturating_sub(time);
            Ok(sequence.latest)
        })
    }

    /// Whether the passing of time alone may change which sequence enters the next step.
    pub(super) fn depends_on_time(&self) -> bool {
        let places = self.waiting.len() > 0 && (self.running.len() as u64) < self.engine.max_num_seqs;
        matches!(self.engine.policy, AdmissionPolicy::Slo { .. }) && (places || self.entering.is_some())
    }

    /// Sets how long the step may become, before any prompt enters it.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn set_budget(&mut self) -> Result<(), MissingRate> {
        let AdmissionPolicy::Slo { ttft, tpot } = self.engine.policy else { return Ok(()) };
        if !self.depends_on_time() {
            return Ok(());
        }
        let (count, tokens) = (self.decoding.count, self.decoding.tokens);
        let decode = match count {
            0 => SimTime::ZERO,
            _ => self.prices.decode(count, tokens)?.plus(self.engine.host.time(count)).at(tokens),
        };
        let end = self.now + decode;
        let spare = tpot.saturating_sub(decode);
        let (answers, tokens) = (self.totals.answers, self.totals.output_tokens);
        let stake = spare.times(tokens.checked_div(answers).unwrap_or(1));
        let counts = |due: &SimTime| end.saturating_sub(*due) <= stake;
        let due = self.due_times(ttft, tpot).filter(counts).min();
        self.budget = StepBudget { end, due, promised: None, spare, stake };
        Ok(())
    }

    /// When the next token is due, for each decode whose first token was in time.
    fn due_times(&self, ttft: SimTime, tpot: SimTime) -> impl Iterator<Item = SimTime> {
        self.running.iter().filter_map(move |&place| {
            let sequence = &self.sequences[place as usize];
            let generated = self.decoding.generated(sequence.joined?);
            let first = sequence.first_token.filter(|_| sequence.had_first_within(ttft))?;
            Some(first + tpot.times(generated))
        })
    }

    /// How many of the chunk's tokens may enter the step, beside what has entered already.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn tokens_in_budget(&mut self, place: u32, chunk: PrefillChunk) -> Result<u64, MissingRate> {
        let AdmissionPolicy::Slo { ttft, tpot } = self.engine.policy else { return Ok(chunk.new) };
        self.chunks.push(chunk);
        let end = self.end_with_chunks();
        self.chunks.pop();
        let StepBudget { end: before, promised, .. } = self.budget;
        let end = end?.max(before);
        let sequence = &self.sequences[place as usize];
        let limit = sequence.request.arrival + ttft;
        let in_time = sequence.first_token.is_none() && end <= limit;
        let saves = in_time || self.entering == Some(place) && self.waiting.anyone_in_time(before);
        if let Some(due) = self.budget.limit()
            && end > due
            && !(saves && keeps(promised, end) && self.is_worth(end, limit, ttft, tpot))
        {
            let (spare, more) = (due.saturating_sub(before).picos(), (end - before).picos());
            let part = u128::from(chunk.new) * u128::from(spare) / u128::from(more.max(1));
            return Ok(if self.engine.chunked_prefill { part as u64 } else { 0 });
        }
        self.budget.end = end;
        if in_time && chunk.past + chunk.new == sequence.known() {
            self.budget.promised = promised.into_iter().chain([limit]).min();
        }
        Ok(chunk.new)
    }

    /// Whether a prompt with this limit cannot wait, and less is lost if decodes wait until `end`.
    fn is_worth(&self, end: SimTime, limit: SimTime, ttft: SimTime, tpot: SimTime) -> bool {
        let StepBudget { end: before, spare, stake, .. } = self.budget;
        let product = |a: SimTime, b: SimTime| u128::from(a.picos()) * u128::from(b.picos());
        let can_wait = product(end - before, tpot) <= product(limit.saturating_sub(before), spare);
        let delay = |due: SimTime, end: SimTime| end.saturating_sub(due).min(stake).picos();
        let lost = self.due_times(ttft, tpot).map(|due| u128::from(delay(due, end) - delay(due, before)));
        !can_wait && lost.sum::<u128>() < u128::from(stake.picos())
    }

    /// When the step would end with all chunks, each of them taken for the last one of its prompt.
    fn end_with_chunks(&mut self) -> Result<SimTime, MissingRate> {
        let (decodes, decode_tokens) = (self.decoding.count, self.decoding.tokens);
        let sequences = decodes + self.chunks.len() as u64;
        let batch = Batch { chunks: &self.chunks, decodes, decode_tokens, sampled: sequences };
        Ok(self.now + self.prices.step(&batch)? + self.engine.host.time(sequences))
    }
}
