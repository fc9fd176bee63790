//! Successive halving (Jamieson and Talwalkar, 2016): every point is tried with little, like few
//! requests, and the better ones with more.

use crate::error::{Error, Result};
use reports::statistics::rank_correlation;
use scenarios::Setting;
use serde_json::{Value, json};

/// A key whose values cost more and more, and the share of points that go on from each.
#[derive(Debug, Clone)]
pub struct Halving {
    /// The key and its values: with the first all points are run, the last is the one that counts.
    pub(crate) steps: Setting,
    /// One of this many points goes on, the best ones; more than 1.
    pub(super) eta: f64,
}

/// What the rungs came to, from the cheapest value to the last.
#[derive(Debug)]
pub struct HalvingLadder {
    key: String,
    rungs: Vec<HalvingRung>,
}

/// The points that were run with one of the values.
#[derive(Debug)]
struct HalvingRung {
    value: Value,
    /// How many points were run.
    points: usize,
    /// The points that have the number by which they are ranked, the best first: the point's
    /// position, and the number, less being better.
    ranked: Vec<(u64, f64)>,
}

impl Halving {
    /// The halving over the values of `steps`, in which one of `eta` points goes on.
    ///
    /// # Errors
    /// There are fewer than two values, or `eta` leaves no point behind.
    pub fn new(steps: Setting, eta: f64) -> Result<Self> {
        if steps.values.len() < 2 {
            return Err(Error::input(format!(
                "--halve {steps}: two values at least are wanted, the cheapest first, like {}=50,200,800",
                steps.key
            )));
        }
        if !(eta > 1.0 && eta.is_finite()) {
            return Err(Error::input(format!(
                "--eta {eta}: more than 1 is wanted, like 3: the best third of a rung goes on"
            )));
        }
        Ok(Self { steps, eta })
    }

    /// How many of this many points go on.
    fn kept(&self, points: usize) -> usize {
        (points as f64 / self.eta).ceil() as usize
    }

    /// The most runs that this many points take.
    pub(crate) fn runs(&self, points: u64) -> u64 {
        let rungs = self.steps.values.iter();
        let sum = rungs.fold((0, points as usize), |(sum, points), _| (sum + points, self.kept(points)));
        sum.0 as u64
    }

    /// The rungs of points 0 to `points`. `run` gets the index of a value and the points to run
    /// with it, and returns the points that have a number, each with its number, less being better.
    pub(crate) fn climb<E>(
        &self,
        points: u64,
        mut run: impl FnMut(usize, &[u64]) -> Result<Vec<(u64, f64)>, E>,
    ) -> Result<HalvingLadder, E> {
        let mut going: Vec<u64> = (0..points).collect();
        let mut rungs: Vec<HalvingRung> = Vec::new();
        for (rung, value) in self.steps.values.iter().enumerate() {
            let mut ranked = run(rung, &going)?;
            ranked.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            let points = going.len();
            going = ranked.iter().take(self.kept(points)).map(|(point, _)| *point).collect();
            going.sort_unstable();
            rungs.push(HalvingRung { value: value.clone(), points, ranked });
            if going.is_empty() {
                break;
            }
        }
        Ok(HalvingLadder { key: self.steps.key.clone(), rungs })
    }
}

/// How well a rung ranks the points, beside the last rung.
struct RankAgreement {
    /// Points that reached both.
    both: usize,
    /// The correlation of their ranks.
    correlation: Option<f64>,
    /// The rank here of the best point of the last rung, from 1.
    place: Option<usize>,
}

impl HalvingLadder {
    /// The rung that each of this many points reached, from 0.
    pub(crate) fn reached(&self, points: usize) -> Vec<usize> {
        let mut reached = vec![0; points];
        for (above, rung) in self.rungs.iter().skip(1).enumerate() {
            // A point without a number on this rung was run on it too.
            let before = &self.rungs[above].ranked;
            before.iter().take(rung.points).for_each(|(point, _)| reached[*point as usize] = above + 1);
        }
        reached
    }

    fn agreement(&self, rung: usize) -> Option<RankAgreement> {
        let (last, own) = (self.rungs.last()?, &self.rungs[rung].ranked);
        self.rungs.get(rung + 1)?;
        let here = |point: u64| own.iter().position(|(other, _)| *other == point);
        let pairs: Vec<_> =
            last.ranked.iter().filter_map(|(point, value)| Some((own[here(*point)?].1, *value))).collect();
        let place = last.ranked.first().and_then(|(best, _)| here(*best));
        Some(RankAgreement {
            both: pairs.len(),
            correlation: rank_correlation(&pairs).filter(|_| pairs.len() >= FEWEST_RANKED),
            place: place.map(|place| place + 1),
        })
    }

    /// The rungs as JSON.
    pub fn to_json(&self) -> Value {
        let rung = |(at, rung): (usize, &HalvingRung)| {
            let agreement = self.agreement(at);
            let agreement = agreement.map(|it| {
                json!({ "points": it.both, "rank_correlation": it.correlation, "place_of_best": it.place })
            });
            json!({ "value": rung.value, "points": rung.points, "ranked": rung.ranked.len(), "against_last": agreement })
        };
        self.rungs.iter().enumerate().map(rung).collect()
    }

    /// The rungs as text: a line for each, and a warning where cheap values mislead.
    pub fn to_text(&self) -> String {
        let mut words = String::new();
        let mut misled = false;
        for (at, rung) in self.rungs.iter().enumerate() {
            words += &format!("{}={}: {} points", self.key, rung.value, rung.points);
            if rung.ranked.len() < rung.points {
                words += &format!(", {} without the number", rung.points - rung.ranked.len());
            }
            if let Some(RankAgreement { both, correlation, place }) = self.agreement(at) {
                let went_on = self.rungs[at + 1].points;
                words += &format!(", {went_on} went on");
                if let Some(correlation) = correlation {
                    words += &format!(
                        "; ranks of the {both} that reached the last value agree by {correlation:.2}"
                    );
                }
                if let Some(place) = place {
                    words += &format!("; the best was number {place} here");
                    // The best point was nearer to being left behind than to the first rank.
                    misled |= 2 * place > went_on + 1;
                }
                misled |= correlation.is_some_and(|correlation| correlation < LEAST_CORRELATION);
            }
            words.push('\n');
        }
        if misled {
            words += "note: a cheap value ranks the points otherwise than the last does, and a better one may have been left behind: take a \
                      smaller --eta, or begin with a larger value\n";
        }
        if self.rungs.last().is_some_and(|rung| rung.ranked.is_empty()) {
            words += "note: no point has the number: none is the best\n";
        }
        words
    }
}

/// A rank correlation below this misleads.
const LEAST_CORRELATION: f64 = 0.5;

/// Ranks of fewer points say nothing.
const FEWEST_RANKED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn halving(eta: f64) -> Halving {
        let steps = "workload.requests=10,30,90".parse().expect("a setting");
        Halving::new(steps, eta).expect("right")
    }

    /// The ladder of points whose number on a rung is `number`, and how many runs it took.
    fn climbed(
        halving: &Halving,
        points: u64,
        number: impl Fn(usize, u64) -> Option<f64>,
    ) -> (HalvingLadder, u64) {
        let mut runs = 0;
        let ladder = halving.climb(points, |rung, positions| {
            runs += positions.len() as u64;
            let all = positions.iter().filter_map(|&point| Some((point, number(rung, point)?)));
            Ok::<_, Infallible>(all.collect())
        });
        (ladder.expect("nothing fails"), runs)
    }

    /// A permutation of the numbers below 101.
    fn shuffled(point: u64) -> f64 {
        (point * 37 % 101) as f64
    }

    #[test]
    fn the_best_of_all_is_found_where_cheap_values_rank_as_the_last_does() {
        for eta in [1.5, 2.0, 3.0, 200.0] {
            let halving = halving(eta);
            let (ladder, runs) = climbed(&halving, 101, |_, point| Some(shuffled(point)));
            assert_eq!(ladder.rungs[2].ranked[0].1, 0.0, "the least of all");
            assert_eq!(runs, halving.runs(101));
            let reached = ladder.reached(101);
            for (rung, climbed) in ladder.rungs.iter().enumerate() {
                assert_eq!(reached.iter().filter(|reached| **reached >= rung).count(), climbed.points);
            }
            // No point that went on is worse than one that did not.
            let (further, behind): (Vec<u64>, Vec<u64>) =
                (0..101).partition(|&point| reached[point as usize] > 0);
            let worst = further.into_iter().map(shuffled).fold(0.0, f64::max);
            assert!(behind.into_iter().all(|point| shuffled(point) > worst));
            assert!(!ladder.to_text().contains("note"), "{}", ladder.to_text());
        }
        let (ladder, _) = climbed(&halving(2.0), 101, |_, point| Some(shuffled(point)));
        assert_eq!(ladder.agreement(0).and_then(|it| it.correlation), Some(1.0));
    }

    #[test]
    fn a_warning_names_cheap_values_that_rank_otherwise() {
        let turned = |rung, point| Some(if rung == 0 { -shuffled(point) } else { shuffled(point) });
        let (ladder, _) = climbed(&halving(3.0), 101, turned);
        assert!(ladder.agreement(0).and_then(|it| it.correlation).is_some_and(|it| it < -0.9));
        assert!(ladder.to_text().contains("left behind"), "{}", ladder.to_text());
        assert_eq!(ladder.to_json()[0]["against_last"]["place_of_best"], 34);
    }

    #[test]
    fn points_without_the_number_do_not_go_on() {
        let (ladder, runs) = climbed(&halving(2.0), 10, |_, point| (point < 3).then_some(point as f64));
        assert_eq!(ladder.reached(10), [2, 2, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(runs, 10 + 3 + 2);
        let (ladder, runs) = climbed(&halving(2.0), 10, |_, _| None);
        assert_eq!((ladder.reached(10), runs), (vec![0; 10], 10));
        assert!(ladder.to_text().contains("none is the best"), "{}", ladder.to_text());
    }

    #[test]
    fn a_halving_that_halves_nothing_is_refused() {
        let steps = |text: &str| text.parse().expect("a setting");
        assert!(Halving::new(steps("workload.requests=10"), 3.0).is_err());
        for eta in [1.0, 0.5, -3.0, f64::NAN, f64::INFINITY] {
            assert!(Halving::new(steps("workload.requests=10,30"), eta).is_err(), "{eta}");
        }
    }
}
