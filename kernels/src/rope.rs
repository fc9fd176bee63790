//! Rotary position embedding.

use crate::cuda::calls::Rotation;
use crate::disjoint::Disjoint;
use crate::vector::{Rows, compute, each_range};
use crate::{Buffer, Error, Memory, Pool};

/// Cosines and sines of every position, `[position][half]`, with half = rotated dimensions / 2; and which values of a
/// head are the pairs that turn.
#[derive(Debug)]
pub struct RopeTable {
    half: usize,
    neighbours: bool,
    /// All cosines, then all sines.
    values: Buffer,
}

impl RopeTable {
    /// The table of positions 0..`positions` for the angles position · frequency, computed in f32 as Hugging Face
    /// transformers do. Scaled variants (llama3, linear, YaRN) scale the frequencies first.
    ///
    /// # Errors
    /// As [`Memory::allocate`].
    pub fn new(memory: &Memory, frequencies: &[f32], positions: usize) -> Result<Self, Error> {
        Self::scaled(memory, frequencies, 1.0, positions)
    }

    /// The same with cosines and sines multiplied by `scale`, as YaRN and LongRoPE have them.
    ///
    /// # Errors
    /// As [`RopeTable::new`].
    pub fn scaled(memory: &Memory, frequencies: &[f32], scale: f32, positions: usize) -> Result<Self, Error> {
        let half = frequencies.len();
        let values =
            memory.filled(2 * positions * half * size_of::<f32>(), |values| -> Result<(), Error> {
                let (cos, sin) = values.view_mut::<f32>().split_at_mut(positions * half);
                let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f));
                for ((cos, sin), angle) in cos.iter_mut().zip(sin).zip(angles) {
                    let (s, c) = angle.sin_cos();
                    (*sin, *cos) = (s * scale, c * scale);
                }
                Ok(())
            })?;
        Ok(Self { half, neighbours: false, values })
    }

    /// The same for pairs of neighbours, values 2i and 2i + 1 of a head (GPT-J's order), where `neighbours`; of each
    /// half, values i and i + half (that of Hugging Face's Llama), where not, which is what [`RopeTable::new`] has.
    #[must_use]
    pub fn with_neighbours(self, neighbours: bool) -> Self {
        Self { neighbours, ..self }
    }

    /// Whether its pairs are neighbours.
    pub fn turns_neighbours(&self) -> bool {
        self.neighbours
    }

    /// Positions it covers.
    pub fn positions(&self) -> usize {
        (self.bytes() / 2 / size_of::<f32>()).checked_div(self.half).unwrap_or(0)
    }

    /// Half of the rotated dimensions.
    pub fn half(&self) -> usize {
        self.half
    }

    /// The table where a GPU has it.
    pub fn on_gpu(&self) -> Rotation {
        let all = self.values.values();
        let count = self.positions() * self.half;
        let (cosines, sines) = (all.first(count), all.from(count).first(count));
        Rotation { cosines, sines, half: self.half, neighbours: self.neighbours }
    }

    /// Bytes it takes.
    pub fn bytes(&self) -> usize {
        self.values.len()
    }
}

/// Rotates the first 2·half values of each head of each row, in place; which of them are one pair is the table's.
///
/// Row r is `stride` values after the one before, starts with `heads` heads of `head_dim` values and is at
/// `positions[r]`.
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
    assert!(2 * half <= head_dim && (stride >= heads * head_dim || positions.len() <= 1));
    let x = Disjoint::new(x);
    let (cos, sin) = table.values.view::<f32>().split_at(table.positions() * half);
    each_range(pool, positions.len(), heads * head_dim, |rows| {
        for row in rows {
            let at = positions[row] * half;
            let (cos, sin) = (&cos[at..][..half], &sin[at..][..half]);
            // SAFETY: rows do not overlap, and each is one item's.
            let heads = unsafe { x.range(row * stride, heads * head_dim) };
            compute(pool.path(), Turn { heads, head_dim, neighbours: table.neighbours, cos, sin });
        }
    });
}

/// All heads of one row.
struct Turn<'a> {
    heads: &'a mut [f32],
    head_dim: usize,
    neighbours: bool,
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Rows for Turn<'_> {
    #[inline(always)]
    fn compute(self) {
        let turn = |a: f32, b: f32, cos: f32, sin: f32| (a * cos - b * sin, b * cos + a * sin);
        for head in self.heads.chunks_exact_mut(self.head_dim) {
            if self.neighbours {
                for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(self.cos).zip(self.sin) {
                    (pair[0], pair[1]) = turn(pair[0], pair[1], *cos, *sin);
                }
                continue;
            }
            let (low, high) = head.split_at_mut(self.cos.len());
            for (((low, high), cos), sin) in low.iter_mut().zip(high).zip(self.cos).zip(self.sin) {
                (*low, *high) = turn(*low, *high, *cos, *sin);
            }
        }
    }
}
