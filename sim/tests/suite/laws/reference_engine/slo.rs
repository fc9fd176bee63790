//! The reference engine's SLO policy: the order by the time that is left, and the tokens that may
//! enter a step.

use super::{ReferenceEngine, ReferenceSequence};
use sim::SimTime;
use sim::serving::{AdmissionPolicy, Batch, PrefillChunk, StepPrices};

impl ReferenceSequence {
    fn in_time(&self, ttft: SimTime) -> bool {
        self.first.is_some_and(|first| first <= self.request.arrival.picos() + ttft.picos())
    }
}

/// A step that is being composed.
struct ComposedStep {
    end: u64,
    /// When the next tokens are due, for decodes whose first token was in time.
    dues: Vec<u64>,
    promised: u64,
    spare: u64,
    stake: u64,
}

impl<P: StepPrices> ReferenceEngine<'_, P> {
    fn limits(&self) -> Option<(SimTime, SimTime)> {
        match self.cache.engine.policy {
            AdmissionPolicy::Slo { ttft, tpot } => Some((ttft, tpot)),
            _ => None,
        }
    }

    fn price(&mut self, chunks: &[PrefillChunk]) -> u64 {
        let decodes: Vec<u64> =
            self.running.iter().filter(|s| s.decodes).map(ReferenceSequence::known).collect();
        let count = decodes.len() as u64;
        let sampled = count + chunks.len() as u64;
        let batch = Batch { chunks, decodes: count, decode_tokens: decodes.iter().sum(), sampled };
        match sampled {
            0 => 0,
            _ => self.prices.step(&batch).unwrap().picos() + self.cache.engine.host.time(sampled).picos(),
        }
    }

    /// The state of a step into which the prompts enter with `entering`.
    fn composed(&mut self, entering: &[u64], ttft: SimTime, tpot: SimTime) -> ComposedStep {
        let decode = self.price(&[]);
        let spare = tpot.picos().saturating_sub(decode);
        let answers: u64 = self.served.iter().map(|served| served.output_tokens).sum();
        let mean = if self.served.is_empty() { 1 } else { answers / self.served.len() as u64 };
        let decoding = self.running.iter().filter(|s| s.decodes && s.in_time(ttft));
        let dues = decoding.map(|s| s.first.unwrap() + s.generated * tpot.picos()).collect();
        let (end, promised, stake) = (self.now + decode, u64::MAX, spare * mean);
        let mut composed = ComposedStep { end, dues, promised, spare, stake };
        let mut chunks = vec![];
        for (index, &new) in entering.iter().enumerate() {
            let s = self.running[index].clone();
            if s.decodes || new == 0 {
                continue;
            }
            chunks.push(PrefillChunk { new, past: s.computed });
            composed.end = composed.end.max(self.now + self.price(&chunks));
            let limit = s.request.arrival.picos() + ttft.picos();
            if s.computed + new == s.known() && s.first.is_none() && composed.end <= limit {
                composed.promised = composed.promised.min(limit);
            }
        }
        composed
    }

    /// The part of `new` tokens of `sequence` after `past` that may enter beside `entering`.
    /// `goes_on` says that the prompt has entered partly.
    pub fn fit(
        &mut self,
        entering: &[u64],
        sequence: &ReferenceSequence,
        goes_on: bool,
        new: u64,
        past: u64,
    ) -> u64 {
        let Some((ttft, tpot)) = self.limits() else { return new };
        let ComposedStep { end: before, dues, promised, spare, stake } = self.composed(entering, ttft, tpot);
        let empty = self.now + self.price(&[]);
        let counting = dues.iter().filter(|&&due| empty.saturating_sub(due) <= stake);
        let due = counting.copied().min().unwrap_or(u64::MAX).min(promised);
        let all = self.running.iter().zip(entering);
        let mut chunks: Vec<PrefillChunk> = all
            .filter(|(s, new)| !s.decodes && **new > 0)
            .map(|(s, &new)| PrefillChunk { new, past: s.computed })
            .collect();
        chunks.push(PrefillChunk { new, past });
        let end = before.max(self.now + self.price(&chunks));
        let limit = sequence.request.arrival.picos() + ttft.picos();
        let mut saves = sequence.first.is_none() && end <= limit;
        for index in 0..self.waiting.len() {
            let other = self.waiting[index].clone();
            saves |= goes_on && !other.in_time(ttft) && self.latest(&other, ttft) >= before;
        }
        // At the pace that decodes leave of each tpot.
        let slowly = u128::from(end - before) * u128::from(tpot.picos());
        let must = slowly > u128::from(limit.saturating_sub(before)) * u128::from(spare);
        let late = |end: u64| dues.iter().map(|due| end.saturating_sub(*due).min(stake)).sum::<u64>();
        let worth = saves && end <= promised && must && late(end) - late(before) < stake;
        match () {
            () if end <= due || worth => new,
            () if due <= before || !self.cache.engine.chunked_prefill => 0,
            () => new * (due - before) / (end - before),
        }
    }

    /// The latest begin of `sequence`.
    fn latest(&mut self, sequence: &ReferenceSequence, ttft: SimTime) -> u64 {
        let prompt = [PrefillChunk { new: sequence.request.prompt_tokens, past: 0 }];
        let alone = Batch { chunks: &prompt, decodes: 0, decode_tokens: 0, sampled: 1 };
        let time = self.prices.step(&alone).unwrap().picos() + self.cache.engine.host.time(1).picos();
        (sequence.request.arrival.picos() + ttft.picos()).saturating_sub(time)
    }

    /// The index of the waiting sequence that comes first.
    pub fn next_by_slack(&mut self, entering: &[u64], ttft: SimTime, tpot: SimTime) -> Option<usize> {
        if let Some(back) = self.waiting.iter().position(|s| s.in_time(ttft)) {
            return Some(back);
        }
        let ComposedStep { end, .. } = self.composed(entering, ttft, tpot);
        let mut order = vec![];
        for index in 0..self.waiting.len() {
            let sequence = self.waiting[index].clone();
            let latest = self.latest(&sequence, ttft);
            order.push((latest < end, latest, index));
        }
        order.into_iter().min().map(|(_, _, index)| index)
    }

    /// Sends a sequence back to its place in the queue.
    pub fn requeue(&mut self, sequence: ReferenceSequence) {
        match self.limits() {
            Some((ttft, _)) if !sequence.in_time(ttft) => self.waiting.push_back(sequence),
            _ => self.waiting.push_front(sequence),
        }
    }
}
