//! Rotary position embedding.

use crate::cpu::strided::holds;
use crate::cpu::vector::{RowKernel, compute, each_range};
use crate::runtime::Disjoint;
use crate::runtime::{Buffer, KernelError, MemoryArena, Pool};

/// The cosines and sines of every position, `[position][half]` with half = rotated dimensions / 2,
/// and which values of a head form a pair.
#[derive(Debug)]
pub struct RopeTable {
    half: usize,
    /// Whether a pair is two neighbours (GPT-J) and not values i and i + half (Llama).
    interleaved: bool,
    /// All cosines, then all sines.
    values: Buffer,
}

impl RopeTable {
    /// The table of positions 0..`positions` for the angles position · frequency, computed in f32
    /// as Hugging Face transformers do. Scaled variants (llama3, linear, YaRN) scale the
    /// frequencies first.
    ///
    /// # Errors
    /// As [`MemoryArena::allocate`].
    pub fn new(memory: &MemoryArena, frequencies: &[f32], positions: usize) -> Result<Self, KernelError> {
        Self::scaled(memory, frequencies, 1.0, positions)
    }

    /// As [`RopeTable::new`], with cosines and sines multiplied by `scale`, as in YaRN and
    /// LongRoPE.
    ///
    /// # Errors
    /// As [`RopeTable::new`].
    pub fn scaled(
        memory: &MemoryArena,
        frequencies: &[f32],
        scale: f32,
        positions: usize,
    ) -> Result<Self, KernelError> {
        let half = frequencies.len();
        let values =
            memory.filled(2 * positions * half * size_of::<f32>(), |values| -> Result<(), KernelError> {
                let (cos, sin) = values.view_mut::<f32>().split_at_mut(positions * half);
                let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
                for ((cos, sin), angle) in cos.iter_mut().zip(sin).zip(angles) {
                    let (s, c) = angle.sin_cos();
                    (*sin, *cos) = (s * scale, c * scale);
                }
                Ok(())
            })?;
        Ok(Self { half, interleaved: false, values })
    }

    /// The same table with the given order of pairs. Interleaved pairs are values 2i and 2i + 1 of
    /// a head (GPT-J's order). Otherwise a pair is values i and i + half (the order of Hugging
    /// Face's Llama), which is the order of [`RopeTable::new`].
    #[must_use]
    pub fn with_interleaved(self, interleaved: bool) -> Self {
        Self { interleaved, ..self }
    }

    /// Whether a pair is two neighbouring values.
    pub fn is_interleaved(&self) -> bool {
        self.interleaved
    }

    /// Positions it covers.
    pub fn positions(&self) -> usize {
        (self.bytes() / 2 / size_of::<f32>()).checked_div(self.half).unwrap_or(0)
    }

    /// Half of the rotated dimensions.
    pub fn half(&self) -> usize {
        self.half
    }

    /// All cosines, then all sines.
    pub(crate) fn values(&self) -> &Buffer {
        &self.values
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

/// Rotates the first 2·half values of each head of each row, in place, in the table's order of
/// pairs.
///
/// Rows lie `stride` values apart, and each starts with `heads` heads of `head_dim` values. Row r
/// is at `positions[r]`.
///
/// # Panics
/// Where `x` is too short or a position beyond the table.
pub fn rope(
    pool: &Pool,
    x: &mut [f32],
    stride: usize,
    heads: usize,
    head_dim: usize,
    table: &RopeTable,
    positions: &[usize],
) {
    let half = table.half;
    assert!(half <= head_dim / 2, "{half} pairs in heads of {head_dim}");
    let rows = positions.len();
    let width = heads.checked_mul(head_dim).filter(|&width| holds(x.len(), rows, stride, width));
    let width =
        width.unwrap_or_else(|| panic!("{rows} rows of {heads} heads, {stride} apart, in {}", x.len()));
    let x = Disjoint::new(x);
    let (cos, sin) = table.values.view::<f32>().split_at(table.positions() * half);
    each_range(pool, rows, width, |rows| {
        for row in rows {
            let at = positions[row] * half;
            let (cos, sin) = (&cos[at..][..half], &sin[at..][..half]);
            // SAFETY: by the check above rows do not overlap; each row belongs to one item.
            let heads = unsafe { x.range(row * stride, width) };
            compute(pool.path(), RotateRow { heads, head_dim, interleaved: table.interleaved, cos, sin });
        }
    });
}

/// All heads of one row.
struct RotateRow<'a> {
    heads: &'a mut [f32],
    head_dim: usize,
    interleaved: bool,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl RowKernel for RotateRow<'_> {
    #[inline(always)]
    fn compute(self) {
        let rotate = |a: f32, b: f32, cos: f32, sin: f32| (a * cos - b * sin, b * cos + a * sin);
        for head in self.heads.chunks_exact_mut(self.head_dim) {
            if self.interleaved {
                for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(self.cos).zip(self.sin) {
                    (pair[0], pair[1]) = rotate(pair[0], pair[1], *cos, *sin);
                }
                continue;
            }
            let (low, high) = head.split_at_mut(self.cos.len());
            for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(self.cos).zip(self.sin) {
                (*low, *high) = rotate(*low, *high, *cos, *sin);
            }
        }
    }
}
