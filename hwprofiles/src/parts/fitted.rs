//! Parts that are fitted to measured points: a GPU's rates, and the link to it.

use crate::parts::gpu::GpuPart;
use crate::parts::link::{DirectionRates, LinkPart};
use crate::rates::{
    AttentionFacts, AttentionFitError, AttentionKernels, AttentionRates, Curve, CurvePoint, DevicePoints,
    Direction, GemmFacts, GemmFitError, GemmKernels, GemmRates, HostMemory, MissingFact, TransferPoint,
};
use crate::units::{BytesPerSec, DType, Provenance, Ratio, Seconds, Sourced};

/// Why points do not give a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointsError {
    /// The datasheet lacks a fact that the fit needs.
    #[error(transparent)]
    MissingFact(#[from] MissingFact),
    /// Products cannot be fitted.
    #[error(transparent)]
    Gemm(#[from] GemmFitError),
    /// Attention cannot be fitted.
    #[error(transparent)]
    Attention(#[from] AttentionFitError),
    /// Transfers were measured one way only, or none from page-locked memory.
    #[error("transfers must be measured both ways from page-locked memory: there is no {0} of pinned memory")]
    OneWay(&'static str),
}

impl GpuPart {
    /// This part with measured values in place of the datasheet's: products and attention of the
    /// measured formats, and the bandwidth. `source` says where the points came from.
    pub fn fitted(&self, points: &DevicePoints, source: &Provenance) -> Result<Self, PointsError> {
        let mut part = self.clone();
        for (dtype, points) in points.gemm() {
            let facts = GemmFacts::from_gpu(self, dtype)?;
            part.gemm.insert(dtype, GemmRates::fit(source.clone(), points, dtype, facts)?);
        }
        for (kv, points) in points.attention() {
            let facts = AttentionFacts::from_gpu(self, kv)?;
            part.attention.insert(kv, AttentionRates::fit(source.clone(), &points, kv, facts)?);
        }
        if let Some(value) = points.bandwidth() {
            part.bandwidth = Sourced { value, source: source.clone() };
        }
        Ok(part)
    }
}

impl LinkPart {
    /// The link called `link` from measured transfers; `None` without transfers.
    ///
    /// β is the rate of the largest pinned transfer. α is what the smallest one takes beyond its
    /// bytes ÷ β, the larger of both directions. Measured times that fall with the size are noise
    /// and are raised to the one before.
    pub fn fitted(
        link: &str,
        transfers: &[TransferPoint],
        source: &Provenance,
    ) -> Result<Option<Self>, PointsError> {
        if transfers.is_empty() {
            return Ok(None);
        }
        let measured = |direction, memory| -> Vec<&TransferPoint> {
            transfers.iter().filter(|it| (it.direction, it.memory) == (direction, memory)).collect()
        };
        // Points are sorted by size.
        let rate = |direction, memory| measured(direction, memory).last().map(|it| it.bytes / it.time);
        let sourced = |value: BytesPerSec| Sourced { value, source: source.clone() };
        let pinned = |direction, word| rate(direction, HostMemory::Pinned).ok_or(PointsError::OneWay(word));
        let to_device = pinned(Direction::ToDevice, "h2d")?;
        let to_host = pinned(Direction::ToHost, "d2h")?;
        let alpha = |direction, beta: BytesPerSec| {
            let smallest = measured(direction, HostMemory::Pinned)[0];
            (smallest.time.get() - (smallest.bytes / beta).get()).max(0.0)
        };
        let latency = alpha(Direction::ToDevice, to_device).max(alpha(Direction::ToHost, to_host));
        let latency = Sourced { value: Seconds::new(latency), source: source.clone() };
        let times = |direction| {
            let mut longest = Seconds::ZERO;
            let points = measured(direction, HostMemory::Pinned).into_iter().map(|it| {
                longest = longest.max(it.time);
                CurvePoint { size: it.bytes, value: longest }
            });
            Some(Curve { source: source.clone(), points: points.collect() })
        };
        // Where both kinds of memory are alike, noise may make the slower kind the faster one.
        let pageable = |direction, pinned: BytesPerSec| {
            let rate = rate(direction, HostMemory::Pageable)?;
            Some(sourced(if rate < pinned { rate } else { pinned }))
        };
        let pageable = pageable(Direction::ToDevice, to_device).zip(pageable(Direction::ToHost, to_host));
        let duplex = rate(Direction::Both, HostMemory::Pinned).and_then(|both| {
            // The slower direction ends last, and its end was timed.
            let slower = to_device.get().min(to_host.get());
            Some(Sourced { value: Ratio::new((both.get() / slower).min(1.0))?, source: source.clone() })
        });
        Ok(Some(Self {
            to_device_times: times(Direction::ToDevice),
            to_host_times: times(Direction::ToHost),
            pageable: pageable.map(|(to_device, to_host)| DirectionRates { to_device, to_host }),
            duplex,
            ..Self::new(link, latency, sourced(to_device), sourced(to_host))
        }))
    }
}

impl GemmFacts {
    /// The facts for products with weights of `dtype`, from a GPU's part.
    pub fn from_gpu(gpu: &GpuPart, dtype: DType) -> Result<Self, MissingFact> {
        let missing = |fact, example| MissingFact { gpu: gpu.gpu.clone(), dtype, fact, example };
        let peak = gpu
            .peak
            .get(&dtype)
            .ok_or_else(|| missing("peak rate", "`peak: {bf16: {value: 100 TFLOP/s, source: …}}`"))?;
        let multiprocessors = gpu.multiprocessors.as_ref();
        let l2 = gpu.l2.as_ref();
        Ok(Self {
            peak: peak.value,
            bandwidth: gpu.bandwidth.value,
            multiprocessors: multiprocessors
                .ok_or_else(|| {
                    missing("number of multiprocessors", "`multiprocessors: {value: 108, source: …}`")
                })?
                .value,
            l2: l2.ok_or_else(|| missing("L2 cache", "`l2: {value: 40 MB, source: …}`"))?.value,
            kernels: GemmKernels::for_architecture(gpu.architecture.as_deref(), dtype),
        })
    }
}

impl AttentionFacts {
    /// The facts for attention over keys and values in `kv`, from a GPU's part.
    pub fn from_gpu(gpu: &GpuPart, kv: DType) -> Result<Self, MissingFact> {
        let missing = |fact, example| MissingFact { gpu: gpu.gpu.clone(), dtype: kv, fact, example };
        let peak = || missing("peak rate", "`peak: {bf16: {value: 100 TFLOP/s, source: …}}`");
        let count = || missing("number of multiprocessors", "`multiprocessors: {value: 108, source: …}`");
        let cache = || missing("L2 cache", "`l2: {value: 40 MB, source: …}`");
        Ok(Self {
            peak: gpu.peak.get(&kv).ok_or_else(peak)?.value,
            bandwidth: gpu.bandwidth.value,
            multiprocessors: gpu.multiprocessors.as_ref().ok_or_else(count)?.value,
            l2: gpu.l2.as_ref().ok_or_else(cache)?.value,
            kernels: AttentionKernels::for_compute_capability(gpu.compute_capability.as_deref()),
        })
    }
}
