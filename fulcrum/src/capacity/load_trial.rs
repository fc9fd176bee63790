//! Days of more and of fewer requests on one machine: the largest load within the limits.

use crate::error::{Error, OrError, Result};
use crate::pipeline::PreparedScenario;
use crate::serve::{DayTables, ServedDay, ServingPlacement, serve_day_on};
use hwprofiles::{Ratio, Seconds};
use reports::capacity::LoadPoint;
use scenarios::{LoadUnit, OfferedLoad, Requests, Serving};
use sim::serving::{LatencyStats, Summary};
use sim::{CapacityBracket, SearchPrecision};

/// A load is found to a fiftieth.
const FINE: f64 = 0.02;

/// How many times the limit on TTFT a day lasts. On a machine that serves a hundredth too slowly,
/// more than one request in a hundred then waits too long at the day's end.
const WAITS: f64 = 100.0;

/// How many times the limit on an answer a day lasts, so that most of it is not the filling of the
/// batch.
const ANSWERS: f64 = 20.0;

/// How many times the limit on TTFT the day of a trace lasts at least. It is shorter than a day of
/// drawn requests may be, since there are no more than were recorded.
const RECORDED_WAITS: f64 = 10.0;

/// How many times the limit on an answer the day of a trace lasts at least.
const RECORDED_ANSWERS: f64 = 2.0;

/// The most users that a scenario may have.
const MOST_USERS: f64 = 1_048_576.0;

/// The most requests of a day, unless the scenario asks for more.
const MOST_REQUESTS: f64 = 200_000.0;

/// One machine and the requests that come to it. Loads are requests per second, or users.
pub(crate) struct LoadTrial<'q> {
    scenario: &'q PreparedScenario,
    serving: Serving,
    unit: LoadUnit,
    /// The share of requests that must keep every limit.
    attainment: f64,
    /// The load as the scenario writes it.
    own: f64,
    /// How long an answer may take within the limits.
    answer: Seconds,
    /// The fewest requests of a day, for a load of one.
    requests: f64,
    /// How long a user's answer and thoughts may take; for requests without users, the answer.
    cycle: Seconds,
    /// The requests of a trace, and the least time of a day of them.
    recorded: Option<(u64, Seconds)>,
}

/// The largest load within the limits.
pub(crate) struct LargestLoad {
    /// The load, and its day.
    pub(crate) within: (f64, ServedDay),
    /// The smallest load beyond the limits that was tried, and its day.
    pub(crate) beyond: Option<(f64, ServedDay)>,
    /// Every load that was tried.
    pub(crate) curve: Vec<LoadPoint>,
}

/// What a search for the largest load found.
pub(crate) enum LoadSearch {
    /// Loads up to one keep the limits.
    Within(Box<LargestLoad>),
    /// No load keeps the limits; the day of the smallest.
    Nowhere(Box<ServedDay>),
}

impl<'q> LoadTrial<'q> {
    /// The trial of the requests `serving`, of which the share `attainment` must keep the limits of
    /// `scenario`.
    pub(crate) fn new(scenario: &'q PreparedScenario, serving: &Serving, attainment: f64) -> Result<Self> {
        let own = serving.requests.offered_load().or_input()?;
        let no_load = || {
            Error::input(
                "workload.trace: all requests come at the same time: capacity needs a trace that spans some time",
            )
        };
        let OfferedLoad { amount: own, recorded, .. } = own.ok_or_else(no_load)?;
        let slo = scenario.slo();
        let ttft = slo.ttft.ok_or_else(|| {
            Error::input("slo.ttft is missing: capacity needs a limit, as `slo: {ttft: 1 s}`")
        })?;
        let output = match &serving.requests {
            Requests::Open { output, .. } | Requests::Closed { output, .. } => output.mean(),
            Requests::Trace { .. } => scenario.workload().output_tokens as f64,
        };
        let answer = ttft + slo.tpot.map_or(Seconds::ZERO, |tpot| tpot * output);
        let window = (ttft * WAITS).max(answer * ANSWERS);
        let (mut serving, unit) = (serving.clone(), serving.requests.load_unit());
        let (mut least, mut cycle) = (window.get(), answer);
        if let Requests::Closed { think, ramp, requests, .. } = &mut serving.requests {
            // Users who begin together wait for each other once, which users of a long day do not.
            cycle = answer + think.mean();
            *ramp = ramp.max(cycle);
            least = (window / cycle).max(*requests as f64 / own);
            *requests = 1;
        }
        let shortest = (ttft * RECORDED_WAITS).max(answer * RECORDED_ANSWERS);
        let recorded = recorded.map(|requests| (requests, shortest));
        Ok(Self { scenario, serving, unit, attainment, own, answer, requests: least, cycle, recorded })
    }

    /// A day of this load.
    pub(crate) fn day(&self, placed: &ServingPlacement, load: f64) -> Result<ServedDay> {
        let least = (load * self.requests).min(MOST_REQUESTS).ceil() as u64;
        let own = self.own;
        let no_ratio = || Error::input(format!("the workload's load of {own} cannot be scaled to {load}"));
        let faster = Ratio::new(load / own).ok_or_else(no_ratio)?;
        let requests = self.serving.requests.scaled(faster, least);
        let serving = Serving { requests, ..self.serving.clone() };
        serve_day_on(self.scenario, &serving, placed.clone(), DayTables::default())
    }

    /// From a load at which requests hardly ever meet, or one user, to more than a machine serves.
    fn range(&self) -> [f64; 2] {
        match self.unit {
            LoadUnit::Requests => {
                let most = MOST_REQUESTS / self.answer.get();
                let recorded = self.recorded.map(|(requests, day)| requests as f64 / day.get());
                [0.02 / self.answer.get(), recorded.map_or(most, |recorded| most.min(recorded))]
            }
            LoadUnit::Users => [1.0, MOST_USERS],
        }
    }

    /// A load at which an answer ends about when the next request comes. A search begins there,
    /// whatever load is asked for.
    pub(crate) fn one_at_a_time(&self) -> f64 {
        match self.unit {
            LoadUnit::Requests => 1.0 / self.answer.get(),
            LoadUnit::Users => self.cycle / self.answer,
        }
    }

    /// The largest load within the limits, searched from `start` on.
    pub(crate) fn largest(&self, placed: &ServingPlacement, start: f64) -> Result<LoadSearch> {
        let (mut within, mut beyond) = (None::<(f64, ServedDay)>, None::<(f64, ServedDay)>);
        let mut curve = Vec::new();
        let [least, most] = self.range();
        if let Some(short) = self.recorded.filter(|_| most <= least) {
            return Err(too_short(short, least));
        }
        let start = start.clamp(least, most);
        let precision = match self.unit {
            LoadUnit::Requests => SearchPrecision::Share(FINE),
            LoadUnit::Users => SearchPrecision::WholeShare(FINE),
        };
        let found = sim::search_capacity([least, most], start, precision, |load| -> Result<bool> {
            let day = self.day(placed, load)?;
            let keeps = day.summary.slo_attainment >= self.attainment;
            let closer = |known: &Option<(f64, ServedDay)>| match known {
                None => true,
                Some((other, _)) if keeps => load > *other,
                Some((other, _)) => load < *other,
            };
            curve.push(LoadPoint::from_summary(load, &day.summary));
            let place = if keeps { &mut within } else { &mut beyond };
            if closer(place) {
                *place = Some((load, day));
            }
            Ok(keeps)
        })?;
        if let (Some(short), CapacityBracket::Most(load)) = (self.recorded, &found) {
            return Err(too_short(short, *load));
        }
        curve.sort_by(|one, other| one.load.total_cmp(&other.load));
        Ok(match (found, within, beyond) {
            (CapacityBracket::None(_), _, Some((_, day))) => LoadSearch::Nowhere(Box::new(day)),
            (_, Some(within), beyond) => LoadSearch::Within(Box::new(LargestLoad { within, beyond, curve })),
            _ => unreachable!("every load that is found was tried"),
        })
    }

    /// Why a day's requests do not keep the limits: the limit that is missed most, and by how much.
    pub(crate) fn fails(&self, day: &Summary) -> String {
        let slo = self.scenario.slo();
        let limits = [("slo.ttft", slo.ttft, &day.ttft_s), ("slo.tpot", slo.tpot, &day.tpot_s)];
        let missed = limits.into_iter().filter_map(|(name, limit, times)| {
            let (limit, (quantile, time)) = (limit?, self.quantile(times));
            let text = format!("{name}: {quantile} {time}, not {limit}");
            (time > limit).then_some((time / limit, text))
        });
        match missed.max_by(|one, other| one.0.total_cmp(&other.0)) {
            Some((_, text)) => text,
            None if day.requests.rejected > 0 => {
                let reasons: Vec<_> = day.requests.rejected_for.keys().map(String::as_str).collect();
                format!("{} requests refused: {}", day.requests.rejected, reasons.join(", "))
            }
            None => "slo.ttft and slo.tpot together".to_owned(),
        }
    }

    /// The smallest quantile that covers the required share of requests.
    fn quantile(&self, times: &LatencyStats) -> (&'static str, Seconds) {
        let all = [
            ("p50", 0.5, times.p50),
            ("p90", 0.9, times.p90),
            ("p95", 0.95, times.p95),
            ("p99", 0.99, times.p99),
        ];
        let enough = all.into_iter().find(|(_, share, _)| *share >= self.attainment);
        let (name, _, time) = enough.unwrap_or(("max", 1.0, times.max));
        (name, Seconds::new(time))
    }
}

/// The error of a trace whose requests do not last at the load that a machine serves.
fn too_short((requests, day): (u64, Seconds), load: f64) -> Error {
    let needed = (2.0 * load * day.get()).ceil();
    Error::input(format!(
        "workload.trace has {requests} requests, too few to find what a machine serves: at {load:.3} req/s or more they \
         last {:.3} s, and a day takes {day} at least. Give a trace of {needed} requests or more, or {{arrivals: \
         {{poisson: …}}}}",
        requests as f64 / load
    ))
}
