//! Requests as shifts change them: more of them come, or their prompts are longer.

use super::picos::Picos;
use super::request::Request;
use super::source::Source;
use scenarios::{Change, Shift};

/// Requests of `source`, shifted.
#[derive(Debug, Clone)]
pub struct Shifted<S> {
    source: S,
    busier: Vec<Window>,
    longer: Vec<Window>,
    /// When the last request came, unshifted and shifted.
    last: [Picos; 2],
    /// The prompt of the last request, not longer.
    prompt: u64,
}

/// A factor that holds for a while.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Picos,
    until: Picos,
    factor: f64,
}

impl Window {
    fn of(shift: &Shift, factor: f64) -> Self {
        let until = shift.until.map_or(Picos::MAX, Picos::rounding_up);
        Self { from: Picos::rounding_up(shift.from), until, factor }
    }

    /// The product of the factors of `windows` at `at`.
    fn product(windows: &[Self], at: Picos) -> f64 {
        let within = windows.iter().filter(|window| window.from <= at && at < window.until);
        within.map(|window| window.factor).product()
    }
}

impl<S: Source> Shifted<S> {
    /// `source`, of whose requests more come, and longer ones, while `shifts` say so. Whoever waits for an answer before the
    /// next request comes is not hurried.
    pub fn new(source: S, shifts: &[Shift]) -> Self {
        let (mut busier, mut longer) = (Vec::new(), Vec::new());
        for shift in shifts {
            match shift.change {
                Change::Busier(factor) => busier.push(Window::of(shift, factor.get())),
                Change::Longer(factor) => longer.push(Window::of(shift, factor.get())),
                Change::Slower { .. } => {}
            }
        }
        Self { source, busier, longer, last: [Picos::ZERO; 2], prompt: 0 }
    }

    /// What it shifts.
    pub fn into_inner(self) -> S {
        self.source
    }

    /// When it comes what would come at `arrival`: at n times the rate, a gap passes in an n-th of it.
    fn arrival(&mut self, arrival: Picos) -> Picos {
        if self.busier.is_empty() || self.source.listens() {
            return arrival;
        }
        let [asked, mut at] = self.last;
        let mut left = (arrival - asked).0 as f64;
        loop {
            let factor = Window::product(&self.busier, at);
            let ends = self.busier.iter().flat_map(|window| [window.from, window.until]);
            let end = ends.filter(|&end| end > at).min().unwrap_or(Picos::MAX);
            let room = (end - at).0 as f64 * factor;
            if left <= room {
                at += Picos((left / factor) as u64);
                break;
            }
            (left, at) = (left - room, end);
        }
        self.last = [arrival, at];
        at
    }
}

impl<S: Source> Shifted<S> {
    /// Shifts a request of the source.
    fn shift(&mut self, request: &mut Request) {
        self.prompt = request.prompt_tokens;
        request.arrival = self.arrival(request.arrival);
        let factor = Window::product(&self.longer, request.arrival);
        if factor != 1.0 {
            request.prompt_tokens = ((request.prompt_tokens as f64 * factor).round() as u64).max(1);
        }
    }
}

impl<S: Source> Source for Shifted<S> {
    fn next(&mut self) -> Option<Request> {
        let mut request = self.source.next()?;
        self.shift(&mut request);
        Some(request)
    }

    fn sooner(&mut self, held: &mut Request) {
        if self.source.listens() {
            held.prompt_tokens = self.prompt;
            self.source.sooner(held);
            self.shift(held);
        }
    }

    fn done(&mut self, at: Picos) {
        self.source.done(at);
    }

    fn listens(&self) -> bool {
        self.source.listens()
    }
}
