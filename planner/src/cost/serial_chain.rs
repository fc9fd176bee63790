//! The serial chain of a layer in closed form.
//!
//! It equals the critical path of the layer's lowered program without fetches, and is hundreds of
//! times cheaper to compute. It follows the rules of `Program::lower` (which copies of an
//! activation are valid where, and what hops) with times in place of tasks.
//!
//! It adds one bound that a critical path does not have: parts of a divided matrix that are read
//! from one memory at the same time share that memory's bandwidth.

use crate::placement::ModelShare;
use crate::program::ALL_BUFFERS;
use hwprofiles::{DeviceId, Machine, Seconds};
use scenarios::{ActivationBuffer, Formats, Model, Operator};
use smallvec::SmallVec;
use std::ops::Range;

/// One device's part of a matrix product.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StagePart {
    pub device: DeviceId,
    /// Output columns.
    pub columns: Range<u64>,
    pub time: f64,
}

/// A sublayer with its devices and times, in one group of equal steps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SublayerStage {
    pub operators: &'static [Operator],
    /// Columns of each buffer in the sublayer's layer.
    pub columns: [u64; ALL_BUFFERS.len()],
    /// The device of the operators without a matrix.
    pub lead: DeviceId,
    /// Times of the operators without a matrix, in the order of `operators`; 0 for those with one.
    pub free: Vec<f64>,
    pub parts: Vec<StagePart>,
    /// Least time to read all parts.
    pub floor: f64,
}

impl SublayerStage {
    /// The time of its busiest device: no chain through it is shorter.
    pub fn busiest(&self) -> f64 {
        let work = |device: DeviceId| {
            let free: f64 = if device == self.lead { self.free.iter().sum() } else { 0.0 };
            let parts = self.parts.iter().filter(|part| part.device == device);
            free + parts.map(|part| part.time).sum::<f64>()
        };
        self.devices().chain([self.lead]).map(work).fold(0.0, f64::max)
    }

    /// The devices of the parts, each once, in the order of the parts.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> {
        let parts = self.parts.iter().enumerate();
        let first = |(index, part): (usize, &StagePart)| {
            let before = &self.parts[..index];
            before.iter().all(|other| other.device != part.device).then_some(part.device)
        };
        parts.filter_map(first)
    }
}

/// One device's copy of a buffer.
#[derive(Debug, Clone, Default)]
struct BufferCopy {
    /// Valid columns, each with the time of its write.
    valid: Vec<(Range<u64>, f64)>,
    /// End of the last copy from here to another device.
    read: f64,
}

/// Times along a chain of sublayers.
#[derive(Debug)]
pub(crate) struct SerialChain {
    devices: usize,
    columns: [u64; ALL_BUFFERS.len()],
    sync: Vec<f64>,
    /// For each pair of devices (α, seconds per byte). `None` without a link.
    hops: Vec<Option<(f64, f64)>>,
    bytes_per_column: f64,
    /// For each buffer and device the bytes that arrive for each byte sent: more than one if
    /// several ranks need the same bytes.
    spread: Vec<f64>,
    copies: Vec<BufferCopy>,
    lanes: Vec<f64>,
    missing: Vec<Range<u64>>,
    rest: Vec<Range<u64>>,
    found: Vec<(usize, Range<u64>, f64)>,
    /// Bytes of hops for each pair of devices.
    pub hopped: Vec<f64>,
}

impl SerialChain {
    pub fn new(machine: &Machine, model: &Model, formats: &Formats) -> Self {
        let devices = machine.devices.len();
        let link = |from: usize, to: usize| {
            let id = machine.link_between(machine.devices[from].memory, machine.devices[to].memory)?;
            let link = machine.link(id);
            Some((link.latency.value.get(), 1.0 / link.bandwidth.value.get()))
        };
        Self {
            devices,
            columns: ALL_BUFFERS.map(|buffer| buffer.columns(model)),
            sync: machine.devices.iter().map(|d| d.sync.value.get()).collect(),
            hops: (0..devices * devices).map(|pair| link(pair / devices, pair % devices)).collect(),
            bytes_per_column: ActivationBuffer::Residual.bytes(formats, 1, 1).as_f64(),
            spread: spread(machine, model, formats),
            copies: vec![BufferCopy::default(); ALL_BUFFERS.len() * devices],
            lanes: vec![0.0; devices],
            missing: Vec::new(),
            rest: Vec::new(),
            found: Vec::new(),
            hopped: vec![0.0; devices * devices],
        }
    }

    /// Starts at time zero with the residual on `device`.
    pub fn begin(&mut self, device: DeviceId) {
        for copy in &mut self.copies {
            copy.valid.clear();
            copy.read = 0.0;
        }
        // The other devices are idle and wake up for their first hop.
        self.lanes.fill(-1.0);
        self.lanes[device.0] = 0.0;
        self.hopped.fill(0.0);
        let columns = 0..self.columns[ActivationBuffer::Residual as usize];
        self.copies[ActivationBuffer::Residual as usize * self.devices + device.0].valid.push((columns, 0.0));
    }

    /// Time at which all devices are done.
    pub fn end(&self) -> Seconds {
        Seconds::new(self.lanes.iter().fold(0.0, |a, &b| a.max(b)))
    }

    /// Runs a sublayer with `rows` activation rows. Returns `false` if bytes must move without a
    /// link.
    pub fn stage(&mut self, stage: &SublayerStage, rows: u64) -> bool {
        self.columns = stage.columns;
        for (index, &operator) in stage.operators.iter().enumerate() {
            if operator.adds_partial_sums() {
                if !self.add_sums(operator, stage, stage.free[index], rows) {
                    return false;
                }
                continue;
            }
            if !operator.is_matmul() {
                let columns = 0..self.columns[operator.writes() as usize];
                if self.compute(operator, stage.lead.0, columns, false, stage.free[index], rows).is_none() {
                    return false;
                }
                continue;
            }
            let begin = self.lanes[stage.lead.0];
            let (mut last, mut end) = (0, 0.0);
            for (index, part) in stage.parts.iter().enumerate() {
                let partial = index > 0;
                let columns = part.columns.clone();
                let Some(done) = self.compute(operator, part.device.0, columns, partial, part.time, rows)
                else {
                    return false;
                };
                if done > end {
                    (last, end) = (part.device.0, done);
                }
            }
            if stage.parts.len() > 1 && end < begin + stage.floor {
                self.postpone(operator.writes(), last, begin + stage.floor);
            }
        }
        true
    }

    /// Adds each device's partial sum to the residual, one after the other.
    fn add_sums(&mut self, operator: Operator, stage: &SublayerStage, time: f64, rows: u64) -> bool {
        let sums = operator.reads()[1] as usize;
        let copies = sums * self.devices..(sums + 1) * self.devices;
        // A device's last part ends after its others.
        let ends = self.copies[copies.clone()].iter().map(|copy| copy.valid.last().map(|(_, end)| *end));
        let ends: SmallVec<[Option<f64>; 4]> = ends.collect();
        for device in stage.devices() {
            let Some(end) = ends[device.0] else { return false };
            self.copies[copies.clone()].iter_mut().for_each(|copy| copy.valid.clear());
            self.copies[sums * self.devices + device.0].valid.push((0..self.columns[sums], end));
            let residual = 0..self.columns[operator.writes() as usize];
            if self.compute(operator, stage.lead.0, residual, false, time, rows).is_none() {
                return false;
            }
        }
        true
    }

    /// Brings all logits to `device`, which samples them.
    pub fn gather_logits(&mut self, device: DeviceId, rows: u64) -> bool {
        self.bring(ActivationBuffer::Logits as usize, device.0, rows).is_some()
    }

    /// Moves the last write to `buffer` on `device` to `time`.
    fn postpone(&mut self, buffer: ActivationBuffer, device: usize, time: f64) {
        self.lanes[device] = time;
        for (_, written) in &mut self.copies[buffer as usize * self.devices + device].valid {
            *written = time;
        }
    }

    fn compute(
        &mut self,
        operator: Operator,
        device: usize,
        columns: Range<u64>,
        partial: bool,
        time: f64,
        rows: u64,
    ) -> Option<f64> {
        for &buffer in operator.reads() {
            if buffer != ActivationBuffer::Tokens {
                self.bring(buffer as usize, device, rows)?;
            }
        }
        let output = operator.writes() as usize;
        let start = self.start(device, self.copies[output * self.devices + device].read);
        let end = start + time;
        self.lanes[device] = end;
        if !partial || operator.reads().contains(&operator.writes()) {
            for copy in &mut self.copies[output * self.devices..(output + 1) * self.devices] {
                copy.valid.clear();
            }
        }
        let copy = &mut self.copies[output * self.devices + device];
        copy.valid.push((columns, end));
        copy.read = 0.0;
        Some(end)
    }

    /// Makes all of `buffer` valid on `device`.
    fn bring(&mut self, buffer: usize, device: usize, rows: u64) -> Option<()> {
        self.missing.clear();
        self.missing.push(0..self.columns[buffer]);
        for (valid, _) in &self.copies[buffer * self.devices + device].valid {
            cut(&mut self.missing, &mut self.rest, valid);
        }
        if self.missing.is_empty() {
            return Some(());
        }
        self.found.clear();
        for from in (0..self.devices).filter(|&from| from != device) {
            for (valid, written) in &self.copies[buffer * self.devices + from].valid {
                for range in &self.missing {
                    let both = range.start.max(valid.start)..range.end.min(valid.end);
                    if both.start < both.end {
                        self.found.push((from, both, *written));
                    }
                }
                cut(&mut self.missing, &mut self.rest, valid);
            }
        }
        let found = std::mem::take(&mut self.found);
        for (from, columns, written) in &found {
            let (alpha, per_byte) = self.hops[from * self.devices + device]?;
            let bytes = (rows * (columns.end - columns.start)) as f64 * self.bytes_per_column;
            let bytes = bytes * self.spread[buffer * self.devices + device];
            let own = self.copies[buffer * self.devices + device].read;
            let end = self.start(device, written.max(own)) + alpha + bytes * per_byte;
            self.lanes[device] = end;
            self.hopped[from * self.devices + device] += bytes;
            let source = &mut self.copies[buffer * self.devices + from];
            source.read = source.read.max(end);
            self.copies[buffer * self.devices + device].valid.push((columns.clone(), end));
        }
        self.found = found;
        Some(())
    }

    /// When `device` starts a task that waits for another device's `ready`.
    fn start(&self, device: usize, ready: f64) -> f64 {
        let free = self.lanes[device];
        if ready > free { ready + self.sync[device] } else { free }
    }
}

/// Computes [`SerialChain::spread`].
fn spread(machine: &Machine, model: &Model, formats: &Formats) -> Vec<f64> {
    let model_share = |device| ModelShare::on_device(machine, model, device);
    let shared: Vec<_> = machine.device_ids().map(model_share).collect();
    let ratio = |buffer: ActivationBuffer, shared: &ModelShare<'_>| {
        let plain = buffer.bytes(formats, 1, buffer.columns(model)).as_f64();
        if shared.ranks == 1 || plain == 0.0 {
            1.0
        } else {
            shared.whole_buffer(buffer, formats, 1).as_f64() / plain
        }
    };
    ALL_BUFFERS.iter().flat_map(|&buffer| shared.iter().map(move |shared| ratio(buffer, shared))).collect()
}

/// Removes `valid` from the ranges.
fn cut(ranges: &mut Vec<Range<u64>>, rest: &mut Vec<Range<u64>>, valid: &Range<u64>) {
    rest.clear();
    for range in ranges.iter() {
        let sides = [range.start..range.end.min(valid.start), range.start.max(valid.end)..range.end];
        rest.extend(sides.into_iter().filter(|side| side.start < side.end));
    }
    std::mem::swap(ranges, rest);
}
