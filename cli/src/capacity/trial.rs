//! Days of more and of fewer requests on one machine: the largest load within the limits.

use crate::exit::{Outcome, Sort};
use crate::pipeline::Question;
use crate::serve::{self, Placed, ServedDay, Tables};
use anyhow::anyhow;
use hwprofiles::{Ratio, Seconds};
use reports::capacity::Loaded;
use scenarios::{LoadUnit, Requests, Serving};
use sim::serving::{Spread, Summary};
use sim::{Fineness, Largest};

/// A load is found to a fiftieth.
const FINE: f64 = 0.02;

/// A day lasts so many times as long as a request may wait for its first token: who is served a hundredth too slowly has more than one
/// in a hundred wait too long at its end.
const WAITS: f64 = 100.0;

/// And so many times as long as an answer may take, so that most of it is not the filling of the batch.
const ANSWERS: f64 = 20.0;

/// A scenario may have no more users.
const MOST_USERS: f64 = 1_048_576.0;

/// No day has more requests than this, unless the scenario asks for more.
const MOST_REQUESTS: f64 = 200_000.0;

/// One machine and the requests that come to it. Loads are requests per second, or users.
pub struct Trial<'q> {
    pub question: &'q Question,
    serving: Serving,
    unit: LoadUnit,
    /// The share of requests that must keep every limit.
    pub attainment: f64,
    /// The load as the scenario writes it.
    own: f64,
    /// How long an answer may take within the limits.
    answer: Seconds,
    /// Requests of a day at least, for a load of one.
    requests: f64,
    /// How long a user's answer and thoughts may take; of requests that come by themselves, their answer.
    cycle: Seconds,
}

/// What was found.
pub struct Reached {
    /// The largest load within the limits, and its day.
    pub within: (f64, ServedDay),
    /// The smallest beyond them that was tried.
    pub beyond: Option<(f64, ServedDay)>,
    /// Every load that was tried.
    pub curve: Vec<Loaded>,
}

impl<'q> Trial<'q> {
    /// That of `question`.
    pub fn new(question: &'q Question, serving: &Serving, attainment: f64) -> Outcome<Self> {
        let own = serving.requests.load().or_input()?;
        let own = own.ok_or_else(|| anyhow!("the trace's requests come all at once: that is no load"));
        let own = own.or_input()?;
        let ttft = question.slo.ttft.ok_or_else(|| anyhow!("slo.ttft is missing")).or_input()?;
        let output = match &serving.requests {
            Requests::Open { output, .. } | Requests::Closed { output, .. } => output.mean(),
            Requests::Trace { .. } => question.workload.output_tokens as f64,
        };
        let answer = ttft + question.slo.tpot.map_or(Seconds::ZERO, |tpot| tpot * output);
        let window = (ttft * WAITS).max(answer * ANSWERS);
        let (mut serving, unit) = (serving.clone(), serving.requests.unit());
        let (mut least, mut cycle) = (window.get(), answer);
        if let Requests::Closed { think, ramp, requests, .. } = &mut serving.requests {
            // Who begins together waits for each other, once: users of a day have long begun.
            cycle = answer + think.mean();
            *ramp = ramp.max(cycle);
            least = (window / cycle).max(*requests as f64 / own);
            *requests = 1;
        }
        Ok(Self { question, serving, unit, attainment, own, answer, requests: least, cycle })
    }

    /// A day of so much.
    pub fn day(&self, placed: &Placed, load: f64) -> Outcome<ServedDay> {
        let least = (load * self.requests).min(MOST_REQUESTS).ceil() as u64;
        let faster = Ratio::new(load / self.own).ok_or_else(|| anyhow!("a load of {load}")).or_input()?;
        let requests = self.serving.requests.denser(faster, least);
        let serving = Serving { requests, ..self.serving.clone() };
        serve::run_on(self.question, &serving, placed.clone(), Tables::default())
    }

    /// From so few requests that hardly two meet, or one user, to more than a machine will serve.
    fn range(&self) -> [f64; 2] {
        match self.unit {
            LoadUnit::Requests => [0.02 / self.answer.get(), MOST_REQUESTS / self.answer.get()],
            LoadUnit::Users => [1.0, MOST_USERS],
        }
    }

    /// A load at which an answer ends about when the next request comes: where a search begins, whatever is asked.
    pub fn one_at_a_time(&self) -> f64 {
        match self.unit {
            LoadUnit::Requests => 1.0 / self.answer.get(),
            LoadUnit::Users => self.cycle / self.answer,
        }
    }

    /// The largest load within the limits, looked for from `start` on; `None`, with the day of the least, where none is.
    pub fn largest(&self, placed: &Placed, start: f64) -> Outcome<Result<Reached, ServedDay>> {
        let (mut within, mut beyond) = (None::<(f64, ServedDay)>, None::<(f64, ServedDay)>);
        let mut curve = Vec::new();
        let fineness = match self.unit {
            LoadUnit::Requests => Fineness::Share(FINE),
            LoadUnit::Users => Fineness::WholeShare(FINE),
        };
        let found = sim::largest(self.range(), start, fineness, |load| {
            let day = self.day(placed, load)?;
            let keeps = day.summary.slo_attainment >= self.attainment;
            let closer = |known: &Option<(f64, ServedDay)>| match known {
                None => true,
                Some((other, _)) => {
                    if keeps {
                        load > *other
                    } else {
                        load < *other
                    }
                }
            };
            curve.push(Loaded::of(load, &day.summary));
            let place = if keeps { &mut within } else { &mut beyond };
            if closer(place) {
                *place = Some((load, day));
            }
            Ok(keeps)
        })?;
        curve.sort_by(|one, other| one.load.total_cmp(&other.load));
        Ok(match (found, within, beyond) {
            (Largest::None(_), _, Some((_, day))) => Err(day),
            (_, Some(within), beyond) => Ok(Reached { within, beyond, curve }),
            _ => unreachable!("what was found was tried"),
        })
    }

    /// Why a day's requests do not keep the limits: which limit, and what it came to.
    pub fn fails(&self, day: &Summary) -> String {
        let slo = &self.question.slo;
        let limits = [("slo.ttft", slo.ttft, &day.ttft_s), ("slo.tpot", slo.tpot, &day.tpot_s)];
        let told = limits.into_iter().filter_map(|(name, limit, times)| {
            let (limit, (quantile, time)) = (limit?, self.quantile(times));
            let text = format!("{name}: {quantile} {time}, not {limit}");
            (time > limit).then_some((time / limit, text))
        });
        match told.max_by(|one, other| one.0.total_cmp(&other.0)) {
            Some((_, text)) => text,
            None if day.requests.rejected > 0 => {
                let reasons: Vec<_> = day.requests.rejected_for.keys().map(String::as_str).collect();
                format!("{} requests refused: {}", day.requests.rejected, reasons.join(", "))
            }
            None => "slo.ttft and slo.tpot together".to_owned(),
        }
    }

    /// The smallest quantile that says what the required share of requests waits.
    fn quantile(&self, times: &Spread) -> (&'static str, Seconds) {
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
