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
        self.copy_parts(std::iter::once((to, from)))
    }

    /// As [`Link::copy`], of several pieces (rows of an activation, heads of a KV cache) as one transfer: α counts
    /// once, and no bytes at all take no time.
    ///
    /// # Panics
    /// Where the lengths of a piece differ.
    pub fn copy_parts<'a>(&self, parts: impl IntoIterator<Item = (&'a mut [u8], &'a [u8])>) -> Seconds {
        let start = Instant::now();
        let deadline = |done: usize| start + self.latency + Duration::from_secs_f64(done as f64 / self.rate);
        let chunk = ((self.rate * CHUNK.as_secs_f64()) as usize).clamp(64 << 10, 16 << 20);
        let (mut done, mut paced) = (0, 0);
        for (to, from) in parts {
            assert_eq!(to.len(), from.len());
            for (to, from) in to.chunks_mut(chunk).zip(from.chunks(chunk)) {
                to.copy_from_slice(from);
                done += to.len();
                // Small pieces add up to a chunk before the clock is read.
                if done - paced < chunk {
                    continue;
                }
                paced = done;
                // Between chunks an early or late wake-up evens out; only the end must be exact.
                if let Some(left) = deadline(done).checked_duration_since(Instant::now() + SPIN) {
                    std::thread::sleep(left);
                }
            }
        }
        if done == 0 {
            return Seconds::ZERO;
        }
        let end = deadline(done);
        if let Some(left) = end.checked_duration_since(Instant::now() + SPIN) {
            std::thread::sleep(left);
        }
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        Seconds::new(start.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_arrive_whole_and_never_sooner_than_alpha_and_beta_allow() {
        let link = Link::new(Seconds::new(20e-6), BytesPerSec::new(1e9));
        for lengths in [vec![], vec![0], vec![1], vec![100_000, 3, 700_000, 0, 64]] {
            let from: Vec<Vec<u8>> =
                lengths.iter().map(|&len| (0..len).map(|i| (i % 251) as u8).collect()).collect();
            let mut to: Vec<Vec<u8>> = lengths.iter().map(|&len| vec![0; len]).collect();
            let took =
                link.copy_parts(to.iter_mut().map(|to| &mut to[..]).zip(from.iter().map(|from| &from[..])));
            assert_eq!(to, from);
            let bytes: usize = lengths.iter().sum();
            let least = if bytes == 0 { 0.0 } else { link.time(Bytes::new(bytes as u64)).get() };
            assert!(took.get() >= least * (1.0 - 1e-9), "{bytes} bytes in {took}");
        }
    }
}
