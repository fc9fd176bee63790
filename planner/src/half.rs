//! One phase's half of a pattern.

use crate::price_list::Needs;
use hwprofiles::DeviceId;

/// A way to compute one phase of a layer whose homes are given.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Half {
    /// The lead of each sublayer.
    pub leads: Vec<DeviceId>,
    /// Seconds: the serial chain of a micro-batch, then what each link's lane, each memory's bandwidth and, where there are
    /// several micro-batches, each device is busy; then, where kernels are issued one by one, the host for each device.
    pub cost: Vec<f64>,
    /// Seconds that each device computes.
    pub work: Vec<f64>,
    /// What each device needs once.
    pub needs: Vec<Needs>,
}

impl Half {
    /// Nowhere worse. Of equals the one found first stays.
    pub fn beats(&self, other: &Half, frugal: bool) -> bool {
        self.cost.iter().zip(&other.cost).all(|(a, b)| a <= b)
            && (!frugal || self.work.iter().zip(&other.work).all(|(a, b)| a <= b))
            && self.needs.iter().zip(&other.needs).all(|(a, b)| a.within(*b))
    }
}
