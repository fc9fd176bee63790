//! The time of a kernel from a host's file alone.

use crate::error::MeasureError;
use crate::roofline::work::{KernelWork, WorkKind};
use hwprofiles::{
    Bytes, BytesPerSec, CoreTeam, Curve, DType, FlopPerSec, GemmRates, Host, ReadWriteMix, Seconds,
    StoreKind, StreamKind,
};

/// The rates of a host's largest team that bound a kernel in f32.
#[derive(Debug)]
pub(crate) struct HostRoofline<'a> {
    /// The most that f32 arithmetic reaches.
    pub peak: FlopPerSec,
    /// Rates of traffic with memory by the share that is written, ascending in the share.
    memory: Vec<TrafficRate>,
    /// Copies, against the bytes of both arrays.
    copies: Option<&'a Curve<BytesPerSec>>,
    products: &'a GemmRates,
    launch: Seconds,
}

/// What a memory reads and writes per second where this share of it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TrafficRate {
    written_share: f64,
    rate: BytesPerSec,
}

impl TrafficRate {
    /// A mix counts what the program reads and writes. The memory also reads each line that an
    /// ordinary store writes.
    fn from_mix(mix: &ReadWriteMix) -> Self {
        let (reads, writes) = (mix.reads as f64, mix.writes as f64);
        let traffic = reads + 2.0 * writes;
        Self { written_share: writes / traffic, rate: mix.rate * (traffic / (reads + writes)) }
    }
}

impl<'a> HostRoofline<'a> {
    /// # Errors
    /// [`MeasureError::MissingRate`] names the rate that the host lacks.
    pub fn new(host: &'a Host) -> Result<Self, MeasureError> {
        let missing = |rate: &str| MeasureError::MissingRate(rate.to_owned());
        let team = host.teams.iter().max_by_key(|team| team.threads).ok_or_else(|| missing("teams"))?;
        let mixes = host.dram.mixes.as_option().filter(|mixes| mixes.threads == team.threads);
        let mixes = mixes.ok_or_else(|| missing("dram: mixes"))?;
        let mixes = mixes.points.iter().filter(|mix| mix.stores != StoreKind::NonTemporal);
        let mut memory: Vec<_> = mixes.map(TrafficRate::from_mix).collect();
        memory.sort_by(|a, b| a.written_share.total_cmp(&b.written_share));
        if memory.is_empty() {
            return Err(missing("dram: mixes with ordinary stores"));
        }
        let products = team.gemm.get(&DType::F32).ok_or_else(|| missing("teams: gemm: f32"))?;
        Ok(Self {
            peak: peak(team).ok_or_else(|| missing("teams: ceilings: f32"))?,
            memory,
            copies: host.dram.stream(StreamKind::Copy, team.threads),
            products,
            launch: team.launch.value,
        })
    }

    /// The fastest traffic with memory, of any mix.
    pub fn bandwidth(&self) -> BytesPerSec {
        let rates = self.memory.iter().map(|point| point.rate);
        rates.max_by(BytesPerSec::total_cmp).expect("there is a rate")
    }

    /// The largest measured arrays, both together, that fit into `caches`, all of the cores' own.
    pub fn cached_size(&self, caches: Bytes) -> Option<Bytes> {
        let sizes = self.copies?.points.iter().map(|point| point.size);
        sizes.filter(|&size| size <= caches).max()
    }

    /// The least time of the parts of a kernel, one after the other.
    pub fn roof(&self, parts: &[KernelWork]) -> Seconds {
        parts.iter().map(|work| self.roof_of(work)).sum()
    }

    /// The expected time: for each part a fork-join and its time on the roof. A product has the
    /// time of the table of products where that is more.
    pub fn time(&self, parts: &[KernelWork]) -> Seconds {
        parts.iter().map(|work| self.launch + self.time_of(work)).sum()
    }

    fn time_of(&self, work: &KernelWork) -> Seconds {
        let roof = self.roof_of(work);
        let WorkKind::Product { m, n, k } = work.kind else { return roof };
        let Some(table) = self.products.time(m, n, k) else { return roof };
        if table.time > roof { table.time } else { roof }
    }

    /// max(FLOP ÷ peak, bytes ÷ bandwidth)
    fn roof_of(&self, work: &KernelWork) -> Seconds {
        let compute = work.flop / self.peak;
        let memory = work.traffic() / self.traffic_rate(work);
        if compute > memory { compute } else { memory }
    }

    fn traffic_rate(&self, work: &KernelWork) -> BytesPerSec {
        match (work.kind, self.copies) {
            (WorkKind::Cached(size), Some(copies)) => {
                // A copy of so many bytes moves the lines that an AXPY moves: it reads the line
                // that it writes.
                let copy = ReadWriteMix {
                    reads: 1,
                    writes: 1,
                    stores: StoreKind::Ordinary,
                    rate: copies.at(size).expect("a curve has points").value,
                };
                TrafficRate::from_mix(&copy).rate
            }
            _ => self.memory_rate(work.written_share()),
        }
    }

    /// The time per byte is linear in the written share between measured shares, and the nearest
    /// one's outside them.
    fn memory_rate(&self, written_share: f64) -> BytesPerSec {
        let above = self.memory.iter().position(|point| point.written_share >= written_share);
        let above = above.unwrap_or(self.memory.len() - 1);
        let (a, b) = (self.memory[above.saturating_sub(1)], self.memory[above]);
        let span = b.written_share - a.written_share;
        let weight = if span > 0.0 { (written_share - a.written_share) / span } else { 0.0 };
        let weight = weight.clamp(0.0, 1.0);
        BytesPerSec::new(1.0 / ((1.0 - weight) / a.rate.get() + weight / b.rate.get()))
    }
}

/// The highest of the ceilings in f32, by any instruction set.
fn peak(team: &CoreTeam) -> Option<FlopPerSec> {
    let ceilings = team.ceilings.get(&DType::F32)?.values();
    let rates = ceilings.flat_map(|ways| [&ways.resident, &ways.cached, &ways.streamed]);
    rates.filter_map(|rate| rate.as_option().copied()).max_by(FlopPerSec::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{CurvePoint, GemmPoint, Provenance};
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    fn source() -> Provenance {
        Provenance::Measured { date: "2026-11-23".into(), command: "test".into(), spread: 0.0 }
    }

    fn rate(written_share: f64, rate: f64) -> TrafficRate {
        TrafficRate { written_share, rate: BytesPerSec::new(rate) }
    }

    #[test]
    fn a_mix_moves_the_lines_that_its_stores_read_too() {
        let mix = |reads, writes, stores| {
            TrafficRate::from_mix(&ReadWriteMix { reads, writes, stores, rate: BytesPerSec::new(12e9) })
        };
        assert_eq!(mix(1, 0, StoreKind::None), rate(0.0, 12e9));
        assert_eq!(mix(0, 1, StoreKind::Ordinary), rate(0.5, 24e9));
        assert_eq!(mix(1, 1, StoreKind::Ordinary), rate(1.0 / 3.0, 18e9));
        assert_eq!(mix(2, 1, StoreKind::Ordinary), rate(0.25, 16e9));
    }

    /// A roofline of random rates.
    fn roofline<'a>(
        random: &mut Pcg64Mcg,
        copies: &'a Curve<BytesPerSec>,
        products: &'a GemmRates,
    ) -> HostRoofline<'a> {
        let shares = [0.0, 0.2, 0.25, 1.0 / 3.0, 0.5];
        let memory = shares.map(|share| rate(share, random.random_range(5e9..5e11))).to_vec();
        let peak = FlopPerSec::new(random.random_range(1e10..1e13));
        HostRoofline { peak, memory, copies: Some(copies), products, launch: Seconds::new(1e-6) }
    }

    #[test]
    fn nothing_is_predicted_faster_than_the_roofline_and_shares_between_mixes_lie_between_them() {
        let mut random = Pcg64Mcg::seed_from_u64(21);
        for _ in 0..300 {
            let time = Seconds::new(random.random_range(1e-7..1e-2));
            let products = GemmRates::new(source(), vec![GemmPoint { m: 4, n: 512, k: 512, time }]);
            let value = BytesPerSec::new(random.random_range(1e10..1e12));
            let copies =
                Curve { source: source(), points: vec![CurvePoint { size: Bytes::new(1 << 20), value }] };
            let roofline = roofline(&mut random, &copies, &products);
            let n = random.random_range(1000..10_000_000);
            let kernels = [
                vec![KernelWork::axpy(n)],
                vec![KernelWork::product(1 + n % 300, 512, 1024)],
                vec![KernelWork::product(4, 512, 512)],
                vec![KernelWork::sparse(n, 16 * n, n)],
                vec![KernelWork::jacobi(n / 1000, 1000)],
                KernelWork::gradients(n, 5 * n),
            ];
            for parts in kernels {
                let (time, roof) = (roofline.time(&parts), roofline.roof(&parts));
                assert!(time > roof, "{parts:?}");
                let flop = parts.iter().map(|work| work.flop.as_f64()).sum::<f64>();
                let bytes = parts.iter().map(|work| work.traffic().as_f64()).sum::<f64>();
                assert!(flop / time.get() < roofline.peak.get());
                assert!(bytes / time.get() < roofline.bandwidth().get());
            }
            let cached = KernelWork { kind: WorkKind::Cached(Bytes::new(1 << 20)), ..KernelWork::axpy(n) };
            let least = (cached.traffic() / (value * 1.5)).get();
            assert!(roofline.time(&[cached]).get() >= least);
            let ends = [roofline.memory[1].rate, roofline.memory[2].rate].map(BytesPerSec::get);
            let between = roofline.memory_rate(random.random_range(0.2..0.25)).get();
            assert!((ends[0].min(ends[1])..=ends[0].max(ends[1]) * (1.0 + 1e-12)).contains(&between));
        }
    }

    #[test]
    fn a_measured_product_has_its_measured_time_where_that_is_slower_than_the_roof() {
        let time = Seconds::new(5e-3);
        let products = GemmRates::new(source(), vec![GemmPoint { m: 4, n: 512, k: 512, time }]);
        let copies = Curve { source: source(), points: Vec::new() };
        let roofline = roofline(&mut Pcg64Mcg::seed_from_u64(1), &copies, &products);
        let predicted = roofline.time(&[KernelWork::product(4, 512, 512)]);
        assert!((predicted.get() - 5.001e-3).abs() < 1e-12, "the table's time and one fork-join");
    }
}
