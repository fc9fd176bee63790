//! The answer to `fulcrum capacity`: which machine, how many, at what load and cost.

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

/// The version of the JSON form.
pub const CAPACITY_VERSION: u32 = 2;

/// The answer for all machines.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityReport {
    /// [`CAPACITY_VERSION`].
    pub capacity: u32,
    /// The version of the program that made it.
    pub version: String,
    /// The model's name.
    pub model: String,
    /// The question, in sentences.
    #[serde(rename = "asked")]
    pub question: Vec<String>,
    /// The answer, in sentences.
    pub answer: Vec<String>,
    /// The unit of loads: `req/s` or `users`.
    pub unit: String,
    /// The total load in the first year.
    pub load: f64,
    /// The machines, in the order of the question.
    pub machines: Vec<Candidate>,
    /// Prices and rates, with their sources.
    pub figures: Vec<Figure>,
}

/// A number that the answer uses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What the number is.
    #[serde(rename = "what")]
    pub name: String,
    /// The number with its unit.
    pub value: String,
    /// Where it comes from.
    pub source: String,
}

/// A machine that could be bought.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The machine's name.
    pub name: String,
    /// The plan that runs on it.
    pub plan: String,
    /// The arrangements of its GPUs that were tried, if there are several.
    #[serde(rename = "ways", skip_serializing_if = "Vec::is_empty")]
    pub arrangements: Vec<GpuArrangement>,
    /// The result; absent where the machine meets the limits at no load.
    #[serde(flatten)]
    pub result: Option<CapacityResult>,
    /// Why it meets the limits at no load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
}

/// A way to use all GPUs of a machine: engines side by side, or several GPUs as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuArrangement {
    /// The plan that runs on it.
    pub plan: String,
    /// The largest load within the limits; absent where there is none.
    pub largest_load: Option<f64>,
    /// The limit that fails above that load.
    pub fails: Option<String>,
}

/// A number with the ends of its band.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandedValue {
    /// The number.
    pub value: f64,
    /// With every rate of the machine at the slow end of its 80 % band.
    pub slow: f64,
    /// With every rate of the machine at the fast end.
    pub fast: f64,
}

/// What one machine serves and costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CapacityResult {
    /// The largest load of one machine within the limits.
    pub largest_load: BandedValue,
    /// Requests per second that it answers at that load.
    pub requests_per_s: f64,
    /// The smallest load tried that exceeds the limits; absent where none does.
    pub beyond: Option<f64>,
    /// The share of requests within the limits at the largest load, and at the smallest load that
    /// exceeds them.
    pub slo_attainment: [Option<f64>; 2],
    /// Requests simulated at the largest load.
    pub requests: u64,
    /// The limit that fails above the largest load.
    pub fails: Option<String>,
    /// The resources in use at the largest load, the most used first.
    pub bottlenecks: Vec<Bottleneck>,
    /// Machines needed for the requested load.
    pub machines: BandedValue,
    /// The share of the time in which they compute at the requested load.
    pub utilization: f64,
    /// The price of one machine, in dollars.
    pub price: f64,
    /// GPUs of all machines.
    pub gpus: u64,
    /// Memory behind CXL of all machines, in bytes.
    pub cxl_bytes: u64,
    /// Joules for an output token.
    pub energy_per_token_j: f64,
    /// Dollars for an output token.
    pub cost_per_token: BandedValue,
    /// The costs of each year.
    pub years: Vec<FleetYear>,
    /// The sum of all costs over the years, in dollars.
    pub total_cost: BandedValue,
    /// When this machine becomes cheaper than the first one; absent for the first machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payback: Option<Payback>,
    /// How the cost of a token depends on single figures.
    pub sensitivity: Vec<SensitivityBar>,
    /// Every load that was tried, ascending.
    pub curve: Vec<LoadPoint>,
}

/// The results of a simulated day at one load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LoadPoint {
    /// The load.
    pub load: f64,
    /// Requests answered per second.
    pub requests_per_s: f64,
    /// Mean end-to-end latency, in seconds.
    pub e2el_mean_s: f64,
    /// The share of requests within the limits.
    pub slo_attainment: f64,
    /// 99th percentile of the time to the first token, in seconds.
    pub ttft_p99_s: f64,
    /// 99th percentile of the time per output token, in seconds.
    pub tpot_p99_s: f64,
}

impl LoadPoint {
    /// Takes the numbers of a day at `load` from its summary.
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

/// Costs are given for this many tokens.
const TOKENS: f64 = 1_000_000.0;
