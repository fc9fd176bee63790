//! From measured points to the time of any shape.
//!
//! Times are interpolated, never rates: between two measured points the truth lies near the straight
//! line of *time* (a fixed part plus a part per row), while a rate bends. Outside the measured region
//! the efficiency of its boundary is carried on, and the answer says so ([`Basis::Extrapolated`]).

use crate::dtype::DType;
use crate::machine::{Device, Link};
use crate::provenance::Provenance;
use crate::rates::{Basis, Bound, Estimate};
use crate::units::{Bytes, Seconds};

/// A rate that nobody measured. Says which, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "device '{device}' has no {rate} rate for {dtype} (it has: {known}); measure it with `fulcrum bench`, \
     or choose a number format that it has"
)]
pub struct Missing {
    /// The device.
    pub device: String,
    /// What is missing: "gemm", "decode attention", "prefill attention".
    pub rate: &'static str,
    /// The number format asked for.
    pub dtype: DType,
    /// The formats that the device has, comma-separated, or "none".
    pub known: String,
}

impl Missing {
    pub(crate) fn new(
        device: &Device,
        rate: &'static str,
        dtype: DType,
        has: impl Fn(DType) -> bool,
    ) -> Self {
        let known: Vec<_> = DType::ALL.into_iter().filter(|&d| has(d)).map(DType::name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self { device: device.name.clone(), rate, dtype, known }
    }
}

impl Device {
    /// Time of y[m, n] = x[m, k] · W[n, k]ᵀ with `weights` in the device's own memory, without [`Device::launch`].
    ///
    /// Zero where any dimension is zero.
    pub fn gemm_time(&self, weights: DType, m: u64, n: u64, k: u64) -> Result<Estimate, Missing> {
        if m == 0 || n == 0 || k == 0 {
            return Ok(Estimate::ZERO);
        }
        let has = |d| self.gemm.get(&d).is_some_and(|rates| !rates.points().is_empty());
        let estimate = self.gemm.get(&weights).and_then(|rates| rates.time(m, n, k));
        estimate.ok_or_else(|| Missing::new(self, "gemm", weights, has))
    }

    /// Time of an elementwise operator that reads and writes `bytes` of activations, without [`Device::launch`].
    pub fn elementwise_time(&self, bytes: Bytes) -> Estimate {
        if bytes == Bytes::ZERO {
            return Estimate::ZERO;
        }
        let basis = Basis::Interpolated.sourced(&self.elementwise.source);
        Estimate::about(bytes / self.elementwise.value, Bound::Memory, basis)
    }
}

impl Link {
    /// Time of a transfer of `bytes` that has the link to itself: α + bytes / β; zero for no bytes.
    pub fn time(&self, bytes: Bytes) -> Seconds {
        if bytes == Bytes::ZERO {
            return Seconds::ZERO;
        }
        self.latency.value + bytes / self.bandwidth.value
    }
}

impl Estimate {
    /// No work takes no time.
    pub const ZERO: Self = Self {
        time: Seconds::ZERO,
        low: Seconds::ZERO,
        high: Seconds::ZERO,
        bound: Bound::Launch,
        basis: Basis::Measured,
    };

    /// One after the other: the bound is the longer one's, the basis the weaker.
    pub fn then(&self, other: &Self) -> Self {
        Self {
            time: self.time + other.time,
            low: self.low + other.low,
            high: self.high + other.high,
            bound: if other.time > self.time { other.bound } else { self.bound },
            basis: self.basis.max(other.basis),
        }
    }

    /// A time of which nothing better is known than its basis. The 80 % band is then time ÷ (1 + w) to
    /// time · (1 + w), where w is 3 % for a measured time, 15 % between measured points, 40 % outside them,
    /// and 100 % for a datasheet's.
    pub fn about(time: Seconds, bound: Bound, basis: Basis) -> Self {
        let width = match basis {
            Basis::Measured => 1.03,
            Basis::Interpolated => 1.15,
            Basis::Extrapolated => 1.4,
            Basis::Estimated => 2.0,
        };
        Self { time, low: time / width, high: time * width, bound, basis }
    }
}

impl Basis {
    /// What becomes of this basis when the points themselves came from `source`: only measured points
    /// make a measured or interpolated estimate.
    pub fn sourced(self, source: &Provenance) -> Self {
        match source {
            Provenance::Measured { .. } => self,
            Provenance::Datasheet { .. } | Provenance::Estimated { .. } => Basis::Estimated,
        }
    }
}
