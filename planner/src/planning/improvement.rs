//! The search around a placement, with the simulator as the judge.
//!
//! The integer program adds up costs of layers: it does not see which fetch hides behind which
//! computation. So the best placements are edited, and the edits are simulated. First every other
//! placement of a layer is simulated alone, with only its neighbours. That tells what each costs or
//! gains in time and in bytes of each memory, like dual prices. Then edits are combined: the ones
//! that gain most are made for as many layers as fit, where the cheapest others make room.

use crate::cost::footprint;
use crate::error::PlannerError;
use crate::placement::{LayerPlacement, Pipelining, Slices};
use crate::plan::{BestRule, SearchSummary};
use crate::planning::edits::{ChunkedPlacement, Edits, LayerSet, Order};
use crate::planning::effort::Effort;
use crate::planning::problem::{PLANNED, Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::program::{PhaseTimes, RunExtent};
use crate::search::Goal;
use hwprofiles::Ratio;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use scenarios::{LayerKind, Sublayer};

/// The least gain of a round that is worth another one.
const WORTH: f64 = 5e-4;
/// Edits that gain, and edits that make room, that are combined with each other.
const GAINS: usize = 6;
const RELIEFS: usize = 3;
/// Single edits that are simulated together.
const SOME: usize = 16;
/// Of edits of the same sublayers, the number that is combined.
const ALIKE: usize = 2;
/// Layers before and behind an edited one that are simulated with it.
const NEIGHBOURS: usize = 2;
/// What a simulation costs beside its layers, in layers.
const OVERHEAD: usize = 5;
/// Models of fewer layers have the budget of this many: their edits are as many.
const FEW: usize = 32;
/// Starts are worth a search if they are within this share of the best.
const NEAR: f64 = 1.03;

/// The search around placements of one problem.
pub(crate) struct Improvement<'a, 's> {
    pub problem: &'a Problem<'a>,
    pub goal: &'a Goal,
    pub scorer: &'a Scorer<'s>,
    edits: Edits<'a>,
    /// Layers that may still be simulated.
    left: usize,
    /// Layers that another start may simulate.
    reserve: usize,
    /// Single edits of one placement that are simulated: a quarter of the budget.
    most_edits: usize,
    known: FxHashSet<ChunkedPlacement>,
    /// Some layers alone: the objective and the bytes of each memory; `None` if bytes would have to
    /// move without a link.
    excerpts: FxHashMap<ChunkedPlacement, Option<Judgement>>,
    /// What other placements of a layer brought where they were last simulated.
    slopes: FxHashMap<LayerChange, Option<Judgement>>,
}

/// What changes in a layer of a kind: each sublayer that is placed otherwise, before and after; the
/// chunk and the pipelining around it. The other sublayers change little of what it brings, so
/// layers that differ in them share it: most sets of layers are those of an edit before.
type LayerChange = (LayerKind, Vec<(Sublayer, Slices, Slices)>, u64, Pipelining);

/// An objective, and bytes of each memory.
type Judgement = (f64, Vec<i128>);

/// A simulated candidate.
struct Trial {
    candidate: ChunkedPlacement,
    /// The objective; infinite if a limit is exceeded.
    value: f64,
    /// Bytes in each memory.
    bytes: Vec<i128>,
}

/// Another placement of one layer of a set.
struct Slope {
    set: usize,
    to: LayerPlacement,
    /// Added to the objective.
    value: f64,
    /// Added to each memory.
    bytes: Vec<i128>,
}

impl<'a, 's> Improvement<'a, 's> {
    /// A search that simulates at most as many layers as `budget` placements have.
    pub fn new(problem: &'a Problem<'a>, goal: &'a Goal, scorer: &'a Scorer<'s>, budget: usize) -> Self {
        let edits = Edits::new(problem.cost_model, &problem.requirements.workload);
        let left = budget * (problem.cost_model.model.layers as usize).max(FEW);
        Self {
            problem,
            goal,
            scorer,
            edits,
            left,
            reserve: 0,
            most_edits: left / 4 / (problem.cost_model.model.layers as usize).max(1),
            known: FxHashSet::default(),
            excerpts: FxHashMap::default(),
            slopes: FxHashMap::default(),
        }
    }

    /// The best placement around `solved` and around the best rule with one number, and what that
    /// brought. If nothing may be simulated, `solved` itself.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn search(
        problem: &'a Problem<'a>,
        goal: &'a Goal,
        scorer: &'a Scorer<'s>,
        effort: Effort,
        solved: Option<ScoredPlacement>,
    ) -> Result<(Option<ScoredPlacement>, Option<SearchSummary>), PlannerError> {
        if effort.placements() == 0 {
            return Ok((solved, None));
        }
        let rules = problem.parameter_rules(goal, scorer);
        let rule = rules.into_iter().fold(None, |best, next| better(goal, best, next));
        let kept = rule.as_ref().map(|rule| (rule.name.clone(), rule.chunk, rule.times, rule.value));
        let mut starts: Vec<_> = solved.into_iter().chain(rule).collect();
        starts.sort_by(|a, b| {
            let late = |scored: &ScoredPlacement| !goal.keeps(&scored.times);
            late(a).cmp(&late(b)).then(a.value.total_cmp(&b.value))
        });
        let Some(before) = starts.first().map(|first| first.value) else { return Ok((None, None)) };
        let mut search = Self::new(problem, goal, scorer, effort.placements());
        let mut best = None;
        // The better start has most of the budget.
        let reserve = match starts.get(1) {
            Some(second) if second.value <= before * NEAR => search.left / 3,
            _ => 0,
        };
        for (start, reserve) in starts.into_iter().zip([reserve, 0]) {
            if start.value > before * NEAR {
                continue;
            }
            search.reserve = reserve;
            best = better(goal, best, search.improved(start)?);
        }
        let Some(best) = best else { return Ok((None, None)) };
        let ratio = |value: f64| Ratio::new(value / best.value).unwrap_or(Ratio::ONE);
        let best_rule = kept.map(|(rule, prefill_chunk, times, value)| BestRule {
            rule,
            prefill_chunk,
            simulated: goal.per_token(times),
            regret: ratio(value),
        });
        let summary = SearchSummary { judged: 0, improvement: ratio(before), best_rule };
        Ok((Some(best), Some(summary)))
    }

    /// The best placement that is found from `start`, or `start`.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn improved(&mut self, start: ScoredPlacement) -> Result<ScoredPlacement, PlannerError> {
        let from = ChunkedPlacement { placement: start.placement.clone(), chunk: start.chunk };
        self.known.insert(from.clone());
        let bytes = self.bytes(&from)?;
        let Some(bytes) = bytes else { return Ok(start) };
        let value = if self.goal.keeps(&start.times) { start.value } else { f64::INFINITY };
        let mut best = Trial { candidate: from, value, bytes };
        let first = best.value;
        // Slopes change little from round to round, so they are simulated again only where the old
        // ones lead nowhere.
        let mut fresh = false;
        loop {
            let worth = |next: &Trial| next.worth(best.value);
            let rounded = self.round(&best)?;
            let found = match rounded.as_ref().is_some_and(worth) {
                true => rounded,
                false => self.polished(&best)?.filter(worth).or(rounded),
            };
            let enough = !found.as_ref().is_some_and(worth);
            best = found.unwrap_or(best);
            if enough && fresh {
                break;
            }
            if enough {
                self.slopes.clear();
            }
            fresh = enough;
        }
        if best.value >= first {
            return Ok(start);
        }
        let ChunkedPlacement { placement, chunk } = best.candidate;
        let scored = self.problem.scored(self.goal, PLANNED, placement, chunk, self.scorer)?;
        Ok(ScoredPlacement { restriction: start.restriction, ..scored })
    }

    /// The best placement around `from`, if it is better.
    fn round(&mut self, from: &Trial) -> Result<Option<Trial>, PlannerError> {
        let sets = LayerSet::all(&from.candidate.placement);
        let slopes = self.slopes(from, &sets)?;
        let mut candidates = self.edits.of_whole(&from.candidate);
        candidates.extend(self.combined(from, &sets, &slopes));
        let trials = self.simulated(candidates)?;
        let best = trials.into_iter().filter(|trial| trial.value < from.value);
        Ok(best.min_by(|a, b| a.value.total_cmp(&b.value)))
    }

    /// The best of the first single edits that are better than `from`: every other placement of the
    /// layers of a set, all of them, half of them, or one at either end, those that gain most or
    /// cost least first.
    fn polished(&mut self, from: &Trial) -> Result<Option<Trial>, PlannerError> {
        let sets = LayerSet::all(&from.candidate.placement);
        let mut slopes = self.slopes(from, &sets)?;
        slopes.retain(|slope| slope.value.is_finite());
        slopes.sort_by(|a, b| a.value.total_cmp(&b.value));
        let candidates = slopes.iter().flat_map(|slope| {
            let set = &sets[slope.set];
            let edited = |(count, order)| from.candidate.with_layers(&set.some(count, order), &slope.to);
            set.portions().map(edited).filter(|candidate| self.fits(candidate))
        });
        let candidates: Vec<_> = candidates.take(self.most_edits).collect();
        let mut best: Option<Trial> = None;
        for some in candidates.chunks(SOME) {
            let trials = self.simulated(some.to_vec())?;
            let better = trials.into_iter().chain(best).filter(|trial| trial.value < from.value);
            best = better.min_by(|a, b| a.value.total_cmp(&b.value));
            if best.as_ref().is_some_and(|best| best.worth(from.value)) {
                break;
            }
        }
        Ok(best)
    }

    /// What each other placement of one layer of each set brings, the largest sets first.
    fn slopes(&mut self, from: &Trial, sets: &[LayerSet]) -> Result<Vec<Slope>, PlannerError> {
        let mut order: Vec<usize> = (0..sets.len()).collect();
        order.sort_by_key(|&set| usize::MAX - sets[set].members.len());
        // Beside experts, other matrices are small.
        let alone = self.problem.cost_model.model.experts.is_none();
        let mut slopes = Vec::new();
        for set in order {
            let LayerSet { layer, members } = &sets[set];
            let at = members[members.len() / 2];
            let layers = from.candidate.placement.layers.len();
            let window = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(layers);
            let alike = sets.iter().filter(|other| other.layer.kind == layer.kind && other.layer != *layer);
            let used = alike.map(|other| other.layer.clone());
            let changes: Vec<LayerPlacement> = used.chain(self.edits.of_layer(layer, alone)).collect();
            let ChunkedPlacement { placement, chunk } = &from.candidate;
            let change =
                |to: &LayerPlacement| (layer.kind, layer.differences(to), *chunk, placement.pipelining);
            let new: Vec<&LayerPlacement> =
                changes.iter().filter(|to| !self.slopes.contains_key(&change(to))).collect();
            let before = from.candidate.excerpt(&window);
            let excerpts = new.iter().map(|to| before.with_layers(&[at - window.start], to));
            let excerpts: Vec<ChunkedPlacement> = excerpts.chain([before.clone()]).collect();
            if !new.is_empty() {
                self.judge(&excerpts)?;
            }
            if let Some(Some((own, held))) = self.excerpts.get(&before) {
                for (to, excerpt) in new.into_iter().zip(&excerpts) {
                    let Some(judgement) = self.excerpts.get(excerpt) else { continue };
                    let slope = judgement.as_ref().map(|(value, bytes)| {
                        let bytes = bytes.iter().zip(held).map(|(now, before)| now - before);
                        (value - own, bytes.collect())
                    });
                    self.slopes.insert(change(to), slope);
                }
            }
            for to in changes {
                if let Some(Some((value, bytes))) = self.slopes.get(&change(&to)) {
                    slopes.push(Slope { set, to, value: *value, bytes: bytes.clone() });
                }
            }
        }
        Ok(slopes)
    }

    /// Simulates the excerpts that are new, up to half of what is left.
    fn judge(&mut self, excerpts: &[ChunkedPlacement]) -> Result<(), PlannerError> {
        let mut new: Vec<&ChunkedPlacement> =
            excerpts.iter().filter(|excerpt| !self.excerpts.contains_key(*excerpt)).collect();
        let Some(layers) = new.first().map(|first| first.placement.layers.len() + OVERHEAD) else {
            return Ok(());
        };
        let most = self.left.saturating_sub(self.reserve) / 2 / layers;
        // The last one is what the others are compared with.
        new.reverse();
        new.truncate(most);
        self.left -= new.len() * layers;
        let judged =
            |excerpt: &ChunkedPlacement| -> Result<(ChunkedPlacement, Option<Judgement>), PlannerError> {
                let Some(bytes) = self.bytes(excerpt)? else { return Ok((excerpt.clone(), None)) };
                let simulated = self.times_and_value(excerpt)?;
                Ok((excerpt.clone(), simulated.map(|(_, value)| (value, bytes))))
            };
        let found = new.into_par_iter().map(judged).collect::<Result<Vec<_>, _>>()?;
        self.excerpts.extend(found);
        Ok(())
    }

    /// The changes that gain for as many layers as have room, and with room made by others.
    fn combined(&self, from: &Trial, sets: &[LayerSet], slopes: &[Slope]) -> Vec<ChunkedPlacement> {
        let room = self.free(&from.bytes);
        let mut gains: Vec<&Slope> = slopes.iter().filter(|slope| slope.value < 0.0).collect();
        gains.sort_by(|a, b| a.rate(&room).total_cmp(&b.rate(&room)));
        let gains = Self::different(sets, &gains, GAINS);
        let mut combined = Vec::new();
        for gain in &gains {
            let set = &sets[gain.set];
            let length = set.members.len();
            let fitting = self.fitting(from, set, &gain.to);
            for count in [fitting, fitting / 2, 1].into_iter().filter(|&count| (1..=fitting).contains(&count))
            {
                for order in [Order::Spread, Order::First, Order::Last] {
                    combined.push(from.candidate.with_layers(&set.some(count, order), &gain.to));
                }
            }
            let Some(memory) = (0..room.len())
                .find(|&memory| gain.bytes[memory] > 0 && gain.bytes[memory] * length as i128 > room[memory])
            else {
                continue;
            };
            let makes_room = |slope: &&Slope| slope.bytes[memory] < 0 && slope.value.is_finite();
            let mut reliefs: Vec<&Slope> = slopes.iter().filter(makes_room).collect();
            let cost = |slope: &Slope| slope.value / -(slope.bytes[memory] as f64);
            reliefs.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
            for relief in Self::different(sets, &reliefs, RELIEFS) {
                for count in [length, length / 2, fitting + 1] {
                    combined.extend(exchange(from, sets, &room, (gain, count), (relief, memory)));
                }
            }
        }
        combined
    }

    /// The first `most` of `slopes` that do not edit the same sublayers too often.
    fn different<'t>(sets: &[LayerSet], slopes: &[&'t Slope], most: usize) -> Vec<&'t Slope> {
        let edited = |slope: &Slope| -> (usize, Vec<Sublayer>) {
            let changes = sets[slope.set].layer.differences(&slope.to).into_iter();
            (slope.set, changes.map(|(sublayer, ..)| sublayer).collect())
        };
        let mut kept: Vec<&Slope> = Vec::new();
        for &slope in slopes {
            let alike = kept.iter().filter(|other| edited(other) == edited(slope)).count();
            if alike < ALIKE && kept.len() < most {
                kept.push(slope);
            }
        }
        kept
    }

    /// Free bytes of each memory beside `used`.
    fn free(&self, used: &[i128]) -> Vec<i128> {
        let memories = self.problem.cost_model.machine.memories.iter().zip(used);
        memories.map(|(memory, used)| i128::from(memory.capacity.value.get()) - used).collect()
    }

    /// The largest number of layers of `set` that fit as `to`. Layers share a staging slot, so
    /// bytes of one are no measure for several.
    fn fitting(&self, from: &Trial, set: &LayerSet, to: &LayerPlacement) -> usize {
        let counts: Vec<usize> = (1..=set.members.len()).collect();
        let fits =
            |&count: &usize| self.fits(&from.candidate.with_layers(&set.some(count, Order::Spread), to));
        counts.partition_point(fits)
    }

    fn fits(&self, candidate: &ChunkedPlacement) -> bool {
        let bytes = self.bytes(candidate).ok().flatten();
        bytes.is_some_and(|bytes| self.free(&bytes).iter().all(|&free| free >= 0))
    }

    /// Simulates the candidates that are new and fit, as long as the budget lasts.
    fn simulated(&mut self, candidates: Vec<ChunkedPlacement>) -> Result<Vec<Trial>, PlannerError> {
        let known = &mut self.known;
        let mut new: Vec<_> =
            candidates.into_iter().filter(|candidate| known.insert(candidate.clone())).collect();
        let layers = (self.problem.cost_model.model.layers as usize).max(1);
        new.truncate(self.left.saturating_sub(self.reserve) / layers);
        self.left -= new.len() * layers;
        let trials = new.into_par_iter().map(|candidate| self.trial(candidate));
        Ok(trials.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    /// `candidate` simulated. `None` if it does not fit, or if bytes would have to move without a
    /// link.
    fn trial(&self, candidate: ChunkedPlacement) -> Result<Option<Trial>, PlannerError> {
        let Some(bytes) = self.bytes(&candidate)? else { return Ok(None) };
        if self.free(&bytes).iter().any(|&free| free < 0) {
            return Ok(None);
        }
        let Some((times, value)) = self.times_and_value(&candidate)? else { return Ok(None) };
        let value = if self.goal.keeps(&times) { value } else { f64::INFINITY };
        Ok(Some(Trial { candidate, value, bytes }))
    }

    /// The times and the objective. `None` if bytes would have to move without a link.
    fn times_and_value(
        &self,
        candidate: &ChunkedPlacement,
    ) -> Result<Option<(PhaseTimes, f64)>, PlannerError> {
        match self.problem.simulated(self.goal, &candidate.placement, candidate.chunk, self.scorer) {
            Err(PlannerError::Lower(_)) => Ok(None),
            simulated => simulated.map(Some),
        }
    }

    fn bytes(&self, candidate: &ChunkedPlacement) -> Result<Option<Vec<i128>>, PlannerError> {
        let extent = RunExtent::from_workload(&self.problem.requirements.workload, candidate.chunk);
        match footprint(self.problem.cost_model, &extent, &candidate.placement) {
            Ok(used) => Ok(Some(used.iter().map(|used| i128::from(used.total().get())).collect())),
            Err(_) => Ok(None),
        }
    }
}

impl Trial {
    /// Whether its gain over `value` is worth another round.
    fn worth(&self, value: f64) -> bool {
        self.value < value * (1.0 - WORTH)
    }
}

impl Slope {
    /// The gain for what it takes of the memories' room: what counts where room is short.
    fn rate(&self, room: &[i128]) -> f64 {
        const LITTLE: f64 = 0.01;
        /// Room that counts where there is none: 1 GiB.
        const ROOM: f64 = (1_u64 << 30) as f64;
        let share =
            self.bytes.iter().zip(room).map(|(&more, &room)| more as f64 / (room.max(0) as f64 + ROOM));
        self.value / share.fold(LITTLE, f64::max)
    }
}

/// A change for a number of layers, and another one for as many as that needs of a memory.
fn exchange(
    from: &Trial,
    sets: &[LayerSet],
    room: &[i128],
    (gain, count): (&Slope, usize),
    (relief, memory): (&Slope, usize),
) -> Option<ChunkedPlacement> {
    let short = gain.bytes[memory] * count as i128 - room[memory];
    let freed = -relief.bytes[memory];
    let least = usize::try_from((short.max(0) + freed - 1) / freed).ok()?;
    let gaining = sets[gain.set].some(count, Order::Spread);
    let LayerSet { layer, members } = &sets[relief.set];
    let rest: Vec<usize> = members.iter().copied().filter(|at| !gaining.contains(at)).collect();
    if count == 0 || least == 0 || rest.len() < least {
        return None;
    }
    let others = LayerSet { layer: layer.clone(), members: rest };
    let next = from.candidate.with_layers(&gaining, &gain.to);
    Some(next.with_layers(&others.some(least, Order::Spread), &relief.to))
}
