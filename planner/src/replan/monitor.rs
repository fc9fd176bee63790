//! How much slower than planned each device has become.

use hwprofiles::{DeviceId, Ratio, Seconds};

/// The weight of one observation, since single steps are noisy.
const BELIEVED: f64 = 0.5;

/// Compares the busy time of each device with the planned one.
#[derive(Debug, Clone, PartialEq)]
pub struct Monitor {
    slowdown: Vec<Ratio>,
}

impl Monitor {
    /// A monitor of `devices` devices, all as fast as planned.
    pub fn new(devices: usize) -> Self {
        Self { slowdown: vec![Ratio::ONE; devices] }
    }

    /// Records that `device` was busy for `measured` where `planned` was expected. A planned time
    /// of zero is ignored.
    pub fn observe(&mut self, device: DeviceId, planned: Seconds, measured: Seconds) {
        let before = &mut self.slowdown[device.0];
        let seen = Ratio::new(measured.get() / planned.get());
        let moved = seen.and_then(|seen| Ratio::new(before.get() + (seen.get() - before.get()) * BELIEVED));
        *before = moved.unwrap_or(*before);
    }

    /// By device: measured ÷ planned time.
    pub fn slowdown(&self) -> &[Ratio] {
        &self.slowdown
    }
}

/// A device counts as slow from the first factor on, and as fast again below the second.
const SLOW: f64 = 1.4;
const FAST: f64 = 1.15;
/// The number of consecutive observations that must agree.
const PATIENCE: u32 = 6;

/// Tells when a device has become slower than planned and when it is as fast again, but not about
/// single slow steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    monitor: Monitor,
    /// By device: whether it counts as slow, and how many consecutive observations say otherwise.
    told: Vec<(bool, u32)>,
}

impl Drift {
    /// The drift of `devices` devices, all as fast as planned.
    pub fn new(devices: usize) -> Self {
        Self { monitor: Monitor::new(devices), told: vec![(false, 0); devices] }
    }

    /// As [`Monitor::observe`]. Returns measured ÷ planned time where the device's state has just
    /// changed: it has been slow for several observations, or has ceased to be.
    pub fn observe(&mut self, device: DeviceId, planned: Seconds, measured: Seconds) -> Option<Ratio> {
        self.monitor.observe(device, planned, measured);
        let slowdown = self.monitor.slowdown()[device.0];
        let (slow, against) = &mut self.told[device.0];
        let speaks = if *slow { slowdown.get() < FAST } else { slowdown.get() > SLOW };
        *against = if speaks { *against + 1 } else { 0 };
        if *against < PATIENCE {
            return None;
        }
        (*slow, *against) = (!*slow, 0);
        Some(slowdown)
    }

    /// By device: measured ÷ planned time where it counts as slow, otherwise 1.
    pub fn slowdown(&self) -> Vec<Ratio> {
        let all = self.monitor.slowdown().iter().zip(&self.told);
        all.map(|(&slowdown, &(slow, _))| if slow { slowdown } else { Ratio::ONE }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_stays_as_planned_is_never_told_and_what_stays_slow_is_told_once(
            times in prop::collection::vec(0.8f64..1.3, 1..80), slow in 1.7f64..20.0, hiccup in 0usize..80,
        ) {
            let (mut drift, second) = (Drift::new(2), Seconds::new(1.0));
            for (index, &time) in times.iter().enumerate() {
                // One step in which the system did something else.
                let time = if index == hiccup { 4.0 } else { time };
                prop_assert_eq!(drift.observe(DeviceId(0), second, Seconds::new(time)), None);
            }
            prop_assert_eq!(drift.slowdown(), vec![Ratio::ONE; 2]);
            let told = |drift: &mut Drift, time: f64| {
                (0..40).filter_map(|_| drift.observe(DeviceId(0), second, Seconds::new(time))).collect::<Vec<_>>()
            };
            let first = told(&mut drift, slow);
            prop_assert_eq!(first.len(), 1);
            prop_assert!((drift.slowdown()[0].get() - slow).abs() < 1e-6 * slow);
            prop_assert_eq!(drift.slowdown()[1], Ratio::ONE);
            prop_assert_eq!(told(&mut drift, 1.0).len(), 1);
            prop_assert_eq!(drift.slowdown(), vec![Ratio::ONE; 2]);
        }
    }

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
