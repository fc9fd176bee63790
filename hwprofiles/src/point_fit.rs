//! From measured points to parts: a GPU's rates, and the link to it.

use crate::attention::{AttentionFacts, AttentionFitError, AttentionRates};
use crate::curve::{Curve, CurvePoint};
use crate::gemm::{FitError, GemmFacts, GemmRates, Unfounded};
use crate::link_part::{Directions, LinkPart};
use crate::measured_gpu::{Direction, HostMemory};
use crate::parts::GpuPart;
use crate::points::{DevicePoints, TransferPoint};
use crate::provenance::{Provenance, Sourced};
use crate::ratio::Ratio;
use crate::units::{BytesPerSec, Seconds};

/// Why points do not make a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointsError {
    /// The datasheet lacks what the fit starts from.
    #[error(transparent)]
    Unfounded(#[from] Unfounded),
    /// Products have no fit.
    #[error(transparent)]
    Gemm(#[from] FitError),
    /// Attention has none.
    #[error(transparent)]
    Attention(#[from] AttentionFitError),
    /// Transfers of one way alone, or none from page-locked memory.
    #[error("transfers must be measured both ways from page-locked memory: there is no {0} of pinned memory")]
    OneWay(&'static str),
}

impl GpuPart {
    /// This part with what was measured in the place of what its datasheet says: products and attention of the
    /// formats that were measured, and the bandwidth. `source` says where the points came from.
    pub fn fitted(&self, points: &DevicePoints, source: &Provenance) -> Result<Self, PointsError> {
        let mut part = self.clone();
        for (dtype, points) in points.gemm() {
            let facts = GemmFacts::of(self, dtype)?;
            part.gemm.insert(dtype, GemmRates::fit(source.clone(), points, dtype, facts)?);
        }
        for (kv, points) in points.attention() {
            let facts = AttentionFacts::of(self, kv)?;
            part.attention.insert(kv, AttentionRates::fit(source.clone(), &points, kv, facts)?);
        }
        if let Some(value) = points.bandwidth() {
            part.bandwidth = Sourced { value, source: source.clone() };
        }
        Ok(part)
    }
}

impl LinkPart {
    /// The link called `link` of which these transfers were measured; `None` where none were.
    ///
    /// β is the rate of the largest pinned transfer, α what the smallest takes beyond its bytes ÷ β, the larger of
    /// both ways'. Measured times that fall with the size are noise and are raised to the one before.
    pub fn fitted(
        link: &str,
        transfers: &[TransferPoint],
        source: &Provenance,
    ) -> Result<Option<Self>, PointsError> {
        if transfers.is_empty() {
            return Ok(None);
        }
        let of = |direction, memory| -> Vec<&TransferPoint> {
            transfers.iter().filter(|it| (it.direction, it.memory) == (direction, memory)).collect()
        };
        // Points come by rising size.
        let rate = |direction, memory| of(direction, memory).last().map(|it| it.bytes / it.time);
        let sourced = |value: BytesPerSec| Sourced { value, source: source.clone() };
        let pinned = |direction, word| rate(direction, HostMemory::Pinned).ok_or(PointsError::OneWay(word));
        let to_device = pinned(Direction::ToDevice, "h2d")?;
        let to_host = pinned(Direction::ToHost, "d2h")?;
        let alpha = |direction, beta: BytesPerSec| {
            let smallest = of(direction, HostMemory::Pinned)[0];
            (smallest.time.get() - (smallest.bytes / beta).get()).max(0.0)
        };
        let latency = alpha(Direction::ToDevice, to_device).max(alpha(Direction::ToHost, to_host));
        let latency = Sourced { value: Seconds::new(latency), source: source.clone() };
        let times = |direction| {
            let mut longest = Seconds::ZERO;
            let points = of(direction, HostMemory::Pinned).into_iter().map(|it| {
                longest = longest.max(it.time);
                CurvePoint { size: it.bytes, value: longest }
            });
            Some(Curve { source: source.clone(), points: points.collect() })
        };
        // Noise may make the slower kind of memory the faster one where the two are alike.
        let pageable = |direction, pinned: BytesPerSec| {
            let rate = rate(direction, HostMemory::Pageable)?;
            Some(sourced(if rate < pinned { rate } else { pinned }))
        };
        let pageable = pageable(Direction::ToDevice, to_device).zip(pageable(Direction::ToHost, to_host));
        let duplex = rate(Direction::Both, HostMemory::Pinned).and_then(|both| {
            // The slower direction ends last, and it is its end that was timed.
            let slower = to_device.get().min(to_host.get());
            Some(Sourced { value: Ratio::new((both.get() / slower).min(1.0))?, source: source.clone() })
        });
        Ok(Some(Self {
            to_device_times: times(Direction::ToDevice),
            to_host_times: times(Direction::ToHost),
            pageable: pageable.map(|(to_device, to_host)| Directions { to_device, to_host }),
            duplex,
            ..Self::new(link, latency, sourced(to_device), sourced(to_host))
        }))
    }
}
