//! Where the time of a matrix product on a GPU goes, as a formula with a few parameters.
//!
//! time = launch + smoothmax(multiply, memory) + quantise
//!
//! - *multiply*: the library picks a tile shape and a number of splits of k. It picks well, so the
//!   time is the soft minimum over all of them. Tiles run in waves over the multiprocessors. A wave
//!   multiplies its tiles at the shape's share of the peak, feeds each multiprocessor, and starts
//!   up once. For every tile of the other side operands are read again from the L2. A split adds a
//!   reduction of its partial sums.
//! - *memory*: bytes over the bandwidth of HBM, or of the L2 where the operands fit there.
//!   Benchmarks rotate through several copies of the weights, so the weights count several times
//!   towards what must fit.
//! - *quantise*: one-byte formats quantise the activations first, row by row.
//!
//! Sources: tiles, waves and split-k as in NVIDIA's CUTLASS documentation ("Efficient GEMM in
//! CUDA"); the roofline of Williams, Waterman and Patterson (2009). The soft minimum and maximum
//! let the fit see every parameter's effect.

use crate::rates::estimate::Bound;
use crate::rates::fit::parameter::{Parameter, parameter, priors};
use crate::rates::gemm::facts::{GemmFacts, GemmKernels};
use crate::statistics::Prior;
use crate::units::DType;

/// Rows and columns of the tiles.
const TILES: [(u64, u64); 13] = [
    (256, 128),
    (128, 256),
    (128, 128),
    (256, 64),
    (64, 256),
    (128, 64),
    (64, 128),
    (64, 64),
    (32, 128),
    (128, 32),
    (32, 64),
    (16, 128),
    (16, 64),
];

/// The tiles that a searching library chooses among: all but the last.
const SEARCHED: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];

/// The tiles that kernels for one-byte formats choose among.
const QUANTISED: &[usize] = &[0, 2, 6, 7];

const SPLITS: [u64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// One-byte products on Hopper of more than 16 rows, whose number is no multiple of 16, take longer
/// by this share of their time at the peak rate. Chosen with the first fit of these products.
const UNALIGNED: f64 = 0.5;

/// The shortest split of k.
const SHORTEST_SPLIT: u64 = 128;

/// How sharp the edge of the L2 is: an exponent.
const L2_EDGE: i32 = 6;

/// How sharply quantising changes from a cost per row to a cost per element: an exponent.
const QUANTISE_KNEE: i32 = 3;

/// The odds that kernels run whole waves of tiles, before anything is measured. Kernels of wider
/// formats mostly fill the last wave with splits of k or other tile shapes.
const WHOLE_WAVES: Parameter = parameter("whole_waves", "odds", 0.22, 1.0);
/// The same for kernels of one-byte formats, which run whole waves.
const QUANTISED_WAVES: Parameter = parameter("whole_waves", "odds", 4.5, 1.0);

/// All parameters, in the order of the parameter vector, whose entries are logarithms.
pub(crate) const PARAMETERS: [Parameter; 27] = table(WHOLE_WAVES);

/// The parameters with their priors. The last ones are the tile shapes' shares of the peak.
const fn table(whole_waves: Parameter) -> [Parameter; 27] {
    [
        parameter("launch", "s", 2e-6, 1.0),
        parameter("bandwidth_share", "1", 0.8, 0.15),
        parameter("l2_speedup", "1", 2.5, 0.7),
        parameter("l2_share", "1", 0.8, 0.4),
        parameter("weight_copies", "1", 3.0, 0.5),
        parameter("knee", "1", 3.0, 0.6),
        parameter("tile_start", "s", 1e-6, 1.0),
        parameter("tile_feed", "B/s", 80e9, 0.5),
        whole_waves,
        parameter("reread", "1", 0.1, 1.0),
        parameter("split_start", "s", 1.5e-6, 1.0),
        parameter("row", "s", 5e-9, 1.5),
        parameter("element", "s", 2e-12, 1.5),
        parameter("column", "s", 3e-10, 1.5),
        parameter("tile_256x128", "1", 0.800, 0.35),
        parameter("tile_128x256", "1", 0.800, 0.35),
        parameter("tile_128x128", "1", 0.673, 0.35),
        parameter("tile_256x64", "1", 0.673, 0.35),
        parameter("tile_64x256", "1", 0.673, 0.35),
        parameter("tile_128x64", "1", 0.566, 0.35),
        parameter("tile_64x128", "1", 0.566, 0.35),
        parameter("tile_64x64", "1", 0.476, 0.35),
        parameter("tile_32x128", "1", 0.476, 0.35),
        parameter("tile_128x32", "1", 0.476, 0.35),
        parameter("tile_32x64", "1", 0.400, 0.35),
        parameter("tile_16x128", "1", 0.400, 0.35),
        parameter("tile_16x64", "1", 0.336, 0.35),
    ]
}

/// The formula with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mechanism {
    /// Logarithms, in the order of [`PARAMETERS`].
    pub parameters: Vec<f64>,
    bytes: f64,
    multiprocessors: f64,
    cache: f64,
    launch: f64,
    /// Bytes per second that HBM and the L2 reach.
    streamed: f64,
    cached: f64,
    weight_copies: f64,
    knee: f64,
    tile_start: f64,
    whole_waves: f64,
    split_start: f64,
    /// Seconds per row, per element and per column of activations that are quantised.
    quantise: Option<(f64, f64, f64)>,
    /// Seconds per m·n·k that unaligned rows add.
    unaligned: f64,
    kernels: GemmKernels,
    tiles: [TileCost; TILES.len()],
}

/// One tile shape and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct TileCost {
    rows: u64,
    columns: u64,
    /// Seconds of one wave per unit of k.
    step: f64,
    /// Seconds per m·n·k of reading operands again.
    reread: f64,
}

impl Mechanism {
    /// What is known before anything is measured.
    pub(crate) fn priors(kernels: GemmKernels) -> Vec<Prior> {
        priors(&table(if kernels.quantises() { QUANTISED_WAVES } else { WHOLE_WAVES }))
    }

    /// The formula for products with weights of `dtype` on a device with these `facts`.
    /// `parameters` are logarithms in the order of [`PARAMETERS`].
    pub(crate) fn new(facts: &GemmFacts, dtype: DType, parameters: Vec<f64>) -> Self {
        let values: [f64; PARAMETERS.len()] = std::array::from_fn(|i| parameters[i].exp());
        let [
            launch,
            bandwidth_share,
            l2_speedup,
            l2_share,
            weight_copies,
            knee,
            tile_start,
            tile_feed,
            whole_waves,
            reread,
            split_start,
            row,
            element,
            column,
            shares @ ..,
        ] = values;
        let bytes = dtype.matrix_bytes(1, 1024).as_f64() / 1024.0;
        let streamed = facts.bandwidth.get() * bandwidth_share.min(1.0);
        let cached = streamed * (1.0 + l2_speedup);
        let multiprocessors = facts.multiprocessors as f64;
        let peak = facts.peak.get();
        let tiles = std::array::from_fn(|i| {
            let (rows, columns) = TILES[i];
            let (r, c) = (rows as f64, columns as f64);
            TileCost {
                rows,
                columns,
                step: 2.0 * r * c * multiprocessors / (peak * shares[i].min(1.0))
                    + (r + c) * bytes / tile_feed,
                reread: reread * bytes * (1.0 / r + 1.0 / c) / cached,
            }
        });

        Self {
            bytes,
            multiprocessors,
            cache: facts.l2.as_f64() * l2_share,
            launch,
            streamed,
            cached,
            weight_copies: 1.0 + weight_copies,
            knee: 1.0 + knee,
            tile_start,
            whole_waves: whole_waves / (1.0 + whole_waves),
            split_start,
            quantise: facts.kernels.quantises().then_some((row, element, column)),
            unaligned: if facts.kernels == GemmKernels::QuantisedHopper {
                2.0 * UNALIGNED / peak
            } else {
                0.0
            },
            kernels: facts.kernels,
            tiles,
            parameters,
        }
    }

    /// Seconds of y[m, n] = x[m, k] · W[n, k]ᵀ, and what most of them are spent on.
    pub(crate) fn time(&self, m: u64, n: u64, k: u64) -> (f64, Bound) {
        let (rows, columns, depth) = (m as f64, n as f64, k as f64);
        let multiply = self.multiply(m, n, k);
        let output = 2.0 * rows * columns;
        let bytes = self.bytes * (rows + columns) * depth + output;
        let footprint = self.bytes * (rows + self.weight_copies * columns) * depth + output;
        let cold = (footprint / self.cache).powi(L2_EDGE);
        let memory = bytes / ((self.streamed * cold + self.cached) / (1.0 + cold));
        let (small, large) = if multiply < memory { (multiply, memory) } else { (memory, multiply) };
        let joined = large * (1.0 + (small / large).powf(self.knee)).powf(1.0 / self.knee);
        let unaligned =
            if m > 16 && !m.is_multiple_of(16) { self.unaligned * rows * columns * depth } else { 0.0 };
        let quantise = self.quantise.map_or(0.0, |(row, element, column)| {
            let (by_row, by_element) = (rows * row, rows * depth * element);
            let knee = by_row.powi(QUANTISE_KNEE) + by_element.powi(QUANTISE_KNEE);
            knee.cbrt() + depth * column
        });
        let compute = multiply + unaligned;
        let bound = if self.launch > compute.max(memory + quantise) {
            Bound::Launch
        } else if compute > memory + quantise {
            Bound::Compute
        } else {
            Bound::Memory
        };
        (self.launch + joined + unaligned + quantise, bound)
    }

    fn tiles(&self, tile: &TileCost, m: u64, n: u64) -> f64 {
        match self.kernels == GemmKernels::SearchedFinely {
            true => (m as f64 / tile.rows as f64).max(1.0) * (n as f64 / tile.columns as f64).max(1.0),
            false => (m.div_ceil(tile.rows) * n.div_ceil(tile.columns)) as f64,
        }
    }

    /// The indices of the tiles that the library may choose for this many rows, and the number of
    /// splits of k.
    fn menu(&self, m: u64, k: u64) -> (&'static [usize], usize) {
        let menu: &[usize] = match (self.kernels, m) {
            (GemmKernels::Searched | GemmKernels::SearchedFinely, _) => {
                let splits = SPLITS.iter().take_while(|&&s| s == 1 || k >= s * SHORTEST_SPLIT).count();
                return (SEARCHED, splits);
            }
            (GemmKernels::Quantised, _) => QUANTISED,
            (GemmKernels::QuantisedAda, ..=16) => &[12],
            (GemmKernels::QuantisedAda, ..=32) => &[10],
            (_, ..=64) => &[7],
            (_, ..=128) => &[6],
            (GemmKernels::QuantisedAda, ..=256) => &[5],
            _ => &[2],
        };
        (menu, 1)
    }

    /// Seconds of multiplying alone: the soft minimum of order 8 over tile shapes and splits.
    fn multiply(&self, m: u64, n: u64, k: u64) -> f64 {
        let (output, depth) = (m as f64 * n as f64, k as f64);
        let (menu, splits) = self.menu(m, k);
        let mut sum = 0.0;
        for tile in menu.iter().map(|&tile| &self.tiles[tile]) {
            let tiles = self.tiles(tile, m, n) / self.multiprocessors;
            let reread = tile.reread * output * depth;
            for &split in &SPLITS[..splits] {
                let parts = split as f64;
                let fill = tiles * parts;
                let waves = match fill <= 1.0 {
                    true => 1.0,
                    false => fill + self.whole_waves * idle_share(fill),
                };
                let wave = tile.step * depth / parts + self.tile_start;
                let reduce =
                    if split == 1 { 0.0 } else { self.split_start + parts * output * 4.0 / self.cached };
                let rate = 1.0 / (waves * wave + reread + reduce);
                let (square, fourth) = (rate * rate, rate.powi(4));
                sum += square * square * fourth;
                // Once every multiprocessor has several tiles, further splits only add reductions.
                if fill > 4.0 {
                    break;
                }
            }
        }
        1.0 / sum.sqrt().sqrt().sqrt()
    }
}

/// The share of the last wave that is idle if tiles fill so many waves.
fn idle_share(fill: f64) -> f64 {
    let idle = fill as u64 as f64 + 1.0 - fill;
    if idle < 1.0 { idle } else { 0.0 }
}
