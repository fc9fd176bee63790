//! A copy that takes as long as a bus would.

use hwprofiles::units::{Bytes, BytesPerSec, Seconds};
use std::time::{Duration, Instant};

/// A rate-limited path between two memories of this machine: the loopback device's bus.
///
/// A copy of b bytes takes α + b/β: it moves chunks at full speed and sleeps until each chunk's deadline, so
/// the core is free meanwhile. Deadlines count from the start of the copy: a chunk that came late (a busy
/// core) is caught up by the next ones, and the average rate is exact. Where the machine is slower
/// than β, the copy takes what it takes.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    latency: Duration,
    rate: f64,
}

/// Chunks last about this long at the link's rate: long against a wake-up, short against a layer.
const CHUNK: Duration = Duration::from_micros(500);
/// A sleep may end this much late, so this much before a copy's end it spins.
const SPIN: Duration = Duration::from_micros(80);

impl Link {
    /// A link of latency α and bandwidth β.
    ///
    /// # Panics
    /// Where the rate is not positive.
    pub fn new(latency: Seconds, rate: BytesPerSec) -> Self {
        assert!(rate.get() > 0.0, "a link needs a bandwidth above zero");
        Self { latency: Duration::from_secs_f64(latency.get()), rate: rate.get() }
    }

    /// How long a copy of `bytes` takes on it.
    pub fn time(&self, bytes: Bytes) -> Seconds {
        Seconds::new(self.latency.as_secs_f64() + bytes.as_f64() / self.rate)
    }

    /// Copies `from` to `to` (of equal length), and returns how long it really took.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn copy(&self, to: &mut [u8], from: &[u8]) -> Seconds {
        assert_eq!(to.len(), from.len());
        let start = Instant::now();
        let chunk = ((self.rate * CHUNK.as_secs_f64()) as usize).clamp(64 << 10, 16 << 20);
        let mut done = 0;
        for (to, from) in to.chunks_mut(chunk).zip(from.chunks(chunk)) {
            to.copy_from_slice(from);
            done += to.len();
            let deadline = start + self.latency + Duration::from_secs_f64(done as f64 / self.rate);
            // Between chunks an early or late wake-up evens out; only the end must be exact.
            if let Some(left) = deadline.checked_duration_since(Instant::now() + SPIN) {
                std::thread::sleep(left);
            }
        }
        let end = start + self.latency + Duration::from_secs_f64(done as f64 / self.rate);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        Seconds::new(start.elapsed().as_secs_f64())
    }
}
