//! Break-evens: the batch, context or prompt at which another device becomes better, with weights
//! and KV where they are.
//!
//! The cost of a sublayer on a device depends on its neighbours: hops to and from it, and streams
//! that other work hides. So one layer of the run is priced in steady state, as planned and with
//! the sublayer moved: the time that one more such layer adds to the roofline of a short program.

use crate::cost::CostModel;
use crate::cost::Roofline;
use crate::error::PlannerError;
use crate::placement::Home;
use crate::placement::LayerRun;
use crate::placement::{LayerPlacement, Placement};
use crate::program::BatchSteps;
use crate::program::Program;
use hwprofiles::{DeviceId, MissingRate, Seconds};
use scenarios::{Phase, Step, Sublayer};
use serde::Serialize;

/// The largest batch that is tried.
const MOST_SEQUENCES: u64 = 4096;
/// Layers after which a run is in steady state.
const SETTLED: u64 = 3;
/// The least gain that counts: more than rounding.
const BETTER: f64 = 1.0 - 1e-9;

/// The operators that would move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One sublayer.
    Sublayer(Sublayer),
    /// Every sublayer with a matrix: all but attention.
    Matrices,
    /// The whole layer.
    Layer,
}

/// The quantity that is varied; everything else is as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Sequences.
    Batch,
    /// Tokens of each sequence that enter in one prefill step, as a whole prompt.
    PromptTokens,
    /// Tokens of each sequence in the KV cache.
    Context,
}

/// Where the other device is better along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TurningPoint {
    /// Whether the other device is faster at the plan's own size.
    pub already: bool,
    /// The least size above the plan's at which it is faster; absent where none was found.
    pub from: Option<u64>,
    /// The largest size below the plan's at which it is faster; absent where none was found.
    pub up_to: Option<u64>,
    /// The largest size that was tried.
    pub searched: u64,
}

/// One comparison of two devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakEven {
    /// The first layer of the run.
    pub first: u64,
    /// The number of its layers.
    pub count: u64,
    /// Whether layers of other runs lie between them.
    pub dealt: bool,
    /// The operators that would move.
    pub scope: Scope,
    /// The phase.
    pub phase: Phase,
    /// The devices that compute them in the plan.
    pub here: Vec<String>,
    /// The other device.
    pub other: String,
    /// Break-even along the batch.
    pub batch: TurningPoint,
    /// Break-even along the prompt in prefill, along the context in decode; absent for matrices in
    /// decode, whose time does not depend on the context.
    pub tokens: Option<(Axis, TurningPoint)>,
}

/// Every comparison that the homes of weights and KV allow.
pub(super) fn break_evens(
    cost_model: CostModel<'_>,
    placement: &Placement,
    batch_steps: &BatchSteps,
) -> Result<Vec<BreakEven>, PlannerError> {
    let mut found = Vec::new();
    let mut first = 0;
    let runs = placement.runs();
    for (at, run) in runs.iter().enumerate() {
        let alike = || runs.iter().filter(|other| other.layer == run.layer);
        let (seen, dealt) = (runs[..at].iter().any(|other| other.layer == run.layer), alike().count() > 1);
        let count = alike().map(|run| run.count).sum();
        first += if at == 0 { 0 } else { runs[at - 1].count };
        if seen {
            continue;
        }
        for phase in [Phase::Prefill, Phase::Decode] {
            let Some(&step) = batch_steps.kinds(phase).first().map(|steps| &steps[(steps.len() - 1) / 2])
            else {
                continue;
            };
            let here = SteadyRun::new(cost_model, placement, &run.layer, phase)?;
            for scope in scopes(&run.layer) {
                for other in cost_model.machine.device_ids() {
                    let Some(moved) = moved(cost_model, &run.layer, scope, phase, other) else { continue };
                    let there = SteadyRun::new(cost_model, placement, &moved, phase)?;
                    let (batch, tokens) =
                        LayerComparison { here: &here, there: &there, step }.turns(scope)?;
                    let here = devices(cost_model, &run.layer, scope, phase);
                    let other = cost_model.machine.device(other).name.clone();
                    found.push(BreakEven { first, count, dealt, scope, phase, here, other, batch, tokens });
                }
            }
        }
    }
    Ok(found)
}

fn scopes(layer: &LayerPlacement) -> impl Iterator<Item = Scope> {
    let sublayers = layer.kind.sublayers().iter().map(|&sublayer| Scope::Sublayer(sublayer));
    sublayers.chain([Scope::Matrices, Scope::Layer])
}

impl Scope {
    fn includes(self, sublayer: Sublayer) -> bool {
        match self {
            Scope::Sublayer(one) => one == sublayer,
            Scope::Matrices => sublayer != Sublayer::Attention,
            Scope::Layer => true,
        }
    }
}

/// The layer with `scope` computed by `other` in `phase`; `None` where it already is, or where a
/// device cannot reach what it would read.
fn moved(
    cost_model: CostModel<'_>,
    layer: &LayerPlacement,
    scope: Scope,
    phase: Phase,
    other: DeviceId,
) -> Option<LayerPlacement> {
    let mut moved = layer.clone();
    let sublayers = layer.kind.sublayers().iter().zip(moved.sublayers.iter_mut());
    for (&sublayer, slices) in sublayers.filter(|(sublayer, _)| scope.includes(**sublayer)) {
        for slice in slices.iter_mut().filter(|slice| slice.device(phase) != other) {
            if !Home::Whole(slice.home).admits(cost_model.machine, sublayer, other) {
                return None;
            }
            match phase {
                Phase::Prefill => slice.prefill = other,
                Phase::Decode => slice.decode = other,
            }
        }
    }
    (moved != *layer).then_some(moved)
}

fn devices(cost_model: CostModel<'_>, layer: &LayerPlacement, scope: Scope, phase: Phase) -> Vec<String> {
    let slices =
        layer.iter().filter(|(sublayer, _)| scope.includes(*sublayer)).flat_map(|(_, slices)| slices);
    let mut devices: Vec<DeviceId> = slices.map(|slice| slice.device(phase)).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().map(|id| cost_model.machine.device(id).name.clone()).collect()
}

/// Two programs that differ by one layer of a run.
struct SteadyRun<'a> {
    cost_model: CostModel<'a>,
    programs: [Program; 2],
}

impl<'a> SteadyRun<'a> {
    fn new(
        cost_model: CostModel<'a>,
        placement: &Placement,
        layer: &LayerPlacement,
        phase: Phase,
    ) -> Result<Self, PlannerError> {
        let lower = |count: u64| {
            let run = LayerRun { layer: layer.clone(), count };
            Program::lower(cost_model.machine, cost_model.model, &placement.with_runs(&[run]), phase)
        };
        Ok(Self { cost_model, programs: [lower(SETTLED)?, lower(SETTLED + 1)?] })
    }

    /// The time that one more layer adds to `step`, as the longest of the chain, the lanes and the
    /// memories.
    fn time(&self, step: &Step) -> Result<Seconds, MissingRate> {
        let numbers = |program: &Program| {
            Ok::<_, MissingRate>(
                Roofline::new(&self.cost_model, program, step)?.numbers(self.cost_model.machine),
            )
        };
        let (short, long) = (numbers(&self.programs[0])?, numbers(&self.programs[1])?);
        let added = short.iter().zip(&long).map(|(short, long)| long - short);
        Ok(Seconds::new(added.fold(0.0, f64::max)))
    }
}

/// The layer as planned and with something moved.
struct LayerComparison<'a> {
    here: &'a SteadyRun<'a>,
    there: &'a SteadyRun<'a>,
    /// The plan's own step.
    step: Step,
}

impl LayerComparison<'_> {
    fn turns(&self, scope: Scope) -> Result<(TurningPoint, Option<(Axis, TurningPoint)>), MissingRate> {
        let axis = match self.step.phase {
            Phase::Prefill => Some(Axis::PromptTokens),
            Phase::Decode => scope.includes(Sublayer::Attention).then_some(Axis::Context),
        };
        let tokens = axis.map(|axis| Ok((axis, self.turn(axis)?))).transpose()?;
        Ok((self.turn(Axis::Batch)?, tokens))
    }

    fn turn(&self, axis: Axis) -> Result<TurningPoint, MissingRate> {
        let positions = self.here.cost_model.model.max_positions;
        let (own, most) = match axis {
            Axis::Batch => (self.step.batch, MOST_SEQUENCES),
            Axis::PromptTokens => (self.step.new_tokens, positions),
            Axis::Context => (self.step.past_tokens, positions.saturating_sub(1)),
        };
        turn(own.max(1), most.max(own).max(1), |size| self.is_better(axis, size))
    }

    /// Whether the other device is better at this size of `axis`.
    fn is_better(&self, axis: Axis, size: u64) -> Result<bool, MissingRate> {
        let step = match axis {
            Axis::Batch => Step { batch: size, ..self.step },
            Axis::PromptTokens => Step { new_tokens: size, past_tokens: 0, ..self.step },
            Axis::Context => Step { past_tokens: size, ..self.step },
        };
        Ok(self.there.time(&step)? < self.here.time(&step)? * BETTER)
    }
}

/// The size beside `own` at which `better` becomes true: powers of two up to `most` first, then
/// bisection.
fn turn<E>(own: u64, most: u64, mut better: impl FnMut(u64) -> Result<bool, E>) -> Result<TurningPoint, E> {
    let mut turn = TurningPoint { already: better(own)?, from: None, up_to: None, searched: most };
    if turn.already {
        return Ok(turn);
    }
    let powers = || (0..u64::BITS).map(|bit| 1 << bit);
    let mut worse = own;
    for size in powers().filter(|&size| own < size && size < most).chain((own < most).then_some(most)) {
        if better(size)? {
            turn.from = Some(halved(worse, size, &mut better)?);
            break;
        }
        worse = size;
    }
    let mut worse = own;
    for size in powers().filter(|&size| size < own).collect::<Vec<_>>().into_iter().rev() {
        if better(size)? {
            turn.up_to = Some(halved(worse, size, &mut better)?);
            break;
        }
        worse = size;
    }
    Ok(turn)
}

/// The size between `worse` and `good`, nearest to `worse`, that is better while its neighbour is
/// not.
fn halved<E>(
    mut worse: u64,
    mut good: u64,
    better: &mut impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    while worse.abs_diff(good) > 1 {
        let middle = worse.midpoint(good);
        if better(middle)? { good = middle } else { worse = middle }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Spec, formats, model};
    use hwprofiles::MemoryId;
    use scenarios::Workload;

    const CPU: DeviceId = DeviceId(0);

    #[test]
    fn a_break_even_is_where_the_cheaper_device_changes() {
        let (model, formats) = (model(4, 1024), formats());
        let mut turns = 0;
        for spec in [Spec::gpu(1 << 30), Spec { link: 2e11, latency: 1e-6, ..Spec::gpu(1 << 30) }] {
            let machine = spec.machine(&model);
            let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
            let placement = Placement::uniform(&model, CPU, MemoryId(0));
            let batch_steps = BatchSteps::new(&Workload::new(2, 96, 32), 96);
            for row in break_evens(cost_model, &placement, &batch_steps).unwrap() {
                let layer = &placement.layers[0];
                let other = machine.device_named(&row.other).unwrap();
                let there = moved(cost_model, layer, row.scope, row.phase, other).unwrap();
                let [here, there] = [layer, &there]
                    .map(|layer| SteadyRun::new(cost_model, &placement, layer, row.phase).unwrap());
                let step = match row.phase {
                    Phase::Prefill => batch_steps.prefill[0][0],
                    Phase::Decode => batch_steps.decode,
                };
                let gains = |batch: u64| {
                    let step = Step { batch, ..step };
                    there.time(&step).unwrap() < here.time(&step).unwrap()
                };
                assert_eq!(gains(step.batch), row.batch.already, "{row:?}");
                if let Some(from) = row.batch.from {
                    assert!(gains(from) && !gains(from - 1), "{row:?}");
                    turns += 1;
                }
                if let Some(up_to) = row.batch.up_to {
                    assert!(gains(up_to) && !gains(up_to + 1), "{row:?}");
                    turns += 1;
                }
            }
        }
        assert!(turns >= 4, "{turns}");
    }

    #[test]
    fn streaming_pays_from_the_batch_at_which_the_host_computes_as_long_as_the_link_carries() {
        // bytes ÷ link = 2 · batch elements ÷ rate, so the batch is rate ÷ link where a weight has
        // two bytes.
        let (model, formats) = (model(4, 1024), formats());
        let spec = Spec { latency: 1e-9, launch: [1e-9, 1e-9], sync: 1e-9, ..Spec::gpu(1 << 30) };
        let machine = spec.machine(&model);
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let placement = Placement::uniform(&model, CPU, MemoryId(0));
        let found =
            break_evens(cost_model, &placement, &BatchSteps::new(&Workload::new(2, 96, 32), 96)).unwrap();
        let row =
            found.iter().find(|row| row.scope == Scope::Matrices && row.phase == Phase::Decode).unwrap();
        let (from, expected) = (row.batch.from.unwrap() as f64, spec.flop[0] / spec.link);
        assert!((from / expected - 1.0).abs() < 0.1, "{from} and {expected}");
    }

    #[test]
    fn turns_are_found_exactly_on_either_side() {
        for edge in 1..200 {
            let up = turn(40, 199, |size| Ok::<_, ()>(size >= edge)).unwrap();
            let down = turn(40, 199, |size| Ok::<_, ()>(size <= edge)).unwrap();
            assert_eq!((up.already, up.from), (edge <= 40, (edge > 40).then_some(edge)));
            assert_eq!((down.already, down.up_to), (edge >= 40, (edge < 40).then_some(edge)));
        }
        assert_eq!(turn(40, 199, |_| Ok::<_, ()>(false)).unwrap().from, None);
    }
}
