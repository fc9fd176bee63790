//! Requests under shifts: for a while more of them arrive, or their prompts are longer.

use crate::clock::{SimTime, Tick};
use crate::serving::engine::request::Request;
use crate::serving::fleet::source::RequestSource;
use scenarios::{Shift, ShiftChange};

/// The requests of `source`, changed by shifts.
#[derive(Debug, Clone)]
pub struct ShiftedSource<S> {
    source: S,
    /// When requests arrive at a multiple of their rate.
    rates: Vec<FactorWindow>,
    /// When prompts are longer.
    lengths: Vec<FactorWindow>,
    last: LastArrival,
    /// The original prompt length of the last request.
    prompt_tokens: u64,
}

/// When the last request arrived, without and with shifts.
#[derive(Debug, Clone, Copy)]
struct LastArrival {
    original: SimTime,
    shifted: SimTime,
}

/// A factor that holds for a while.
#[derive(Debug, Clone, Copy)]
struct FactorWindow {
    from: SimTime,
    /// [`SimTime::MAX`] if the window does not end.
    until: SimTime,
    factor: f64,
}

impl FactorWindow {
    fn new(shift: &Shift, factor: f64) -> Self {
        let time = |seconds| SimTime::rounding_up(seconds, Tick::Picosecond);
        Self { from: time(shift.from), until: shift.until.map_or(SimTime::MAX, time), factor }
    }

    /// The product of the factors of `windows` at `at`.
    fn product(windows: &[Self], at: SimTime) -> f64 {
        let within = windows.iter().filter(|window| window.from <= at && at < window.until);
        within.map(|window| window.factor).product()
    }
}

impl<S: RequestSource> ShiftedSource<S> {
    /// The requests of `source` under `shifts`. Requests that depend on answers do not arrive
    /// faster.
    pub fn new(source: S, shifts: &[Shift]) -> Self {
        let (mut rates, mut lengths) = (Vec::new(), Vec::new());
        for shift in shifts {
            match shift.change {
                ShiftChange::Busier(factor) => rates.push(FactorWindow::new(shift, factor.get())),
                ShiftChange::Longer(factor) => lengths.push(FactorWindow::new(shift, factor.get())),
                ShiftChange::Slower { .. } => {}
            }
        }
        let last = LastArrival { original: SimTime::ZERO, shifted: SimTime::ZERO };
        Self { source, rates, lengths, last, prompt_tokens: 0 }
    }

    /// The original source.
    pub fn into_inner(self) -> S {
        self.source
    }

    /// When a request arrives whose original arrival is `arrival`. At n times the rate, a gap
    /// passes in 1/n of it.
    fn arrival(&mut self, arrival: SimTime) -> SimTime {
        if self.rates.is_empty() || self.source.depends_on_answers() {
            return arrival;
        }
        let LastArrival { original, shifted: mut at } = self.last;
        let mut left = (arrival - original).picos() as f64;
        loop {
            let factor = FactorWindow::product(&self.rates, at);
            let ends = self.rates.iter().flat_map(|window| [window.from, window.until]);
            let end = ends.filter(|&end| end > at).min().unwrap_or(SimTime::MAX);
            let room = (end - at).picos() as f64 * factor;
            if left <= room {
                at += SimTime::from_picos((left / factor) as u64);
                break;
            }
            (left, at) = (left - room, end);
        }
        self.last = LastArrival { original: arrival, shifted: at };
        at
    }

    /// Shifts a request of the source.
    fn shift(&mut self, request: &mut Request) {
        self.prompt_tokens = request.prompt_tokens;
        request.arrival = self.arrival(request.arrival);
        let factor = FactorWindow::product(&self.lengths, request.arrival);
        if factor != 1.0 {
            request.prompt_tokens = ((request.prompt_tokens as f64 * factor).round() as u64).max(1);
        }
    }
}

impl<S: RequestSource> RequestSource for ShiftedSource<S> {
    fn next(&mut self) -> Option<Request> {
        let mut request = self.source.next()?;
        self.shift(&mut request);
        Some(request)
    }

    fn replace_if_sooner(&mut self, held: &mut Request) {
        if self.source.depends_on_answers() {
            held.prompt_tokens = self.prompt_tokens;
            self.source.replace_if_sooner(held);
            self.shift(held);
        }
    }

    fn done(&mut self, at: SimTime) {
        self.source.done(at);
    }

    fn depends_on_answers(&self) -> bool {
        self.source.depends_on_answers()
    }
}
