//! Chooses the devices again between two decode steps, when batch and context have changed or a
//! device has become slower. Weights and KV stay where they are.
//!
//! All slow work is done beforehand: for each node of a grid of batches and contexts, the choices
//! of devices for each run of layers are priced. A decision interpolates between four nodes, scales
//! each device's work, and searches the combinations of all runs for the least value of the longest
//! of: the chain of all runs, and the busy time of each link and each memory.

use crate::cost::CostModel;
use crate::error::PlannerError;
use crate::placement::Placement;
use crate::replan::compute_choice::{CostLayout, PlacedRun, ways};
use hwprofiles::{DeviceId, Ratio, Seconds};

/// The most combinations that a decision tries. Promising ones come first, so later ones gain
/// little.
const NODES: u32 = 4_000;

/// The choices of one run.
#[derive(Debug, Clone, PartialEq)]
struct RunChoices {
    layers: u64,
    /// Of each choice.
    leads: Vec<Vec<DeviceId>>,
    /// Of each choice.
    pairs: Vec<Vec<[usize; 2]>>,
    /// By batch and context (contexts vary fastest), then by choice: costs.
    nodes: Vec<Vec<Vec<f64>>>,
}

/// Chooses devices for a placement under present conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct Replanner {
    form: CostLayout,
    batches: Vec<u64>,
    contexts: Vec<u64>,
    runs: Vec<RunChoices>,
    /// For each run its choices by ascending chain: the chain, the choice, and the busy time of
    /// each lane for all its layers.
    now: Vec<Vec<(f64, usize, Vec<f64>)>>,
    cost: Vec<f64>,
    /// From each run on, the least values of chain and lanes.
    least: Vec<(f64, Vec<f64>)>,
    sums: Vec<Vec<f64>>,
    chosen: Vec<usize>,
    best: Vec<usize>,
}

/// The chosen devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision<'r> {
    /// The time of a decode step: the longest of chain, links and memories, without further
    /// contention.
    pub tpot: Seconds,
    runs: &'r [RunChoices],
    chosen: &'r [usize],
}

impl Decision<'_> {
    /// For embed and head, then each run of the placement in its order: the number of layers, and
    /// the device of each sublayer in decode (for a divided one, the device of its first part).
    pub fn runs(&self) -> impl Iterator<Item = (u64, &[DeviceId])> {
        self.runs.iter().zip(self.chosen).map(|(run, &way)| (run.layers, &run.leads[way][..]))
    }
}

impl Replanner {
    /// A replanner for `placement` with nodes at each of `batches` and `contexts`. Costs are
    /// interpolated between nodes; beyond them, the edge is used.
    ///
    /// # Errors
    /// [`PlannerError::Missing`] where a rate was not measured; [`PlannerError::Divided`] where a
    /// matrix is divided in a way that the planner does not use; [`PlannerError::NoPlacement`]
    /// without nodes, or where a run cannot be computed.
    pub fn new(
        cost_model: CostModel<'_>,
        placement: &Placement,
        batches: &[u64],
        contexts: &[u64],
    ) -> Result<Self, PlannerError> {
        let form = CostLayout::new(cost_model.machine);
        let lots = PlacedRun::from_placement(cost_model.machine, cost_model.model, placement)?;
        let sorted = |values: &[u64]| {
            let mut values: Vec<u64> = values.iter().map(|&value| value.max(1)).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let (batches, contexts) = (sorted(batches), sorted(contexts));
        let mut runs: Vec<RunChoices> = lots.iter().map(|lot| RunChoices::empty(lot.layers)).collect();
        for &batch in &batches {
            for &context in &contexts {
                for (run, ways) in runs.iter_mut().zip(ways(cost_model, &lots, batch, context)?) {
                    run.leads = ways.iter().map(|way| way.leads.clone()).collect();
                    run.pairs = ways.iter().map(|way| way.pairs.clone()).collect();
                    run.nodes.push(ways.into_iter().map(|way| way.cost).collect());
                }
            }
        }
        runs.iter_mut().for_each(RunChoices::thin);
        if batches.is_empty() || contexts.is_empty() || runs.iter().any(|run| run.leads.is_empty()) {
            let change = "a replanner needs a batch, a context, and a device for each run".into();
            return Err(PlannerError::NoPlacement { change });
        }
        let count = runs.len();
        Ok(Self {
            form,
            batches,
            contexts,
            now: runs.iter().map(|run| unpriced(run.leads.len(), form.lanes)).collect(),
            runs,
            cost: vec![],
            least: vec![(0.0, vec![0.0; form.lanes]); count + 1],
            sums: vec![vec![0.0; form.lanes]; count + 1],
            chosen: vec![0; count],
            best: vec![0; count],
        })
    }

    /// The best choice for decoding `batch` sequences of `context` tokens each, when each device
    /// takes `slowdown` times its measured time; devices beyond the end of `slowdown` take their
    /// measured time.
    pub fn decide(&mut self, batch: u64, context: u64, slowdown: &[Ratio]) -> Decision<'_> {
        self.price(batch, context, slowdown);
        let mut search = Search {
            now: &self.now,
            least: &self.least,
            sums: &mut self.sums,
            chosen: &mut self.chosen,
            best: &mut self.best,
            value: f64::INFINITY,
            nodes: NODES,
        };
        search.visit(0, 0.0);
        let tpot = Seconds::new(search.value);
        Decision { tpot, runs: &self.runs, chosen: &self.best }
    }

    /// Computes the present cost of every choice.
    fn price(&mut self, batch: u64, context: u64, slowdown: &[Ratio]) {
        let (low, high, more) = between(&self.batches, batch);
        let (near, far, further) = between(&self.contexts, context);
        let width = self.contexts.len();
        let corners = [
            (low * width + near, (1.0 - more) * (1.0 - further)),
            (low * width + far, (1.0 - more) * further),
            (high * width + near, more * (1.0 - further)),
            (high * width + far, more * further),
        ];
        let slower = |device: usize| slowdown.get(device).map_or(1.0, |ratio| ratio.get());
        for (run, now) in self.runs.iter().zip(&mut self.now) {
            let layers = run.layers as f64;
            for (chain, way, busy) in now.iter_mut() {
                self.cost.clear();
                self.cost.resize(run.nodes[0][*way].len(), 0.0);
                for (node, share) in corners.into_iter().filter(|(_, share)| *share > 0.0) {
                    let cost = &run.nodes[node][*way];
                    self.cost.iter_mut().zip(cost).for_each(|(sum, cost)| *sum += share * cost);
                }
                *chain = layers * self.form.chain(&run.pairs[*way], &self.cost, slower);
                let lanes = self.form.busy(&self.cost);
                busy.iter_mut().zip(lanes).for_each(|(busy, lane)| *busy = layers * lane);
            }
            now.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        for at in (0..self.runs.len()).rev() {
            let (before, after) = self.least.split_at_mut(at + 1);
            let ((chain, lanes), (rest, others)) = (&mut before[at], &after[0]);
            *chain = rest + self.now[at][0].0;
            for (lane, sum) in lanes.iter_mut().enumerate() {
                let ways = self.now[at].iter().map(|(_, _, busy)| busy[lane]);
                *sum = others[lane] + ways.fold(f64::INFINITY, f64::min);
            }
        }
    }
}

impl RunChoices {
    fn empty(layers: u64) -> Self {
        Self { layers, leads: vec![], pairs: vec![], nodes: vec![] }
    }

    /// Drops choices that another choice equals or beats in everything at every node, and therefore
    /// between nodes and for any slowdown.
    fn thin(&mut self) {
        let beats = |a: usize, b: usize| {
            self.pairs[a] == self.pairs[b]
                && self.nodes.iter().all(|node| node[a].iter().zip(&node[b]).all(|(a, b)| a <= b))
        };
        let beaten = |way: usize| {
            (0..self.leads.len()).any(|o| o != way && beats(o, way) && (o < way || !beats(way, o)))
        };
        let kept: Vec<usize> = (0..self.leads.len()).filter(|&way| !beaten(way)).collect();
        self.leads = kept.iter().map(|&way| self.leads[way].clone()).collect();
        self.pairs = kept.iter().map(|&way| self.pairs[way].clone()).collect();
        for node in &mut self.nodes {
            *node = kept.iter().map(|&way| node[way].clone()).collect();
        }
    }
}

/// `count` choices without costs.
fn unpriced(ways: usize, lanes: usize) -> Vec<(f64, usize, Vec<f64>)> {
    (0..ways).map(|way| (0.0, way, vec![0.0; lanes])).collect()
}

/// The indices around `value`, and its position between them from 0 to 1.
fn between(nodes: &[u64], value: u64) -> (usize, usize, f64) {
    let above = nodes.partition_point(|&node| node < value);
    match above {
        0 => (0, 0, 0.0),
        _ if above == nodes.len() => (above - 1, above - 1, 0.0),
        _ => {
            let (low, high) = (nodes[above - 1], nodes[above]);
            (above - 1, above, (value - low) as f64 / (high - low) as f64)
        }
    }
}

/// Branch and bound over the choices of each run.
struct Search<'s> {
    now: &'s [Vec<(f64, usize, Vec<f64>)>],
    least: &'s [(f64, Vec<f64>)],
    /// The lanes of the runs before each one.
    sums: &'s mut [Vec<f64>],
    chosen: &'s mut [usize],
    best: &'s mut [usize],
    value: f64,
    nodes: u32,
}

impl Search<'_> {
    fn visit(&mut self, run: usize, chain: f64) {
        let Some(ways) = self.now.get(run) else {
            let value = self.sums[run].iter().fold(chain, |most, &lane| most.max(lane));
            if value < self.value {
                self.value = value;
                self.best.copy_from_slice(self.chosen);
            }
            return;
        };
        for (more, way, busy) in ways {
            let (rest, others) = &self.least[run + 1];
            // Choices come by ascending chain, so later ones are no better.
            if chain + more + rest >= self.value || self.nodes == 0 {
                return;
            }
            self.nodes -= 1;
            let (before, after) = self.sums.split_at_mut(run + 1);
            let mut most = 0.0_f64;
            for (lane, sum) in after[0].iter_mut().enumerate() {
                *sum = before[run][lane] + busy[lane];
                most = most.max(*sum + others[lane]);
            }
            if most < self.value {
                self.chosen[run] = *way;
                self.visit(run + 1, chain + more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Spec, formats, model};
    use crate::planning::{Problem, plan};
    use crate::program::PhaseTimes;
    use hwprofiles::Machine;
    use proptest::prelude::*;
    use scenarios::{Costs, Model, Objective, Requirements, Slo, Workload};

    const BATCHES: [u64; 3] = [1, 4, 16];
    const CONTEXTS: [u64; 3] = [64, 256, 1024];

    fn planned(machine: &Machine, model: &Model) -> Placement {
        let formats = formats();
        let problem = Problem {
            cost_model: CostModel { machine, model, formats: &formats },
            draft: None,
            requirements: Requirements {
                workload: Workload { batch: 4, prompt_tokens: 96, output_tokens: 32, speculation: None },
                objective: Objective::Latency,
                slo: Slo::default(),
                costs: Costs::default(),
            },
        };
        let second = Seconds::new(1.0);
        // So slow that the solver's first result is used.
        let score = |_: &Placement, _: u64| Ok(PhaseTimes { ttft: second, tpot: Some(second) });
        plan(&problem, &score).unwrap().placement(machine, model).unwrap()
    }

    fn replanner(machine: &Machine, model: &Model, placement: &Placement) -> Replanner {
        let formats = formats();
        let cost_model = CostModel { machine, model, formats: &formats };
        Replanner::new(cost_model, placement, &BATCHES, &CONTEXTS).unwrap()
    }

    /// A placement with layers in both memories.
    fn mixed(model: &Model) -> Placement {
        use hwprofiles::{DeviceId, MemoryId};
        let [host, other] = [0, 1].map(|i| Placement::uniform(model, DeviceId(i), MemoryId(i)));
        let layers = host.layers.iter().take(2).chain(&other.layers[2..]).cloned().collect();
        Placement { layers, ..host }
    }

    fn cases() -> Vec<(Machine, Model, Placement)> {
        let model = model(4, 256);
        let specs = [Spec::loopback(2_000_000), Spec::gpu(4_000_000)];
        let machines = specs.map(|spec| spec.machine(&model));
        let of = |machine: Machine| {
            let placements = [planned(&machine, &model), mixed(&model)];
            placements.map(|placement| (machine.clone(), model.clone(), placement))
        };
        machines.into_iter().flat_map(of).collect()
    }

    /// The least value of the longest row over every combination of choices.
    fn brute_force(replanner: &Replanner, node: usize) -> f64 {
        let mut sums = vec![(0.0, vec![0.0; replanner.form.lanes])];
        for run in &replanner.runs {
            let mut longer = Vec::new();
            for (chain, lanes) in &sums {
                for (way, cost) in run.nodes[node].iter().enumerate() {
                    let more = replanner.form.chain(&run.pairs[way], cost, |_| 1.0) * run.layers as f64;
                    let busy = replanner.form.busy(cost).iter().zip(lanes);
                    let lanes: Vec<f64> = busy.map(|(b, sum)| sum + b * run.layers as f64).collect();
                    longer.push((chain + more, lanes));
                }
            }
            sums = longer;
        }
        sums.iter()
            .map(|(chain, lanes)| lanes.iter().fold(*chain, |a, &b| a.max(b)))
            .fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn at_a_node_it_finds_what_brute_force_finds() {
        for (machine, model, placement) in cases() {
            let mut replanner = replanner(&machine, &model, &placement);
            for (node, (b, c)) in BATCHES.iter().flat_map(|b| CONTEXTS.map(|c| (*b, c))).enumerate() {
                let expected = brute_force(&replanner, node);
                let found = replanner.decide(b, c, &[]).tpot.get();
                assert!((found - expected).abs() <= 1e-12 * expected, "{found} and not {expected}");
            }
        }
    }

    #[test]
    fn a_very_slow_host_hands_its_work_over_where_the_homes_admit_it() {
        use hwprofiles::DeviceId;
        let model = model(4, 256);
        let machine = Spec::gpu(4_000_000).machine(&model);
        let mut replanner = replanner(&machine, &model, &mixed(&model));
        let slow = [Ratio::new(1e6).unwrap(), Ratio::ONE];
        let decision = replanner.decide(4, 256, &slow);
        // Embed and head: the token table is never streamed.
        for (_, devices) in decision.runs().skip(1) {
            assert!(devices.iter().all(|&device| device == DeviceId(1)), "{devices:?}");
        }
        let layers: u64 = decision.runs().skip(1).map(|(layers, _)| layers).sum();
        assert_eq!(layers, model.layers);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::cases::cases(64)))]

        #[test]
        fn a_slower_device_never_makes_it_faster(
            batch in 1u64..20, context in 1u64..1200, before in 1.0..4.0f64, more in 1.0..4.0f64, device in 0usize..2,
        ) {
            for (machine, model, placement) in cases() {
                let mut replanner = replanner(&machine, &model, &placement);
                let ratio = |value| Ratio::new(value).unwrap();
                let mut slowdown = [ratio(before), ratio(before)];
                let fast = replanner.decide(batch, context, &slowdown).tpot.get();
                slowdown[device] = ratio(before * more);
                let slow = replanner.decide(batch, context, &slowdown).tpot.get();
                prop_assert!(fast <= slow * (1.0 + 1e-12), "{fast} > {slow}");
            }
        }
    }
}
