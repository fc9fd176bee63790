//! A copy at the rate of a bus.

use hwprofiles::units::{Bytes, BytesPerSec, Seconds};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A path between two memories of this machine with a limited rate: the bus of the loopback device.
///
/// A copy of b bytes takes α + b/β. It moves each chunk at full speed and then sleeps until the
/// chunk's deadline, so the core is free meanwhile. Deadlines count from the start of the copy: the
/// chunks after a late one (from a busy core) catch up, and the average rate is exact. Where the
/// machine is slower than β, the copy is slower too.
///
/// Copies at the same time share β equally, chunk by chunk: the time of a chunk is multiplied by
/// the number of copies under way when the chunk has been copied. Each copy has its own α.
#[derive(Debug)]
pub struct RateLimitedLink {
    latency: Duration,
    rate: f64,
    /// Copies under way.
    active: AtomicUsize,
}

/// The time of a chunk at the link's rate: long compared with a wake-up, short compared with a
/// layer.
const CHUNK: Duration = Duration::from_micros(500);
/// A sleep may end this much late. So a copy stops sleeping this long before its end and spins.
const SPIN: Duration = Duration::from_micros(15);

thread_local! {
    /// The first use in a thread lets its sleeps end on time: otherwise Linux may end them 50 µs
    /// late, to save power.
    static SLEEPS_ON_TIME: () = {
        // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    };
}

impl RateLimitedLink {
    /// A link of latency α and bandwidth β.
    ///
    /// # Panics
    /// Where the rate is not positive.
    pub fn new(latency: Seconds, rate: BytesPerSec) -> Self {
        assert!(rate.get() > 0.0, "a link needs a bandwidth above zero");
        Self {
            latency: Duration::from_secs_f64(latency.get()),
            rate: rate.get(),
            active: AtomicUsize::new(0),
        }
    }

    /// The time of a copy of `bytes` that has the link to itself.
    pub fn time(&self, bytes: Bytes) -> Seconds {
        Seconds::new(self.latency.as_secs_f64() + bytes.as_f64() / self.rate)
    }

    /// Copies `from` to `to`, which have equal length, and returns the time it took.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn copy(&self, to: &mut [u8], from: &[u8]) -> Seconds {
        self.copy_parts(std::iter::once((to, from)))
    }

    /// As [`RateLimitedLink::copy`], for several pieces (rows of an activation, heads of a KV
    /// cache) as one transfer: α counts once. A transfer of no bytes takes no time.
    ///
    /// # Panics
    /// Where the lengths of a piece differ.
    pub fn copy_parts<'a>(&self, parts: impl IntoIterator<Item = (&'a mut [u8], &'a [u8])>) -> Seconds {
        let start = Instant::now();
        self.active.fetch_add(1, Ordering::Relaxed);
        let chunk = ((self.rate * CHUNK.as_secs_f64()) as usize).clamp(64 << 10, 16 << 20);
        let (mut done, mut paced, mut end) = (0, 0, start + self.latency);
        for (to, from) in parts {
            assert_eq!(to.len(), from.len());
            for (to, from) in to.chunks_mut(chunk).zip(from.chunks(chunk)) {
                to.copy_from_slice(from);
                done += to.len();
                // The clock is read once a chunk, so small pieces add up to a chunk first.
                if done - paced < chunk {
                    continue;
                }
                end += self.share(done - paced);
                paced = done;
                // Early and late wake-ups between chunks even out; only the end must be exact.
                sleep_towards(end);
            }
        }
        end += self.share(done - paced);
        if done > 0 {
            sleep_towards(end);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        self.active.fetch_sub(1, Ordering::Relaxed);
        if done == 0 { Seconds::ZERO } else { Seconds::new(start.elapsed().as_secs_f64()) }
    }

    /// The time of `bytes` while the other copies are under way.
    fn share(&self, bytes: usize) -> Duration {
        let copies = self.active.load(Ordering::Relaxed);
        Duration::from_secs_f64((bytes * copies) as f64 / self.rate)
    }
}

/// Sleeps until shortly before `end`.
fn sleep_towards(end: Instant) {
    SLEEPS_ON_TIME.with(|()| ());
    if let Some(left) = end.checked_duration_since(Instant::now() + SPIN) {
        std::thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_arrive_whole_and_never_sooner_than_alpha_and_beta_allow() {
        let link = RateLimitedLink::new(Seconds::new(20e-6), BytesPerSec::new(1e9));
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

    #[test]
    fn two_copies_at_once_carry_no_more_than_the_link_does() {
        let link = RateLimitedLink::new(Seconds::ZERO, BytesPerSec::new(1e9));
        let bytes = 20 << 20;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| link.copy(&mut vec![0; bytes], &vec![1; bytes]));
            }
        });
        let least = link.time(Bytes::new(2 * bytes as u64)).get();
        // A chunk that is half done when the other copy starts or ends counts as shared or not as a
        // whole.
        assert!(start.elapsed().as_secs_f64() >= 0.95 * least);
    }
}
