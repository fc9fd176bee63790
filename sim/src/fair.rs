//! Who gets how much of a shared bandwidth: max-min fairness by progressive filling.
//!
//! A memory controller serves whoever asks; nobody gets more than an equal share while another who wants more
//! gets less. Fairness is in *bytes per second*, not in slowdown: beside a copy that wants the whole memory, a
//! task that wants a tenth of it is not slowed at all.
//!
//! All flows rise together until one reaches what it wants, or a pool is full; those stop, the others go on
//! (Bertsekas and Gallager, Data Networks, §6.5.2). A flow that passes several pools, such as a transfer from a
//! memory over a link to another memory, has one rate; it is bound by the fullest of them and leaves the rest
//! of its share of the others to others.

use hwprofiles::BytesPerSec;

/// A pool that a flow draws on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Index of the pool.
    pub pool: usize,
    /// Bytes through the pool for each byte of the flow: 2 for a copy within one memory.
    pub per_byte: f64,
}

/// What one running task wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// Its rate when it is alone.
    pub rate: BytesPerSec,
    /// The pools that it passes: the memories at both ends, of which one may be two striped ones, and the link.
    pub draws: [Option<Draw>; 4],
}

impl Flow {
    fn draws(&self) -> impl Iterator<Item = Draw> + '_ {
        self.draws.iter().flatten().copied()
    }
}

/// Pools of bandwidth, and scratch memory for sharing them.
#[derive(Debug, Clone)]
pub struct Sharing {
    capacity: Vec<f64>,
    /// Per pool: what nobody has yet, what each byte of level costs, and the level at which it is full.
    left: Vec<f64>,
    slope: Vec<f64>,
    full_at: Vec<f64>,
    /// Per flow: the rate that it wants and can have.
    peak: Vec<f64>,
}

/// A flow's speed while it is not known.
const RISING: f64 = -1.0;

impl Sharing {
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
        }
    }

    /// Writes the speed of each flow, in (0, 1], relative to running alone.
    ///
    /// A rate beyond a pool's capacity is measurement noise and counts as the capacity: alone, a flow has speed 1.
    pub fn share(&mut self, flows: &[&Flow], speeds: &mut Vec<f64>) {
        speeds.clear();
        if let [_] = flows {
            return speeds.push(1.0);
        }
        speeds.resize(flows.len(), RISING);
        self.left.copy_from_slice(&self.capacity);
        self.peak.clear();
        let capacity = &self.capacity;
        self.peak.extend(flows.iter().map(|flow| {
            flow.draws().fold(flow.rate.get(), |rate, draw| rate.min(capacity[draw.pool] / draw.per_byte))
        }));
        while speeds.contains(&RISING) {
            self.fill(flows, speeds);
        }
    }

    /// Raises the level until a flow has all that it wants or a pool is full, and settles the flows concerned.
    fn fill(&mut self, flows: &[&Flow], speeds: &mut [f64]) {
        self.slope.fill(0.0);
        let mut level = f64::INFINITY;
        for (index, flow) in flows.iter().enumerate().filter(|&(index, _)| speeds[index] == RISING) {
            level = level.min(self.peak[index]);
            flow.draws().for_each(|draw| self.slope[draw.pool] += draw.per_byte);
        }
        for (pool, full_at) in self.full_at.iter_mut().enumerate().filter(|(pool, _)| self.slope[*pool] > 0.0)
        {
            *full_at = self.left[pool].max(0.0) / self.slope[pool];
            level = level.min(*full_at);
        }
        for (index, flow) in flows.iter().enumerate() {
            if speeds[index] != RISING {
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
            let rate = peak.min(level);
            flow.draws().for_each(|draw| self.left[draw.pool] -= rate * draw.per_byte);
        }
    }
}
