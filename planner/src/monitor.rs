//! How much slower than planned each device has become.

use hwprofiles::{DeviceId, Ratio, Seconds};

/// How much of what an observation differs by is believed at once: single steps are noisy.
const BELIEVED: f64 = 0.5;

/// Compares what devices were busy with what the plan said they would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    slowdown: Vec<Ratio>,
}

impl Monitor {
    /// A monitor of so many devices, all as fast as planned.
    pub fn new(devices: usize) -> Self {
        Self { slowdown: vec![Ratio::ONE; devices] }
    }

    /// `device` was busy for `measured` with what was planned to take `planned`. What takes no time says nothing.
    pub fn observe(&mut self, device: DeviceId, planned: Seconds, measured: Seconds) {
        let before = &mut self.slowdown[device.0];
        let seen = Ratio::new(measured.get() / planned.get());
        let moved = seen.and_then(|seen| Ratio::new(before.get() + (seen.get() - before.get()) * BELIEVED));
        *before = moved.unwrap_or(*before);
    }

    /// By device: how many times as long as planned it takes.
    pub fn slowdown(&self) -> &[Ratio] {
        &self.slowdown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_again_and_again_is_believed_and_what_takes_no_time_says_nothing() {
        let mut monitor = Monitor::new(2);
        let second = Seconds::new(1.0);
        for _ in 0..20 {
            monitor.observe(DeviceId(1), second, second * 3.0);
            monitor.observe(DeviceId(0), Seconds::ZERO, Seconds::ZERO);
        }
        assert_eq!(monitor.slowdown()[0], Ratio::ONE);
        assert!((monitor.slowdown()[1].get() - 3.0).abs() < 1e-5);
        monitor.observe(DeviceId(1), second, second);
        assert!((monitor.slowdown()[1].get() - 2.0).abs() < 1e-5);
    }
}
