//! Questions whose answer needs no search: one device has room for the whole model, and nobody
//! computes anything faster.
//!
//! No placement is then better than this device alone, but for what
//! [`DeviceAlone::most_gain`] still allows. So only the prefill chunk is chosen. The plan is kept
//! if the solver would not look for a better one, and if its bound is near enough for the search to
//! end.

use crate::cost::{DeviceAlone, PriceList, least_overlapped};
use crate::error::PlannerError;
use crate::placement::{Home, IdenticalGpus, Placement};
use crate::planning::overlap::{CONCURRENT, Overlap};
use crate::planning::problem::{ENOUGH, PLANNED, Problem, ScoredPlacement, better};
use crate::planning::scorer::Scorer;
use crate::program::{BatchSteps, PhaseTimes, prefill_chunks};
use crate::rules::Rule;
use crate::search::{DeviceWork, Goal, SearchBudget};
use hwprofiles::{DeviceId, DeviceKind, MissingRate, Seconds};
use scenarios::Phase;

/// A plan on one device.
pub(crate) struct OneDevicePlan {
    /// The rule that it follows with the smallest chunk, and its times.
    pub rule: (String, PhaseTimes),
    pub best: ScoredPlacement,
    /// A lower bound of all placements without micro-batches.
    pub least: f64,
}

impl Problem<'_> {
    /// The best plan if it is on one device. `None` if that is not certain.
    pub(crate) fn on_one_device(
        &self,
        goal: &Goal,
        scorer: &Scorer<'_>,
    ) -> Result<Option<OneDevicePlan>, PlannerError> {
        let accelerator = |&id: &DeviceId| self.cost_model.machine.device(id).kind != DeviceKind::Cpu;
        let found = self.cost_model.machine.device_ids().find(accelerator);
        let (rule, device) = found.map_or((Rule::AllCpu, DeviceId(0)), |device| (Rule::AllGpu, device));
        if goal.prices_device_work() || self.draft.is_some() {
            return Ok(None);
        }
        let Some(alone) = DeviceAlone::new(self.cost_model, device) else { return Ok(None) };
        let memory = self.cost_model.machine.device(device).memory;
        let placement = Placement::uniform(self.cost_model.model, device, memory);
        let Some(first) = self.rule_candidate(goal, rule, scorer).ok() else { return Ok(None) };
        if first.placement != placement {
            return Ok(None);
        }
        let rule = (first.name.clone(), first.times);
        let Some(best) = self.best_chunk(goal, &alone, first, scorer)? else { return Ok(None) };
        let bounds = self.bounds(&best)?;
        let best = ScoredPlacement { bounds: Some(bounds), ..best };
        let least = goal.value(&bounds, &DeviceWork::default()) * (1.0 - SearchBudget::PLAN.min_gain);
        if least < best.value * ENOUGH || !goal.keeps(&best.times) {
            return Ok(None);
        }
        let spaces = vec![];
        let overlap = Overlap { problem: self, goal, scorer, spaces, least, draft_value: 0.0 };
        let best = match self.least_overlapped(goal, device, best.chunk)? >= best.value * ENOUGH {
            true => Some(best),
            false => overlap.better(Some(best), None)?,
        };
        Ok(best.map(|best| OneDevicePlan { rule, best, least }))
    }

    /// The placement of `first` with its best chunk. `None` if another placement may be better by
    /// more than the solver looks for.
    fn best_chunk(
        &self,
        goal: &Goal,
        alone: &DeviceAlone<'_>,
        first: ScoredPlacement,
        scorer: &Scorer<'_>,
    ) -> Result<Option<ScoredPlacement>, PlannerError> {
        let steps = |chunk| BatchSteps::new(&self.requirements.workload, chunk);
        let enough = 1.0 - SearchBudget::PLAN.min_gain;
        let gain = |prefill: f64, decode: f64| {
            let [ttft, tpot] = [prefill, decode].map(Seconds::new);
            goal.value(&PhaseTimes { ttft, tpot: Some(tpot) }, &DeviceWork::default())
        };
        let decode = match self.requirements.workload.decode_steps() {
            0 => 0.0,
            _ => alone.most_gain(&steps(first.chunk), Phase::Decode)?,
        };
        let (placement, smallest) = (first.placement.clone(), first.chunk);
        let mut best = first;
        for chunk in prefill_chunks(&self.requirements.workload) {
            let batch_steps = steps(chunk);
            let lost = gain(alone.most_gain(&batch_steps, Phase::Prefill)?, decode);
            if chunk == smallest {
                if lost > best.value * (1.0 - enough) {
                    return Ok(None);
                }
                continue;
            }
            let next = self.scored(goal, PLANNED, placement.clone(), chunk, scorer)?;
            let fits = self.fits(&next)?;
            if lost > next.value * (1.0 - enough) || !fits && next.value - lost < best.value * enough {
                return Ok(None);
            }
            if fits {
                best = better(goal, Some(best), next).expect("one of two");
            }
        }
        Ok(Some(best))
    }

    /// A lower bound of all placements in micro-batches, from the work of `device`; infinite where
    /// there are none.
    fn least_overlapped(&self, goal: &Goal, device: DeviceId, chunk: u64) -> Result<f64, MissingRate> {
        let workload = &self.requirements.workload;
        if self.cost_model.machine.devices.len() < 2 || workload.batch < CONCURRENT {
            return Ok(f64::INFINITY);
        }
        let homes = Home::all(self.cost_model.machine, self.cost_model.model, &IdenticalGpus::none());
        let batch_steps = BatchSteps::new(workload, chunk).with_micro_batches(CONCURRENT);
        let least = |phase| -> Result<Seconds, MissingRate> {
            let list = PriceList::new(self.cost_model, &batch_steps, phase, &homes)?;
            Ok(Seconds::new(least_overlapped(&list, homes.len(), device)))
        };
        let times = PhaseTimes { ttft: least(Phase::Prefill)?, tpot: Some(least(Phase::Decode)?) };
        Ok(goal.value(&times, &DeviceWork::default()))
    }
}
