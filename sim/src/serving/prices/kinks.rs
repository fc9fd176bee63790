//! The contexts at which the time of a decode step bends.

use scenarios::{Mixer, Model};

/// Mean contexts at which attention of some layer stops growing, or begins again.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContextKinks {
    /// Full windows, and as many tokens as an indexer chooses, ascending.
    saturations: Vec<u64>,
    /// Tokens of the chunks after which attention begins again.
    chunks: Vec<u64>,
}

/// The contexts around a mean context between which attention grows along a straight line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KinksAround {
    /// The first of them: the last kink before, or 0.
    pub before: u64,
    /// The first context behind them, if there is one, and whether attention jumps there.
    after: Option<(u64, bool)>,
}

impl ContextKinks {
    /// The kinks of the layers of `model`.
    pub fn new(model: &Model) -> Self {
        let (mut saturations, mut chunks) = (Vec::new(), Vec::new());
        for shape in model.shapes() {
            let selected = shape.index.map(|index| index.selected);
            match (shape.mixer, shape.wiring.window) {
                (Mixer::Compressed(compressed), _) => {
                    let whole = |ratio: u64| selected.map(|selected| selected.saturating_mul(ratio));
                    saturations.push(compressed.window);
                    saturations.extend(compressed.ratio.and_then(whole));
                }
                (_, Some(window)) if window.chunked => chunks.push(window.tokens),
                (_, Some(window)) => saturations.push(window.tokens),
                (_, None) => saturations.extend(selected),
            }
        }
        for kinks in [&mut saturations, &mut chunks] {
            kinks.sort_unstable();
            kinks.dedup();
        }
        Self { saturations, chunks }
    }

    /// The kinks around a mean context of `mean` tokens.
    pub fn around(&self, mean: u64) -> KinksAround {
        let next = self.saturations.partition_point(|&kink| kink <= mean);
        let before = next.checked_sub(1).map(|last| self.saturations[last]);
        let after = self.saturations.get(next).map(|&kink| (kink, false));
        // The first token of a chunk sees itself alone.
        let begins = |chunk: &u64| (mean.saturating_sub(1)) / chunk * chunk + 1;
        let chunk_begin = self.chunks.iter().map(begins).filter(|&begin| begin > 1).max();
        let chunk_end = self.chunks.iter().map(|chunk| (begins(chunk) + chunk, true)).min();
        KinksAround {
            before: before.into_iter().chain(chunk_begin).max().unwrap_or(0),
            after: after.into_iter().chain(chunk_end).min(),
        }
    }
}

impl KinksAround {
    /// The end of a line of `decodes` sequences from `from` tokens on that would hold until
    /// `until`, and the tokens at which its second point is priced.
    pub fn end(self, decodes: u64, from: u64, until: u64) -> (u64, u64) {
        match self.after.map(|(kink, jumps)| (kink.saturating_mul(decodes), jumps)) {
            Some((kink, false)) if kink < until => (kink, kink),
            // The last context in front of the jump.
            Some((kink, true)) if kink < until => (kink, (kink - decodes).max(from + 1)),
            _ => (until, until),
        }
    }
}
