//! The points that are measured, and their order.

use crate::gpu::attention_grid;
use crate::gpu::table::{TableKind, WorkTable};
use crate::method::options::Depth;
use hwprofiles::{Bytes, DType, Direction, HostMemory};
use kernels::cuda::{GpuFacts, GpuWork, SmallKernel};
use std::time::Duration;

/// Rows of x: from one token to the chunks of a prefill.
const ROWS: [u64; 12] = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];
/// Rows and columns of W.
const SIDES: [u64; 7] = [128, 512, 1024, 2048, 4096, 8192, 16384];
/// Steps through a list: every fourth entry, every second, all.
const STEPS: [usize; 3] = [4, 2, 1];

/// The finest grid.
const FINEST: usize = STEPS.len() - 1;

/// Formats of weights that the executor's own kernels multiply.
const PACKED: [DType; 10] = [
    DType::Int8,
    DType::Int4,
    DType::Q8_0,
    DType::Q6K,
    DType::Q4K,
    DType::Q5K,
    DType::Q4_0,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
];
/// The first of them are measured in little time, too.
const COMMON: usize = 5;

/// Shapes of products by packed weights, each with the coarsest grid that contains it. Rows of x
/// are on both sides of where the kernels change.
fn packed_shapes() -> impl Iterator<Item = ((u64, u64, u64), usize)> {
    const ROWS: [(u64, usize); 9] =
        [(1, 0), (8, 1), (9, 2), (32, 1), (64, 0), (65, 2), (256, 2), (1024, 1), (4096, 0)];
    const SIDES: [(u64, usize); 4] = [(1024, 0), (2048, 2), (4096, 1), (16384, 0)];
    let columns = |(m, i): (u64, usize)| {
        let columns =
            move |(n, j): (u64, usize)| SIDES.into_iter().map(move |(k, l)| ((m, n, k), i.max(j).max(l)));
        SIDES.into_iter().flat_map(columns)
    };
    ROWS.into_iter().flat_map(columns)
}

/// How much is measured of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GpuExtent {
    /// After this time no visit begins, except the first visit to a table that is essential.
    pub budget: Duration,
    /// Visits to each point, while there is time.
    pub passes: usize,
    /// The finest grid of products and of attention: an index of [`STEPS`].
    pub finest: usize,
    /// The most bytes of a transfer.
    pub largest_transfer: Bytes,
}

impl GpuExtent {
    pub fn new(depth: Depth) -> Self {
        let extent = |budget, passes, finest, largest_transfer: u64| Self {
            budget: Duration::from_secs(budget),
            passes,
            finest,
            largest_transfer: Bytes::new(largest_transfer),
        };
        match depth {
            // Tests want every point, also on a busy machine.
            Depth::Tiny => extent(10 * 60, 1, 0, 1 << 22),
            Depth::Quick => extent(26, 1, 1, 1 << 28),
            Depth::Full => extent(9 * 60 + 30, 3, 2, 1 << 30),
        }
    }

    /// The tables of points for such a GPU.
    pub fn tables(&self, facts: &GpuFacts) -> Vec<WorkTable> {
        let mut tables = vec![WorkTable::new(
            TableKind::Launches,
            vec![GpuWork::Launch, GpuWork::Node, GpuWork::Replay, GpuWork::RoundTrip],
        )];
        tables.push(WorkTable::new(TableKind::Reads, above_cache(facts, 1).map(GpuWork::Read).collect()));
        tables.push(WorkTable::new(TableKind::Copies, above_cache(facts, 2).map(GpuWork::Copy).collect()));
        for memory in [HostMemory::Pageable, HostMemory::Pinned] {
            for direction in [Direction::ToDevice, Direction::ToHost, Direction::Both] {
                let works = transfers(facts).map(|bytes| GpuWork::Transfer { direction, memory, bytes });
                tables.push(WorkTable::new(TableKind::Transfers(direction, memory), works.collect()));
            }
        }
        if facts.no_model_kernels.is_none() {
            let works = SmallKernel::ALL.map(GpuWork::SmallKernel).to_vec();
            tables.push(WorkTable::new(TableKind::SmallKernels, works));
            for (phase, shapes) in attention_grid::attention_shapes(self.finest, facts) {
                let works = shapes.into_iter().map(GpuWork::Attention).collect();
                tables.push(WorkTable::new(TableKind::Attention(phase), works));
            }
            tables.push(WorkTable::new(TableKind::LayerCalls, vec![GpuWork::LayerCalls]));
            tables.push(WorkTable::new(TableKind::Mixtures, vec![GpuWork::Mixture, GpuWork::GroupedProduct]));
            // None where there is time for a few points only.
            let formats = match self.finest {
                0 => &[][..],
                FINEST => &PACKED,
                _ => &PACKED[..COMMON],
            };
            for &dtype in formats {
                let works = packed_shapes().filter(|&(_, level)| level <= self.finest);
                let works = works.map(|((m, n, k), _)| GpuWork::PackedProduct { dtype, m, n, k });
                tables.push(WorkTable::new(TableKind::PackedProducts(dtype), works.collect()));
            }
        }
        for dtype in formats(facts) {
            let shapes = shapes().filter(|&(_, level)| level <= self.finest);
            let works = shapes.map(|((m, n, k), _)| GpuWork::Product { dtype, m, n, k });
            tables.push(WorkTable::new(TableKind::Products(dtype), works.collect()));
        }
        tables
    }
}

/// Formats that the GPU's tensor cores multiply. Of integers the products by packed weights are
/// measured, as they are what the executor computes.
fn formats(facts: &GpuFacts) -> impl Iterator<Item = DType> {
    let since = [(DType::Bf16, (8, 0)), (DType::Fp8, (8, 9)), (DType::F16, (7, 0))];
    let (products, capability) = (facts.no_products.is_none(), facts.capability);
    since.into_iter().filter(move |(_, since)| products && capability >= *since).map(|(dtype, _)| dtype)
}

/// Powers of two from four times the cache to a `parts`-th of the memory that a read may use. Where
/// that range is empty, only the largest size.
fn above_cache(facts: &GpuFacts, parts: u64) -> impl Iterator<Item = Bytes> {
    let most = facts.largest_read.get() / parts;
    let first = (4 * facts.l2.get()).next_power_of_two().min(most).max(1);
    // Some GPUs have almost no cache, and small reads would measure their launches.
    let first = first.max((64 << 20).min(most));
    std::iter::successors(Some(first), |size| size.checked_mul(2))
        .take_while(move |size| *size <= most)
        .map(Bytes::new)
}

/// 4 KiB, 16 KiB, …, and the largest.
fn transfers(facts: &GpuFacts) -> impl Iterator<Item = Bytes> {
    let most = facts.largest_transfer.get();
    let sizes = std::iter::successors(Some(4 << 10), |size| Some(size * 4));
    sizes.take_while(move |size| *size < most).chain([most]).map(Bytes::new)
}

/// All shapes (m, n, k), each with the coarsest grid that contains it.
fn shapes() -> impl Iterator<Item = ((u64, u64, u64), usize)> {
    let sides = || SIDES.into_iter().enumerate();
    let all = ROWS
        .into_iter()
        .enumerate()
        .flat_map(move |m| sides().flat_map(move |n| sides().map(move |k| (m, n, k))));
    all.map(|((i, m), (j, n), (l, k))| {
        let level = level(i, ROWS.len()).max(level(j, SIDES.len())).max(level(l, SIDES.len()));
        ((m, n, k), level)
    })
}

/// The first of [`STEPS`] that reaches `index`. The last entry of a list belongs to the coarsest
/// grid, which must span the whole list.
fn level(index: usize, len: usize) -> usize {
    if index + 1 == len { 0 } else { STEPS.iter().position(|step| index.is_multiple_of(*step)).unwrap_or(0) }
}

/// (Table, point) in the order of visits: first everything but attention and products, then those
/// from the coarsest grid to the finest. Whenever the time is up, the measured points cover the
/// whole region.
pub(super) fn order(tables: &[WorkTable]) -> Vec<(usize, usize)> {
    let levels: Vec<_> = shapes().collect();
    let rank = |work: &GpuWork| match *work {
        GpuWork::Product { m, n, k, .. } => {
            1 + levels.iter().find(|(shape, _)| *shape == (m, n, k)).map_or(0, |(_, level)| *level)
        }
        GpuWork::PackedProduct { m, n, k, .. } => {
            1 + packed_shapes().find(|(shape, _)| *shape == (m, n, k)).map_or(0, |(_, level)| level)
        }
        GpuWork::Attention(shape) => 1 + attention_grid::level(&shape),
        _ => 0,
    };
    let mut order = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        order.extend(table.works().enumerate().map(|(point, work)| (rank(&work), at, point)));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, table, point)| (table, point)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::modelled_gpu::facts;

    #[test]
    fn every_grid_spans_the_region_and_holds_the_coarser_ones() {
        let count = |finest| shapes().filter(|&(_, level)| level <= finest).count();
        assert_eq!([count(0), count(1), count(2)], [4 * 3 * 3, 7 * 4 * 4, 12 * 7 * 7]);
        for finest in 0..STEPS.len() {
            for corner in [(1, 128, 128), (1, 16384, 128), (8192, 128, 16384), (8192, 16384, 16384)] {
                assert!(shapes().any(|(shape, level)| shape == corner && level <= finest), "{corner:?}");
            }
        }
    }

    #[test]
    fn grids_come_last_and_the_coarser_ones_of_all_formats_first() {
        let tables = GpuExtent::new(Depth::Full).tables(&facts());
        let order = order(&tables);
        assert_eq!(order.len(), tables.iter().map(|table| table.works().count()).sum::<usize>());
        let essential = order.iter().filter(|(table, _)| tables[*table].essential).count();
        assert!(order[..essential].iter().all(|(table, _)| tables[*table].essential));
        let formats = tables.iter().filter(|table| matches!(table.kind, TableKind::Products(_))).count();
        assert_eq!(formats, 3);
        let is_product = |table: usize| matches!(tables[table].kind, TableKind::Products(_));
        let products: Vec<_> = order.iter().filter(|(table, _)| is_product(*table)).collect();
        let coarse = &products[..36 * formats];
        for table in (0..tables.len()).filter(|table| is_product(*table)) {
            assert_eq!(coarse.iter().filter(|(it, _)| *it == table).count(), 36);
        }
        // The attention of a quick measurement precedes finer products.
        let rank = |wanted: GpuWork| {
            let has = |(table, point): &(usize, usize)| tables[*table].works().nth(*point) == Some(wanted);
            order.iter().position(has).expect("it is measured")
        };
        let shapes = attention_grid::attention_shapes(1, &facts());
        let quick = shapes.into_iter().flat_map(|(_, shapes)| shapes).map(GpuWork::Attention).map(rank).max();
        let finer = GpuWork::Product { dtype: DType::Bf16, m: 16, n: 128, k: 128 };
        assert!(quick < Some(rank(finer)), "{quick:?}");
    }

    #[test]
    fn streams_are_larger_than_the_cache_as_far_as_the_memory_allows() {
        let sizes = |l2: u64, memory: u64| -> Vec<u64> {
            let facts = GpuFacts { l2: Bytes::new(l2), largest_read: Bytes::new(memory), ..facts() };
            above_cache(&facts, 1).map(Bytes::get).collect()
        };
        assert_eq!(sizes(50 << 20, 1 << 30), [256 << 20, 512 << 20, 1 << 30]);
        assert_eq!(sizes(0, 100 << 20), [64 << 20]);
        assert_eq!(sizes(96 << 20, 300 << 20), [300 << 20]);
        assert_eq!(sizes(4 << 20, 7 << 20), [7 << 20]);
    }

    #[test]
    fn transfers_go_from_4_kib_to_the_largest_which_is_there_once() {
        let sizes = |most: u64| -> Vec<u64> {
            let facts = GpuFacts { largest_transfer: Bytes::new(most), ..facts() };
            transfers(&facts).map(Bytes::get).collect()
        };
        assert_eq!(sizes(1 << 30).len(), 10);
        assert_eq!(sizes(1 << 14), [1 << 12, 1 << 14]);
        assert_eq!(sizes(20_000), [1 << 12, 1 << 14, 20_000]);
    }

    #[test]
    fn a_gpu_without_kernels_of_models_is_not_asked_for_them() {
        let kinds = |no_model_kernels: Option<String>| {
            let tables = GpuExtent::new(Depth::Quick).tables(&GpuFacts { no_model_kernels, ..facts() });
            let kind =
                |table: &&WorkTable| matches!(table.kind, TableKind::SmallKernels | TableKind::Attention(_));
            tables.iter().filter(kind).count()
        };
        assert_eq!((kinds(None), kinds(Some("no compiler".into()))), (7, 0));
        let packed = |depth| {
            let tables = GpuExtent::new(depth).tables(&facts());
            let kinds = tables.iter().filter(|table| matches!(table.kind, TableKind::PackedProducts(_)));
            kinds.map(|table| table.works().count()).collect::<Vec<_>>()
        };
        let [quick, full] = [vec![6 * 3 * 3; COMMON], vec![9 * 4 * 4; PACKED.len()]];
        assert_eq!([Depth::Tiny, Depth::Quick, Depth::Full].map(packed), [vec![], quick, full]);
    }

    #[test]
    fn a_gpu_is_asked_for_the_formats_that_it_knows() {
        let names = |capability| {
            formats(&GpuFacts { capability, ..facts() }).map(DType::name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names((9, 0)), "bf16 fp8 f16");
        assert_eq!(names((8, 6)), "bf16 f16");
        assert_eq!(names((7, 5)), "f16");
        assert_eq!(formats(&GpuFacts { no_products: Some("none".into()), ..facts() }).count(), 0);
    }
}
