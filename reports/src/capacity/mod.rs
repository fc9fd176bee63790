//! Which machine, how many of them, at what load and price: the answer to `fulcrum capacity`.

mod answer;
mod bottleneck;
mod fleet;
mod output;
mod sensitivity;
mod table;

pub use bottleneck::Bottleneck;
pub use fleet::{Fleet, FleetMachine, FleetTerms, FleetYear, Payback};
pub use sensitivity::{SensitivityBar, sensitivity};

use serde::Serialize;
use sim::serving::Summary;

/// The form of the JSON.
pub const CAPACITY_VERSION: u32 = 2;

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityReport {
    /// [`CAPACITY_VERSION`].
    pub capacity: u32,
    /// Who made it.
    pub version: String,
    /// The model.
    pub model: String,
    /// What was asked, in words.
    #[serde(rename = "asked")]
    pub question: Vec<String>,
    /// The answer, in words.
    pub answer: Vec<String>,
    /// What loads are counted in: `req/s` or `users`.
    pub unit: String,
    /// The load, all together, in the first year.
    pub load: f64,
    /// The machines, in the order asked.
    pub machines: Vec<Candidate>,
    /// What things cost, and who says so.
    pub figures: Vec<Figure>,
}

/// Something that was reckoned with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What.
    #[serde(rename = "what")]
    pub name: String,
    /// How much, with its unit.
    pub value: String,
    /// Who says so.
    pub source: String,
}

/// A machine that may be bought.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// What runs where on it.
    pub plan: String,
    /// The ways to use its GPUs that were tried, where there are several.
    #[serde(rename = "ways", skip_serializing_if = "Vec::is_empty")]
    pub arrangements: Vec<GpuArrangement>,
    /// What it was found to do; absent where it keeps the limits at no load.
    #[serde(flatten)]
    pub result: Option<CapacityResult>,
    /// Why it keeps them at none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
}

/// A way to use all GPUs of a machine: engines side by side, or more GPUs as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuArrangement {
    /// What runs where.
    pub plan: String,
    /// The largest load within the limits; absent where it keeps them at none.
    pub largest_load: Option<f64>,
    /// Which limit fails beyond it.
    pub fails: Option<String>,
}

/// A number with the ends of its band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandedValue {
    /// The number.
    pub value: f64,
    /// With every rate of the machine at the slow end of its 80 % band.
    pub slow: f64,
    /// With every rate at the fast end.
    pub fast: f64,
}

/// What was found of a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityResult {
    /// The largest load of one machine within the limits.
    pub largest_load: BandedValue,
    /// Requests that it answers in a second then.
    pub requests_per_s: f64,
    /// The smallest load that was tried and is beyond them; absent where none was.
    pub beyond: Option<f64>,
    /// The share of requests that keep the limits at both.
    pub slo_attainment: [Option<f64>; 2],
    /// Requests simulated at the largest load.
    pub requests: u64,
    /// Which limit fails beyond it.
    pub fails: Option<String>,
    /// What is taken most at the largest load, the most taken first.
    pub bottlenecks: Vec<Bottleneck>,
    /// Machines for the load asked for.
    pub machines: BandedValue,
    /// The share of the time in which they compute at that load.
    pub utilization: f64,
    /// What one costs, dollars.
    pub price: f64,
    /// GPUs of them all.
    pub gpus: u64,
    /// Memory behind CXL of them all, bytes.
    pub cxl_bytes: u64,
    /// Joules that they draw for an output token.
    pub energy_per_token_j: f64,
    /// Dollars for an output token.
    pub cost_per_token: BandedValue,
    /// Each year.
    pub years: Vec<FleetYear>,
    /// Everything that is spent over them, dollars.
    pub total_cost: BandedValue,
    /// Of every machine but the first: from when on it has cost less than the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payback: Option<Payback>,
    /// What the cost of a token hangs on.
    pub sensitivity: Vec<SensitivityBar>,
    /// Every load that was tried, ascending.
    pub curve: Vec<LoadPoint>,
}

/// A day of one load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadPoint {
    /// How much.
    pub load: f64,
    /// Requests that were answered in a second.
    pub requests_per_s: f64,
    /// How long an answer took, mean, seconds.
    pub e2el_mean_s: f64,
    /// The share of requests that keep the limits.
    pub slo_attainment: f64,
    /// The longest time to the first token of 99 in a hundred, seconds.
    pub ttft_p99_s: f64,
    /// The same of the time per output token.
    pub tpot_p99_s: f64,
}

impl LoadPoint {
    /// That of a day of so much.
    pub fn from_summary(load: f64, day: &Summary) -> Self {
        Self {
            load,
            requests_per_s: day.requests_per_s,
            e2el_mean_s: day.e2el_s.mean,
            slo_attainment: day.slo_attainment,
            ttft_p99_s: day.ttft_s.p99,
            tpot_p99_s: day.tpot_s.p99,
        }
    }
}

/// What costs are told for.
const TOKENS: f64 = 1_000_000.0;
