//! Scheduling by the time that is left (`scheduler: slo`).
//!
//! SOLA (MLSys 2025) divides each step between prompts and decodes by whose limit is nearer: that on the time to the first
//! token of those who wait, or that on the time per output token of those who decode. How it does so in detail, these
//! are our own rules; what a step takes is asked of the step prices. Prompts always share steps with decodes.
//!
//! - Who waits must begin at arrival + ttft − what its prompt takes alone, at the latest. First comes who must begin soonest
//!   of those that still can after what is in the step already; then, the oldest first, those that are late, so that they take
//!   nobody with them. Before all of them comes who was sent back after a first token in time.
//! - Token g + 1 of who decodes is due at f + g · tpot, where f is when it had its first. With the mean answer of those served,
//!   A tokens, it can make up for at most A · (tpot − a step of decodes alone) = the *stake*. It counts where f was in time
//!   and it is not late by more than that.
//! - Prompts enter a step until the first token of those who count is due, or a first token that was promised in this step. Where
//!   a chunk would make the step longer, as much of it enters as goes on a straight line between the step without it and with all
//!   of it: what a step takes bends upwards, so that the step is rather too short. Without prompts a step is as long as it is.
//! - A chunk enters nevertheless where a prompt is lost otherwise and less is lost by it. A prompt would be lost that can
//!   be in time only so: at the pace of what decodes leave of each tpot, it would be late. Or the prompt behind it would, which
//!   waits until it is all there. Of each decode that comes to be late, the time by which it does is lost, as a
//!   share of the stake; a whole stake is as much as a prompt.
//!
//! Who is late changes with time, so that steps are made one by one where somebody could enter.

use super::super::batch::{Batch, Piece, StepPrices};
use super::super::engine::Policy;
use super::super::picos::Picos;
use super::Replica;
use hwprofiles::Missing;

/// How long a step may become.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// When it would end with what is in it so far.
    pub end: Picos,
    /// When the first token of who counts is due.
    due: Picos,
    /// When the first token of a prompt that enters with it is due.
    promised: Picos,
    /// What a step of decodes alone leaves of a tpot.
    spare: Picos,
    /// What an answer of the mean length can make up for.
    stake: Picos,
}

impl Default for Pace {
    fn default() -> Self {
        let [end, spare, stake] = [Picos::ZERO; 3];
        Self { end, due: Picos::MAX, promised: Picos::MAX, spare, stake }
    }
}

impl<P: StepPrices> Replica<P> {
    /// Says of those that came by when they must begin.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn appraise(&mut self) -> Result<(), Missing> {
        let Policy::Slo { ttft, .. } = self.engine.policy else { return Ok(()) };
        let Some(slack) = self.waiting.slack() else { return Ok(()) };
        slack.ask(|place| {
            let sequence = &mut self.sequences[place as usize];
            let prompt = [Piece { new: sequence.request.prompt_tokens, past: 0 }];
            let alone = Batch { pieces: &prompt, decodes: 0, decode_tokens: 0, sampled: 1 };
            let time = self.prices.step(&alone)? + self.engine.host.of(1);
            sequence.latest = (sequence.request.arrival + ttft).saturating_sub(time);
            Ok(sequence.latest)
        })
    }

    /// Whether somebody may enter the next step, or not, because time has passed.
    pub(super) fn is_paced(&self) -> bool {
        let places = self.waiting.len() > 0 && (self.running.len() as u64) < self.engine.max_num_seqs;
        matches!(self.engine.policy, Policy::Slo { .. }) && (places || self.entering.is_some())
    }

    /// Sees how long the step may become, before anybody enters it.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn set_pace(&mut self) -> Result<(), Missing> {
        let Policy::Slo { ttft, tpot } = self.engine.policy else { return Ok(()) };
        if !self.is_paced() {
            return Ok(());
        }
        let (count, tokens) = (self.decoding.count, self.decoding.tokens);
        let decode = match count {
            0 => Picos::ZERO,
            _ => self.prices.decode(count, tokens)?.plus(self.engine.host.of(count)).at(tokens),
        };
        let end = self.now + decode;
        let spare = tpot.saturating_sub(decode);
        let (answers, tokens) = (self.seen.answers, self.seen.output_tokens);
        let stake = spare.times(tokens.checked_div(answers).unwrap_or(1));
        let counts = |due: &Picos| end.saturating_sub(*due) <= stake;
        let due = self.due(ttft, tpot).filter(counts).min().unwrap_or(Picos::MAX);
        self.pace = Pace { end, due, promised: Picos::MAX, spare, stake };
        Ok(())
    }

    /// When the next tokens are due of those who decode and had their first in time.
    fn due(&self, ttft: Picos, tpot: Picos) -> impl Iterator<Item = Picos> {
        self.running.iter().filter_map(move |&place| {
            let sequence = &self.sequences[place as usize];
            let generated = self.decoding.generated(sequence.joined?);
            let first = sequence.first_token.filter(|_| sequence.had_first_within(ttft))?;
            Some(first + tpot.times(generated))
        })
    }

    /// How many of the piece's tokens may enter the step beside what is in it.
    ///
    /// # Errors
    /// A rate that was not measured.
    pub(super) fn fit(&mut self, place: u32, piece: Piece) -> Result<u64, Missing> {
        let Policy::Slo { ttft, tpot } = self.engine.policy else { return Ok(piece.new) };
        self.pieces.push(piece);
        let end = self.end_with_pieces();
        self.pieces.pop();
        let Pace { end: before, due, promised, .. } = self.pace;
        let end = end?.max(before);
        let sequence = &self.sequences[place as usize];
        let limit = sequence.request.arrival + ttft;
        let in_time = sequence.first_token.is_none() && end <= limit;
        let saves = in_time || self.entering == Some(place) && self.waiting.anyone_in_time(before);
        let due = due.min(promised);
        if end > due && !(saves && end <= promised && self.is_worth(end, limit, ttft, tpot)) {
            let (spare, more) = (due.saturating_sub(before).0, (end - before).0);
            let part = u128::from(piece.new) * u128::from(spare) / u128::from(more.max(1));
            return Ok(if self.engine.chunked_prefill { part as u64 } else { 0 });
        }
        self.pace.end = end;
        if in_time && piece.past + piece.new == sequence.known() {
            self.pace.promised = promised.min(limit);
        }
        Ok(piece.new)
    }

    /// Whether a prompt with that limit cannot wait, and less is lost if decodes do until `end`.
    fn is_worth(&self, end: Picos, limit: Picos, ttft: Picos, tpot: Picos) -> bool {
        let Pace { end: before, spare, stake, .. } = self.pace;
        let product = |a: Picos, b: Picos| u128::from(a.0) * u128::from(b.0);
        let can_wait = product(end - before, tpot) <= product(limit.saturating_sub(before), spare);
        let late = |due: Picos, end: Picos| end.saturating_sub(due).min(stake).0;
        let lost = self.due(ttft, tpot).map(|due| u128::from(late(due, end) - late(due, before)));
        !can_wait && lost.sum::<u128>() < u128::from(stake.0)
    }

    /// When the step would end with all pieces, each of which is taken for its prompt's last.
    fn end_with_pieces(&mut self) -> Result<Picos, Missing> {
        let (decodes, decode_tokens) = (self.decoding.count, self.decoding.tokens);
        let sequences = decodes + self.pieces.len() as u64;
        let batch = Batch { pieces: &self.pieces, decodes, decode_tokens, sampled: sequences };
        Ok(self.now + self.prices.step(&batch)? + self.engine.host.of(sequences))
    }
}
