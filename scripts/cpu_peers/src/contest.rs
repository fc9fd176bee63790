//! Contenders for one task, visited in turn.

use std::time::{Duration, Instant};

/// Visits of each contender in one run.
const ROUNDS: usize = 11;
/// Time of one visit, at least.
const VISIT: Duration = Duration::from_millis(40);
/// Before a visit: the former contender's threads stop spinning.
const PAUSE: Duration = Duration::from_millis(20);

/// One implementation of the task.
pub struct Contender<'a> {
    pub name: String,
    /// Whether it is Fulcrum's.
    pub ours: bool,
    pub work: Box<dyn FnMut() + 'a>,
}

impl<'a> Contender<'a> {
    pub fn new(name: impl Into<String>, ours: bool, work: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), ours, work: Box::new(work) }
    }

    /// Seconds of the fastest call of one visit: STREAM's way, blind to what else the machine does.
    fn visit(&mut self) -> f64 {
        std::thread::sleep(PAUSE);
        (self.work)();
        let (begin, mut fastest) = (Instant::now(), f64::INFINITY);
        while begin.elapsed() < VISIT {
            let start = Instant::now();
            (self.work)();
            fastest = fastest.min(start.elapsed().as_secs_f64());
        }
        fastest
    }
}

/// Runs the contest and prints a table; `amount` per call in `unit`·10⁹.
pub fn contest(title: &str, unit: &str, amount: f64, mut contenders: Vec<Contender<'_>>, runs: usize) {
    println!("\n{title}");
    let mut rates = vec![Vec::new(); contenders.len()];
    for _ in 0..runs {
        let mut times = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            let visits = contenders.iter_mut().zip(&mut times);
            visits.for_each(|(contender, times)| times.push(contender.visit()));
        }
        for (rates, times) in rates.iter_mut().zip(&mut times) {
            rates.push(amount * 1e-9 / median(times));
        }
    }
    let best = |ours: bool, run: usize| {
        let of = contenders.iter().zip(&rates).filter(|(contender, _)| contender.ours == ours);
        of.map(|(_, rates)| rates[run]).fold(0.0, f64::max)
    };
    let mut shares: Vec<f64> = (0..runs).map(|run| best(true, run) / best(false, run)).collect();
    for (contender, rates) in contenders.iter().zip(&mut rates) {
        let median = median(rates);
        println!(
            "  {:34} {median:8.1} {unit}  spread of {runs} runs {:4.1} %",
            contender.name,
            spread(rates)
        );
    }
    println!(
        "  ours / better peer: {:.3}, spread of {runs} runs {:.1} %",
        median(&mut shares),
        spread(&shares)
    );
}

/// Largest less smallest, in per cent of the median; of sorted values.
fn spread(sorted: &[f64]) -> f64 {
    100.0 * (sorted[sorted.len() - 1] - sorted[0]) / sorted[sorted.len() / 2]
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
