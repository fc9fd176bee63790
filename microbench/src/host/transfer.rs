//! The loopback's link: the paced copy, without a pace.

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::record::MeasurementRecord;
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use hwprofiles::{Bytes, BytesPerSec, DType, Host, Presence, Seconds};
use kernels::{Buffer, RateLimitedLink, affinity};

/// Copies by one thread on the loopback's core: tiny copies for α, long copies between distant
/// addresses for β.
#[derive(Debug)]
pub(crate) struct TransferExperiment {
    to: Buffer,
    /// Bytes of a long copy.
    len: usize,
    tiny: SampleSeries,
    long: SampleSeries,
}

/// One cache line: its copy takes only α.
const TINY: usize = 64;

impl TransferExperiment {
    /// `len` bytes at a time.
    pub fn new(len: usize) -> Result<Self, MeasureError> {
        let mut to = Buffer::new(len)?;
        to.touch();
        Ok(Self { to, len, tiny: SampleSeries::default(), long: SampleSeries::default() })
    }
}

impl Experiment for TransferExperiment {
    fn name(&self) -> String {
        "the loopback's link".to_owned()
    }

    fn points(&self) -> usize {
        2
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let core = rig.all().cores()[rig.all().members() - 1];
        let link = RateLimitedLink::new(Seconds::ZERO, BytesPerSec::new(f64::MAX));
        let (len, series) = if point == 0 { (TINY, &mut self.tiny) } else { (self.len, &mut self.long) };
        let to = &mut self.to.bytes_mut()[..len];
        // Weights are what a link mostly carries.
        let mut arena = rig.arena(DType::Bf16);
        affinity::restoring(|| {
            affinity::pin_current_thread(core)?;
            if series.is_empty() {
                let from = arena.next(len);
                rig.subject.transfer(&link, to, from);
                for at in (0..len).step_by((len / 64) | 1).chain([len - 1]) {
                    let kernel = || format!("a transfer of {len} bytes");
                    expect(kernel, f64::from(to[at]), f64::from(from[at]), 0.0)?;
                }
            }
            series.visit(rig, || {
                rig.subject.transfer(&link, to, arena.next(len));
            });
            Ok(())
        })
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let (Some(tiny), Some(long)) = (self.tiny.summary(), self.long.summary()) else { return };
        let latency = record.sourced("its latency", Seconds::new(tiny.median), tiny);
        let rate = Bytes::new(self.len as u64) / Seconds::new(long.median);
        let bandwidth = record.sourced("its bandwidth", rate, long);
        if let Presence::Present(loopback) = &mut host.loopback {
            (loopback.latency, loopback.bandwidth) = (latency, bandwidth);
        }
    }
}
