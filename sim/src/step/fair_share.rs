//! Shared bandwidth: max-min fairness by progressive filling.
//!
//! A memory controller serves every requester. No task gets more than an equal share while another
//! task that wants more gets less. Fairness is in *bytes per second*, not in slowdown: a task that
//! wants a tenth of a memory is not slowed at all by a copy that wants the whole memory.
//!
//! All flows rise together until one reaches the rate that it wants, or until a pool is full. Those
//! flows stop and the others go on (Bertsekas and Gallager, Data Networks, §6.5.2). A flow that
//! passes several pools, such as a transfer from one memory over a link to another, has one rate:
//! the fullest pool limits it, and other flows may use what it leaves of the other pools.

use hwprofiles::BytesPerSec;

/// A flow's use of one pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryDraw {
    /// Index of the pool.
    pub pool: usize,
    /// Bytes through the pool for each byte of the flow: 2 for a copy within one memory.
    pub per_byte: f64,
}

/// The bandwidth that one running task wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// Its rate when it is alone.
    pub rate: BytesPerSec,
    /// The pools that it passes: the link, and the memories at both ends, one of which may be two
    /// striped ones.
    pub draws: [Option<MemoryDraw>; 4],
}

impl Flow {
    fn draws(&self) -> impl Iterator<Item = MemoryDraw> + '_ {
        self.draws.iter().flatten().copied()
    }
}

/// Pools of bandwidth, and scratch memory for sharing them.
#[derive(Debug, Clone)]
pub struct FairShare {
    capacity: Vec<f64>,
    /// Per pool: the bandwidth that no flow has yet, its loss per unit of level, and the level at
    /// which it is full.
    left: Vec<f64>,
    slope: Vec<f64>,
    full_at: Vec<f64>,
    /// Per flow: the rate that it wants and can have, and whether its speed is known.
    peak: Vec<f64>,
    settled: Vec<bool>,
}

impl FairShare {
    /// Pools of these capacities.
    pub fn new(capacities: impl IntoIterator<Item = BytesPerSec>) -> Self {
        let capacity: Vec<_> = capacities.into_iter().map(BytesPerSec::get).collect();
        let pools = capacity.len();
        Self {
            capacity,
            left: vec![0.0; pools],
            slope: vec![0.0; pools],
            full_at: vec![0.0; pools],
            peak: vec![],
            settled: vec![],
        }
    }

    /// Writes the speed of each flow, in (0, 1], relative to running alone.
    ///
    /// A rate above a pool's capacity is measurement noise and counts as the capacity: alone, a
    /// flow has speed 1.
    pub fn share(&mut self, flows: &[&Flow], speeds: &mut Vec<f64>) {
        speeds.clear();
        if let [_] = flows {
            return speeds.push(1.0);
        }
        speeds.resize(flows.len(), 0.0);
        self.settled.clear();
        self.settled.resize(flows.len(), false);
        self.left.copy_from_slice(&self.capacity);
        self.peak.clear();
        let capacity = &self.capacity;
        self.peak.extend(flows.iter().map(|flow| {
            flow.draws().fold(flow.rate.get(), |rate, draw| rate.min(capacity[draw.pool] / draw.per_byte))
        }));
        while self.settled.contains(&false) {
            self.fill(flows, speeds);
        }
    }

    /// Raises the level until a flow has its peak rate or a pool is full, and settles the flows
    /// concerned.
    fn fill(&mut self, flows: &[&Flow], speeds: &mut [f64]) {
        self.slope.fill(0.0);
        let mut level = f64::INFINITY;
        for (index, flow) in flows.iter().enumerate().filter(|&(index, _)| !self.settled[index]) {
            level = level.min(self.peak[index]);
            flow.draws().for_each(|draw| self.slope[draw.pool] += draw.per_byte);
        }
        for (pool, full_at) in self.full_at.iter_mut().enumerate().filter(|(pool, _)| self.slope[*pool] > 0.0)
        {
            *full_at = self.left[pool].max(0.0) / self.slope[pool];
            level = level.min(*full_at);
        }
        for (index, flow) in flows.iter().enumerate() {
            if self.settled[index] {
                continue;
            }
            let peak = self.peak[index];
            if peak <= level {
                speeds[index] = 1.0;
            } else if flow.draws().any(|draw| self.full_at[draw.pool] <= level) {
                speeds[index] = level / peak;
            } else {
                continue;
            }
            self.settled[index] = true;
            let rate = peak.min(level);
            flow.draws().for_each(|draw| self.left[draw.pool] -= rate * draw.per_byte);
        }
    }
}
