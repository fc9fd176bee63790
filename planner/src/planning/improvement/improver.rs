//! The search around the best placements.

use crate::error::PlannerError;
use crate::placement::Pipelining;
use crate::plan::{BestRule, SearchSummary};
use crate::planning::effort::Effort;
use crate::planning::improvement::edits::{ChunkedPlacement, Edits, LayerSet};
use crate::planning::improvement::exchanges::Exchanges;
use crate::planning::improvement::judge::{Judge, Trial};
use crate::planning::improvement::slopes::{LayerMove, LayerMoves};
use crate::planning::problem::{PLANNED, Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::search::Goal;
use hwprofiles::Ratio;
use rustc_hash::FxHashSet;

/// Edits that are simulated together: if one of them is worth another round, the others wait.
const TRIALS_AT_ONCE: usize = 8;
/// Models of fewer layers have the budget of this many: their edits are as many.
const LEAST_LAYERS: usize = 64;
/// Starts are worth a search if they are within this share of the best.
const START_WITHIN: f64 = 1.03;
/// Climbs from each start, each with another prefill chunk or another pipelining: which is best is
/// often seen only after the layers are placed for it.
const CLIMBS: usize = 3;
/// The part of the budget for a last climb from the best placement, in which small sublayers move
/// alone.
const LAST_CLIMB_PART: usize = 6;
/// Last climbs at most, each with that part of the budget. Another one follows where the objective
/// fell to `GAINS_STILL` of what it was, or below: there the budget was too small.
const LAST_CLIMBS: usize = 5;
const GAINS_STILL: f64 = 0.997;
/// A climb may start this much behind the best placement.
const CLIMB_WITHIN: f64 = 1.1;

/// The search around placements of one problem.
pub(crate) struct Improver<'a, 's> {
    judge: Judge<'a, 's>,
    edits: Edits<'a>,
    slopes: LayerMoves,
    /// Edits of one placement that are simulated: a quarter of the budget.
    most_edits: usize,
    /// What was simulated, or did not fit.
    known: FxHashSet<ChunkedPlacement>,
    /// What was simulated and is not the end of a climb.
    open: Vec<Trial>,
    /// Whether small sublayers move alone, too.
    small: bool,
}

impl<'a, 's> Improver<'a, 's> {
    /// A search that simulates at most as many layers as `budget` placements have, and more only
    /// while its last climb gains.
    fn new(problem: &'a Problem<'a>, goal: &'a Goal, scorer: &'a Scorer<'s>, budget: usize) -> Self {
        let layers = problem.cost_model.model.layers as usize;
        let left = budget * layers.max(LEAST_LAYERS);
        Self {
            judge: Judge::new(problem, goal, scorer, left),
            edits: Edits::new(problem.cost_model, &problem.requirements.workload),
            slopes: LayerMoves::default(),
            most_edits: left / 4 / layers.max(1),
            known: FxHashSet::default(),
            open: Vec::new(),
            // Beside experts, other matrices are small.
            small: problem.cost_model.model.experts.is_none(),
        }
    }

    /// The best placement around `solved`, around the best rule with one number and around
    /// `others`, and what that brought. If nothing may be simulated, `solved` itself.
    ///
    /// # Errors
    /// A rate that is missing.
    pub fn search(
        problem: &'a Problem<'a>,
        goal: &'a Goal,
        scorer: &'a Scorer<'s>,
        effort: Effort,
        solved: Option<ScoredPlacement>,
        others: &[ScoredPlacement],
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
        starts.retain(|start| start.value <= before * START_WITHIN);
        let mut improver = Self::new(problem, goal, scorer, effort.placements());
        let mut best = None;
        let several = starts.len() > 1;
        let last = improver.judge.left / LAST_CLIMB_PART;
        for (at, start) in starts.into_iter().enumerate() {
            // The better start has most of the budget.
            improver.judge.reserve = if several && at == 0 { improver.judge.left / 3 } else { last };
            best = better(goal, best, improver.improved(start, others, CLIMBS)?);
        }
        let Some(mut best) = best else { return Ok((None, None)) };
        (improver.judge.reserve, improver.small) = (0, true);
        for _ in 0..LAST_CLIMBS {
            let before = best.value;
            best = improver.improved(best, &[], 1)?;
            if best.value > before * GAINS_STILL {
                break;
            }
            improver.judge.left += last;
        }
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

    /// The best placement that is found from `start` in so many climbs, or `start`. Climbs after
    /// the first may begin at `others`.
    fn improved(
        &mut self,
        start: ScoredPlacement,
        others: &[ScoredPlacement],
        climbs: usize,
    ) -> Result<ScoredPlacement, PlannerError> {
        let first = if self.judge.goal.keeps(&start.times) { start.value } else { f64::INFINITY };
        let mut best = Trial { value: first, ..Trial::from_scored(&start) };
        self.known.insert(best.candidate.clone());
        self.open.clear();
        let kept = others.iter().filter(|other| self.judge.goal.keeps(&other.times));
        self.open.extend(kept.map(Trial::from_scored));
        let (mut from, reserve) = (best.clone(), self.judge.reserve);
        let mut climbed = Vec::new();
        for later in (0..climbs).rev() {
            let left = self.judge.left.saturating_sub(reserve);
            self.judge.reserve = reserve + left * later / (later + 3);
            let top = self.climbed(from)?;
            climbed.push(schedule(&top));
            if top.value < best.value {
                best = top;
            }
            let new = self.open.iter().enumerate().filter(|(_, trial)| {
                trial.value < best.value * CLIMB_WITHIN && !climbed.contains(&schedule(trial))
            });
            let Some((next, _)) = new.min_by(|a, b| a.1.value.total_cmp(&b.1.value)) else { break };
            from = self.open.swap_remove(next);
        }
        self.judge.reserve = reserve;
        if best.value >= first {
            return Ok(start);
        }
        let ChunkedPlacement { placement, chunk } = best.candidate;
        let Judge { problem, goal, scorer, .. } = self.judge;
        let scored = problem.scored(goal, PLANNED, placement, chunk, scorer)?;
        Ok(ScoredPlacement { restriction: start.restriction, ..scored })
    }

    /// The last of a chain of placements from `from`, each the best of those around the one before.
    fn climbed(&mut self, mut from: Trial) -> Result<Trial, PlannerError> {
        // LayerMoves change little from round to round, so they are simulated again only where the
        // old ones lead nowhere.
        let mut fresh = false;
        loop {
            let mut found = self.round(&from.candidate, from.value)?;
            let best = found.iter().enumerate().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
            let best = best.map(|(best, _)| best);
            let enough = !best.is_some_and(|best| found[best].is_worth(from.value));
            if let Some(best) = best.filter(|&best| found[best].value < from.value) {
                from = found.swap_remove(best);
            }
            self.open.append(&mut found);
            if enough && fresh {
                return Ok(from);
            }
            if enough {
                self.slopes.renew();
            }
            fresh = enough;
        }
    }

    /// Placements around `from`: combined edits and edits of the whole, and if none of them is
    /// worth another round, single edits. `value` is that of `from`.
    fn round(&mut self, from: &ChunkedPlacement, value: f64) -> Result<Vec<Trial>, PlannerError> {
        let sets = LayerSet::all(&from.placement);
        let slopes = self.slopes.around(&mut self.judge, (&self.edits, self.small), from, &sets)?;
        let exchanges = Exchanges::new(&self.judge, from, &sets, &slopes);
        let whole: Vec<_> =
            self.edits.of_whole(from).into_iter().flat_map(|edited| exchanges.fitted(edited)).collect();
        let combined = exchanges.all();
        let mut found = self.tried(combined.into_iter().chain(whole), value)?;
        if !found.iter().any(|next| next.is_worth(value)) {
            found.append(&mut self.tried(single_edits(from, &sets, slopes), value)?);
        }
        Ok(found)
    }

    /// Simulates the first candidates that are new and fit, some at a time, until one is worth
    /// another round after `value` or the budget is spent.
    fn tried(
        &mut self,
        candidates: impl Iterator<Item = ChunkedPlacement>,
        value: f64,
    ) -> Result<Vec<Trial>, PlannerError> {
        let mut candidates = candidates.fuse();
        let mut found: Vec<Trial> = Vec::new();
        let mut left = self.most_edits;
        loop {
            let most = TRIALS_AT_ONCE.min(left).min(self.judge.affords_trials());
            let new = candidates.by_ref().filter(|candidate| self.known.insert(candidate.clone()));
            let fitting = new.filter(|candidate| self.judge.fits(candidate));
            let some: Vec<_> = fitting.take(most).collect();
            left -= some.len();
            if some.is_empty() {
                return Ok(found);
            }
            found.append(&mut self.judge.trials(some)?);
            if found.iter().any(|next| next.is_worth(value)) {
                return Ok(found);
            }
        }
    }
}

/// Every other placement of the layers of a set, for all of them, half of them, or one at either
/// end, those that gain most or cost least first.
fn single_edits<'e>(
    from: &'e ChunkedPlacement,
    sets: &'e [LayerSet],
    mut slopes: Vec<LayerMove>,
) -> impl Iterator<Item = ChunkedPlacement> + 'e {
    slopes.retain(|slope| slope.value.is_finite());
    slopes.sort_by(|a, b| a.value.total_cmp(&b.value));
    slopes.into_iter().flat_map(move |LayerMove { set, to, .. }| {
        let set = &sets[set];
        set.portions().map(move |(count, order)| from.with_layers(&set.some(count, order), &to))
    })
}

/// What the layers of a placement share: micro-batches and slots, and the prefill chunk.
fn schedule(trial: &Trial) -> (Pipelining, u64) {
    (trial.candidate.placement.pipelining, trial.candidate.chunk)
}
