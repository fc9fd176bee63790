//! A service run for real, its devices watched: where one becomes slower than planned, that is said, and another placement
//! is followed if it is to be and that is worth what moves.

use crate::exit::{Outcome, Sort};
use crate::pipeline::Planned;
use executor::{Checkpoint, Client, Event, Made, OnGpu, Service, Session};
use hwprofiles::{Bytes, DeviceId, Machine, Ratio, Seconds};
use planner::{Drift, Placement, PlannerError, Pricing, Programs, moved, moving_time};
use scenarios::{Costs, Slo, Workload};
use sim::serving::{Batch, Piece, PlanPrices};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// So often at most passes are compared with the plan: what that takes is taken from the devices.
const EVERY: Duration = Duration::from_millis(20);

/// A session with what it was made of.
pub struct Live<'l> {
    /// The plan that it follows.
    pub planned: &'l Planned,
    /// Its weights.
    pub checkpoint: &'l Checkpoint,
    /// The session.
    pub session: Session,
    /// Whether other placements are followed.
    pub replans: bool,
    /// Set to end the run.
    pub interrupted: &'l AtomicBool,
}

impl Live<'_> {
    /// Answers the requests of `service` until none is left or the run is ended; `on` hears of everything. What devices do
    /// is said on stderr. Where one fails, who ran has been answered with what there was.
    pub fn serve<C: Client>(&mut self, service: &mut Service<C>, mut on: impl FnMut(Event)) -> Outcome {
        let planned = self.planned;
        let mut drift = Drift::new(planned.machine.devices.len());
        let mut placement = planned.placement.clone();
        loop {
            let programs = Programs::lower(&planned.machine, &planned.model, &placement).or_input()?;
            let prices = RefCell::new(PlanPrices::new(planned.pricing(), &programs));
            let (another, mut next, mut looked) = (AtomicBool::new(false), None, Duration::ZERO);
            let pause = || self.interrupted.load(Ordering::Acquire) || another.load(Ordering::Acquire);
            let served = self.session.serve(service, &pause, |event| {
                if let Event::Made(made) = &event
                    && made.end >= looked + EVERY
                {
                    looked = made.end;
                    let told = compare(&mut prices.borrow_mut(), &mut drift, made);
                    told.iter().for_each(|&device| say(&planned.machine, device, &drift, made.end));
                    if self.replans && !told.is_empty() {
                        next = better(planned, &placement, &drift.slowdown());
                        another.store(next.is_some(), Ordering::Release);
                    }
                }
                on(event);
            });
            served.or_failed()?;
            let Some(found) = next.filter(|_| !self.interrupted.load(Ordering::Acquire)) else {
                self.say_passes();
                return Ok(());
            };
            crate::terminal::errln!("note: {found}");
            self.session.follow(found.placement.clone(), self.checkpoint).or_failed()?;
            placement = found.placement;
        }
    }
}

impl Live<'_> {
    /// Says how a GPU got its passes, where there is one.
    pub fn say_passes(&self) {
        if let Some(OnGpu { device, launched, replayed }) = self.session.on_gpu() {
            crate::terminal::errln!(
                "note: '{device}': {replayed} passes replayed as graphs, {launched} in launches"
            );
        }
    }
}

/// What devices took for a pass beside what was planned: those that have become slow, or as fast as planned again.
fn compare(prices: &mut PlanPrices<'_>, drift: &mut Drift, made: &Made) -> Vec<DeviceId> {
    let pieces: Vec<_> = made.entered.iter().map(|&[past, new]| Piece { new, past }).collect();
    let Made { decodes, decode_tokens, sampled, .. } = *made;
    // What was not measured of a device cannot be planned, and was refused before.
    let Ok(planned) = prices.busy(&Batch { pieces: &pieces, decodes, decode_tokens, sampled }) else {
        return vec![];
    };
    let times = planned.iter().zip(&made.busy).enumerate();
    let devices = times.map(|(device, (&planned, busy))| (DeviceId(device), planned, busy.as_secs_f64()));
    let told = devices
        .filter(|&(device, planned, busy)| drift.observe(device, planned, Seconds::new(busy)).is_some());
    told.map(|(device, ..)| device).collect()
}

fn say(machine: &Machine, device: DeviceId, drift: &Drift, at: Duration) {
    let (name, at) = (&machine.device(device).name, Seconds::new(at.as_secs_f64()));
    let times = drift.slowdown()[device.0];
    if times == Ratio::ONE {
        return crate::terminal::errln!("note: at {at}: '{name}' is as fast as planned again");
    }
    let times = times.get();
    crate::terminal::errln!(
        "note: at {at}: '{name}' takes {times:.1} times as long as planned: does another process use its cores?"
    );
}

/// A placement that is better while devices are slow.
#[derive(Debug, Clone, PartialEq)]
pub struct Better {
    /// It.
    pub placement: Placement,
    /// Time per output token with the present one, and with it.
    pub tpot: [Seconds; 2],
    /// What moves, and how long that takes.
    pub moves: (Bytes, Seconds),
}

impl std::fmt::Display for Better {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([now, then], (bytes, time)) = (self.tpot, self.moves);
        write!(f, "planned again: TPOT {then} instead of {now}; {bytes} moved in {time}")
    }
}

/// The placement that the planner would choose for devices that take `slowdown` times as long as they were measured to, in
/// as many micro-batches; where it saves more in the plan's decode steps than moving there takes.
pub fn better(planned: &Planned, present: &Placement, slowdown: &[Ratio]) -> Option<Better> {
    let mut machine = planned.machine.clone();
    for (device, slowdown) in machine.devices.iter_mut().zip(slowdown) {
        *device = device.slower(*slowdown);
    }
    let pricing = Pricing { machine: &machine, ..planned.pricing() };
    let load = planned.plan.workload;
    let (chunk, objective) = (planned.plan.prefill_chunk, planned.plan.objective);
    let score = |placement: &Placement, chunk: u64| sim::estimate(pricing, placement, &load, chunk);
    let (slo, costs) = (Slo::default(), Costs::default());
    let question = planner::Question { pricing, workload: load, objective, slo, costs, draft: None };
    let plan = planner::plan(&question, &score).ok()?;
    let mut placement = plan.placement(&machine, &planned.model).ok()?;
    placement.pipelining.micro_batches = present.pipelining.micro_batches;
    let decode = |placement| -> Result<Seconds, PlannerError> {
        Ok(sim::estimate(pricing, placement, &load, chunk)?.tpot.unwrap_or(Seconds::ZERO))
    };
    let tpot = [decode(present).ok()?, decode(&placement).ok()?];
    let Workload { batch, .. } = load;
    let moves = moved(pricing, present, &placement, batch * load.context());
    let time = moving_time(pricing, &moves)?;
    let saved = (tpot[0].get() - tpot[1].get()) * load.decode_steps() as f64;
    let bytes = moves.values().copied().sum();
    (placement != *present && saved > time.get()).then_some(Better { placement, tpot, moves: (bytes, time) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Question;
    use scenarios::{Document, Scenario};

    fn planned() -> Planned {
        let scenario = "machine: example-loopback\nmodel: fulcrum-tiny\n\
            workload: {batch: 2, prompt_tokens: 64, output_tokens: 256}\n";
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("scenario.yaml");
        std::fs::write(&path, scenario).expect("written");
        let scenario: Scenario =
            Document::from_file(&path).and_then(|it| it.scenario_with(&[])).expect("valid");
        Question::of(&scenario).and_then(|question| question.plan()).unwrap_or_else(|why| panic!("{why:?}"))
    }

    /// Whatever devices take: what is followed instead is faster, saves more than moving takes, and fits.
    #[test]
    fn another_placement_is_followed_only_where_it_saves_more_than_its_moves_take() {
        let planned = planned();
        let alike = vec![Ratio::ONE; planned.machine.devices.len()];
        assert_eq!(
            better(&planned, &planned.placement, &alike),
            None,
            "the plan is the best as long as it holds"
        );
        let mut found = 0;
        for device in planned.machine.device_ids() {
            for times in [2.0, 8.0, 50.0] {
                let mut slowdown = alike.clone();
                slowdown[device.0] = Ratio::new(times).expect("positive");
                let Some(better) = better(&planned, &planned.placement, &slowdown) else { continue };
                found += 1;
                let [now, then] = better.tpot.map(|tpot| tpot.get());
                let steps = planned.plan.workload.decode_steps() as f64;
                assert!(then < now && (now - then) * steps > better.moves.1.get(), "{better}");
                assert_ne!(better.placement, planned.placement);
                Programs::lower(&planned.machine, &planned.model, &better.placement).expect("it runs");
            }
        }
        assert!(found > 0, "what is 50 times as slow is worth leaving");
    }

    /// Measured times that tell of a device that something else slows down, without anything that does.
    #[test]
    fn a_device_that_passes_tell_to_be_slow_is_noticed() {
        let planned = planned();
        let programs =
            Programs::lower(&planned.machine, &planned.model, &planned.placement).expect("it runs");
        let mut prices = PlanPrices::new(planned.pricing(), &programs);
        let batch = Batch { pieces: &[], decodes: 2, decode_tokens: 200, sampled: 2 };
        let busy = prices.busy(&batch).expect("priced");
        let at_work = busy.iter().position(|&busy| busy > Seconds::ZERO).expect("a device works");
        let made = |slower: f64| Made {
            phase: scenarios::Phase::Decode,
            begin: Duration::ZERO,
            end: Duration::ZERO,
            busy: busy.iter().map(|busy| Duration::from_secs_f64(busy.get() * slower)).collect(),
            entered: vec![],
            decodes: 2,
            decode_tokens: 200,
            sampled: 2,
        };
        let mut drift = Drift::new(busy.len());
        let mut told = |slower: f64| {
            (0..30).flat_map(|_| compare(&mut prices, &mut drift, &made(slower))).collect::<Vec<_>>()
        };
        assert_eq!(told(1.1), []);
        let slow = told(3.0);
        assert!(slow.contains(&DeviceId(at_work)), "{slow:?}");
        assert_eq!(told(3.0), [], "once is enough");
        assert_eq!(told(1.0).len(), slow.len());
    }
}
