//! The literal engine's sense of time: who comes first by what is left of its limits, and how much may enter a step.

use super::{Naive, Work};
use sim::serving::{Batch, Picos, Piece, Policy, StepPrices};

impl Naive {
    fn in_time(&self, ttft: Picos) -> bool {
        self.first.is_some_and(|first| first <= self.request.arrival.0 + ttft.0)
    }
}

/// A step that is being made up.
struct Clock {
    end: u64,
    /// When those who decode and were in time must have their next token.
    dues: Vec<u64>,
    promised: u64,
    spare: u64,
    stake: u64,
}

impl<P: StepPrices> Work<'_, P> {
    fn limits(&self) -> Option<(Picos, Picos)> {
        match self.cache.engine.policy {
            Policy::Slo { ttft, tpot } => Some((ttft, tpot)),
            _ => None,
        }
    }

    fn price(&mut self, pieces: &[Piece]) -> u64 {
        let decodes: Vec<u64> = self.running.iter().filter(|s| s.decodes).map(Naive::known).collect();
        let count = decodes.len() as u64;
        let sampled = count + pieces.len() as u64;
        let batch = Batch { pieces, decodes: count, decode_tokens: decodes.iter().sum(), sampled };
        match sampled {
            0 => 0,
            _ => self.prices.step(&batch).unwrap().0 + self.cache.engine.host.of(sampled).0,
        }
    }

    /// The clock of a step into which those who do not decode enter with `entering`.
    fn clock(&mut self, entering: &[u64], ttft: Picos, tpot: Picos) -> Clock {
        let decode = self.price(&[]);
        let spare = tpot.0.saturating_sub(decode);
        let answers: u64 = self.served.iter().map(|served| served.output_tokens).sum();
        let mean = if self.served.is_empty() { 1 } else { answers / self.served.len() as u64 };
        let decoding = self.running.iter().filter(|s| s.decodes && s.in_time(ttft));
        let dues = decoding.map(|s| s.first.unwrap() + s.generated * tpot.0).collect();
        let (end, promised, stake) = (self.now + decode, u64::MAX, spare * mean);
        let mut clock = Clock { end, dues, promised, spare, stake };
        let mut pieces = vec![];
        for (index, &new) in entering.iter().enumerate() {
            let s = self.running[index].clone();
            if s.decodes || new == 0 {
                continue;
            }
            pieces.push(Piece { new, past: s.computed });
            clock.end = clock.end.max(self.now + self.price(&pieces));
            let limit = s.request.arrival.0 + ttft.0;
            if s.computed + new == s.known() && s.first.is_none() && clock.end <= limit {
                clock.promised = clock.promised.min(limit);
            }
        }
        clock
    }

    /// Of `new` tokens of `sequence` after `past`, those that may enter beside `entering`; `goes_on` where some of it is
    /// there already.
    pub fn fit(&mut self, entering: &[u64], sequence: &Naive, goes_on: bool, new: u64, past: u64) -> u64 {
        let Some((ttft, tpot)) = self.limits() else { return new };
        let Clock { end: before, dues, promised, spare, stake } = self.clock(entering, ttft, tpot);
        let empty = self.now + self.price(&[]);
        let counting = dues.iter().filter(|&&due| empty.saturating_sub(due) <= stake);
        let due = counting.copied().min().unwrap_or(u64::MAX).min(promised);
        let all = self.running.iter().zip(entering);
        let mut pieces: Vec<Piece> = all
            .filter(|(s, new)| !s.decodes && **new > 0)
            .map(|(s, &new)| Piece { new, past: s.computed })
            .collect();
        pieces.push(Piece { new, past });
        let end = before.max(self.now + self.price(&pieces));
        let limit = sequence.request.arrival.0 + ttft.0;
        let mut saves = sequence.first.is_none() && end <= limit;
        for index in 0..self.waiting.len() {
            let other = self.waiting[index].clone();
            saves |= goes_on && !other.in_time(ttft) && self.latest(&other, ttft) >= before;
        }
        // At the pace of what decodes leave of each tpot.
        let slowly = u128::from(end - before) * u128::from(tpot.0);
        let must = slowly > u128::from(limit.saturating_sub(before)) * u128::from(spare);
        let late = |end: u64| dues.iter().map(|due| end.saturating_sub(*due).min(stake)).sum::<u64>();
        let worth = saves && end <= promised && must && late(end) - late(before) < stake;
        match () {
            () if end <= due || worth => new,
            () if due <= before || !self.cache.engine.chunked_prefill => 0,
            () => new * (due - before) / (end - before),
        }
    }

    /// When `sequence` must begin to enter.
    fn latest(&mut self, sequence: &Naive, ttft: Picos) -> u64 {
        let prompt = [Piece { new: sequence.request.prompt_tokens, past: 0 }];
        let alone = Batch { pieces: &prompt, decodes: 0, decode_tokens: 0, sampled: 1 };
        let time = self.prices.step(&alone).unwrap().0 + self.cache.engine.host.of(1).0;
        (sequence.request.arrival.0 + ttft.0).saturating_sub(time)
    }

    /// Who comes first of those that wait.
    pub fn nearest(&mut self, entering: &[u64], ttft: Picos, tpot: Picos) -> Option<usize> {
        if let Some(back) = self.waiting.iter().position(|s| s.in_time(ttft)) {
            return Some(back);
        }
        let Clock { end, .. } = self.clock(entering, ttft, tpot);
        let mut order = vec![];
        for index in 0..self.waiting.len() {
            let sequence = self.waiting[index].clone();
            let latest = self.latest(&sequence, ttft);
            order.push((latest < end, latest, index));
        }
        order.into_iter().min().map(|(_, _, index)| index)
    }

    /// Sends one back to where its kind waits.
    pub fn wait_again(&mut self, sequence: Naive) {
        match self.limits() {
            Some((ttft, _)) if !sequence.in_time(ttft) => self.waiting.push_back(sequence),
            _ => self.waiting.push_front(sequence),
        }
    }
}
