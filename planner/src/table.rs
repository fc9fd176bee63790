//! The integer program as bare numbers.

use std::collections::BTreeSet;

/// A pattern of a layer, or a placement of embed and head.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// Its index where it came from.
    pub index: usize,
    /// Seconds by row.
    pub times: Vec<f64>,
    /// Bytes by memory that could be overfilled.
    pub bytes: Vec<u64>,
    /// The items it needs, as bits.
    pub items: u64,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    pub layers: u64,
    pub patterns: Vec<Choice>,
    pub ends: Vec<Choice>,
    /// The memory of each item and its bytes there.
    pub items: Vec<(usize, u64)>,
    /// Bytes that each memory has for them.
    pub room: Vec<u64>,
    /// The phase of each row.
    pub phases: Vec<usize>,
    /// The weight of each phase.
    pub weight: [f64; 2],
}

/// A solution, by the choices' own indices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub counts: Vec<(usize, u64)>,
    pub end: usize,
    pub value: f64,
}

impl Table {
    /// Σ over the phases of weight · the longest row.
    pub fn value(&self, times: &[f64]) -> f64 {
        let longest = |phase| {
            let rows = times.iter().zip(&self.phases).filter(move |(_, of)| **of == phase);
            rows.fold(0.0, |most: f64, (&time, _)| most.max(time))
        };
        self.weight[0] * longest(0) + self.weight[1] * longest(1)
    }

    /// Bytes that a set of items takes in `memory`.
    pub fn item_bytes(&self, items: u64, memory: usize) -> u64 {
        let needed = self.items.iter().enumerate().filter(|(item, _)| items >> item & 1 == 1);
        needed.filter(|(_, (of, _))| *of == memory).map(|(_, (_, bytes))| bytes).sum()
    }

    /// Every set of items that some solution needs: an end's with those of any patterns. Where there are more than
    /// `most`, the smallest items are paid for by all, needed or not, until there are few enough.
    pub fn item_sets(&mut self, most: usize) -> Vec<u64> {
        loop {
            if let Some(sets) = self.unions(most) {
                return sets;
            }
            let real = (0..self.items.len()).filter(|&item| self.items[item].1 > 0);
            let Some(least) = real.min_by_key(|&item| self.items[item].1) else { return vec![u64::MAX] };
            let (memory, bytes) = std::mem::take(&mut self.items[least]);
            self.room[memory] = self.room[memory].saturating_sub(bytes);
            for choice in self.patterns.iter_mut().chain(&mut self.ends) {
                choice.items &= !(1 << least);
            }
        }
    }

    fn unions(&self, most: usize) -> Option<Vec<u64>> {
        let masks: BTreeSet<u64> = self.patterns.iter().map(|p| p.items).collect();
        let ends: BTreeSet<u64> = self.ends.iter().map(|e| e.items).collect();
        let mut sets: BTreeSet<u64> = ends.iter().flat_map(|e| masks.iter().map(move |p| e | p)).collect();
        let mut fresh: Vec<u64> = sets.iter().copied().collect();
        while let Some(set) = fresh.pop() {
            for mask in &masks {
                if sets.insert(set | mask) {
                    fresh.push(set | mask);
                }
            }
            if sets.len() > most {
                return None;
            }
        }
        Some(sets.into_iter().collect())
    }

    /// The program in which exactly the items of `set` may be needed, and are paid for; `None` where they do not
    /// fit or nothing is left. What another choice replaces at no loss is gone.
    pub fn restricted(&self, set: u64) -> Option<Self> {
        let mut room = self.room.clone();
        for (memory, room) in room.iter_mut().enumerate() {
            *room = room.checked_sub(self.item_bytes(set, memory))?;
        }
        let within = |choices: &[Choice]| {
            let fit = choices.iter().filter(|choice| choice.items & !set == 0);
            undominated(fit.map(|choice| Choice { items: 0, ..choice.clone() }).collect())
        };
        let (mut patterns, mut ends) = (within(&self.patterns), within(&self.ends));
        // What is not in one memory is in another: all together they prove soonest that something cannot fit.
        for choice in patterns.iter_mut().chain(&mut ends) {
            choice.bytes.push(choice.bytes.iter().sum());
        }
        room.push(room.iter().sum());
        let least =
            |choices: &[Choice], memory: usize| choices.iter().map(|choice| choice.bytes[memory]).min();
        for (memory, &room) in room.iter().enumerate() {
            let lightest = least(&patterns, memory)?.saturating_mul(self.layers);
            if lightest.saturating_add(least(&ends, memory)?) > room {
                return None;
            }
        }
        Some(Self { patterns, ends, items: vec![], room, phases: self.phases.clone(), ..*self })
    }
}

/// Without the choices that another one replaces at no loss: nowhere slower or larger, and with no item more.
pub(crate) fn undominated(mut choices: Vec<Choice>) -> Vec<Choice> {
    let sum = |c: &Choice| c.times.iter().sum::<f64>();
    // What beats another has no larger sum: looking from the smallest on, nothing kept is dropped later.
    choices.sort_by(|a, b| {
        sum(a)
            .total_cmp(&sum(b))
            .then_with(|| a.bytes.cmp(&b.bytes))
            .then(a.items.cmp(&b.items))
            .then(a.index.cmp(&b.index))
    });
    let mut kept: Vec<Choice> = Vec::new();
    for next in choices {
        let beaten = kept.iter().any(|best| {
            best.items & !next.items == 0
                && best.bytes.iter().zip(&next.bytes).all(|(a, b)| a <= b)
                && best.times.iter().zip(&next.times).all(|(a, b)| a <= b)
        });
        if !beaten {
            kept.push(next);
        }
    }
    kept
}
