//! The time until a waiting thread runs again.

use crate::error::MeasureError;
use crate::method::experiment::Experiment;
use crate::method::record::MeasurementRecord;
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use hwprofiles::{Host, Presence, Seconds};
use kernels::{Flag, affinity};
use std::thread;
use std::time::{Duration, Instant};

/// Wake-ups of a thread on the last core by a busy thread on the first.
///
/// The waiter spins and then sleeps ([`Flag::wait`]), as the executor's lanes do. It waits for as
/// long as lanes of a decode layer wait for each other, and still spins then. A longer wait ends
/// with a wake-up by the kernel, which takes about a tenth of the wait.
#[derive(Debug, Default)]
pub(crate) struct SyncExperiment {
    series: SampleSeries,
}

/// Wake-ups of one visit.
const ROUNDS: usize = 8;
/// How long the waiter waits: as long as a typical operator of a decode step.
const BUSY: Duration = Duration::from_micros(60);

impl Experiment for SyncExperiment {
    fn name(&self) -> String {
        "wake-ups".to_owned()
    }

    fn points(&self) -> usize {
        1
    }

    fn visit(&mut self, _: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let core = rig.all().cores()[rig.all().members() - 1];
        let (ping, pong) = (Flag::new(), Flag::new());
        let times = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let pinned = affinity::pin_current_thread(core);
                let mut woken = Vec::with_capacity(ROUNDS);
                for _ in 0..ROUNDS {
                    ping.wait();
                    woken.push(Instant::now());
                    ping.clear();
                    pong.set();
                }
                pinned.map(|()| woken)
            });
            let mut set = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                let start = Instant::now();
                while start.elapsed() < BUSY {
                    std::hint::spin_loop();
                }
                set.push(Instant::now());
                ping.set();
                pong.wait();
                pong.clear();
            }
            // A panic in the waiter is a defect of ours and is passed on.
            let woken = waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok::<_, MeasureError>(set.into_iter().zip(woken))
        })?;
        // The first wake-up is left out: it wakes a thread that has just started.
        for (set, woken) in times.skip(1) {
            self.series.push(woken.duration_since(set).as_secs_f64().max(1e-9));
        }
        Ok(())
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let Some(summary) = self.series.summary() else { return };
        let sync = record.sourced("the last core", Seconds::new(summary.median), summary);
        if let Presence::Present(loopback) = &mut host.loopback {
            loopback.sync = sync;
        }
    }
}
