//! How rows of a checkpoint's tensors are joined to the matrices that we keep.
//!
//! We keep fewer, larger matrices than most checkpoints do: q, k and v are one matrix, and so are
//! gate and up. Their rows are [`FusedTensor`] from the checkpoint's. q, k and v follow one
//! another. Gate and up alternate in panels of [`INTERLEAVE`] rows (16 of gate, 16 of up, 16 of
//! gate, …; the last panel has what is left of each), so that a range of rows that starts and ends
//! at [`planner::ROW_PANEL`] has each gate with its own up. Where a checkpoint joins matrices too,
//! in whatever order, each of them is a [`TensorRows`] of the tensor that holds it.

/// Rows of gate, and of up, in each panel.
pub(crate) const INTERLEAVE: u64 = 16;

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Its name in the files.
    pub name: String,
    /// Its shape: [rows, columns] or [elements].
    pub shape: Vec<u64>,
    /// Whether the file stores the difference from 1.
    pub plus_one: bool,
}

/// All rows of a tensor, or runs of them at equal distances, which form a matrix or vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorRows {
    /// The tensor.
    pub tensor: Tensor,
    /// How many rows the matrix has.
    pub rows: u64,
    /// The tensor's row where the first run begins.
    first: u64,
    /// Rows of a run.
    run: u64,
    /// Rows from the start of a run to the start of the next.
    stride: u64,
}

/// The tensors of one sublayer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SublayerTensors {
    /// The matrix. Attention has none; experts have two each: gate and up, then down.
    pub matrices: Vec<FusedTensor>,
    /// Norm weights, norm biases, biases and position tables, in the order in which
    /// [`Sublayer::vector_bytes`] counts them.
    pub vectors: Vec<FusedTensor>,
}

impl TensorRows {
    fn whole(tensor: Tensor) -> Self {
        let rows = tensor.shape[0];
        Self { tensor, rows, first: 0, run: rows, stride: rows }
    }

    /// `rows` rows of the tensor, from row `first` on.
    pub fn part(tensor: Tensor, first: u64, rows: u64) -> Self {
        Self { tensor, rows, first, run: rows, stride: rows }
    }

    /// Row `row` of the tensor `rows` times.
    pub fn repeated(tensor: Tensor, row: u64, rows: u64) -> Self {
        Self { tensor, rows, first: row, run: 1, stride: 0 }
    }

    /// Matrices that share a tensor of `columns` columns; `rows` has the number of rows of each.
    /// The tensor consists of `groups` groups, and each group has an equal part of every matrix.
    pub fn grouped(name: &str, groups: u64, rows: &[u64], columns: u64) -> Vec<Self> {
        let all: u64 = rows.iter().sum();
        let tensor = Tensor { name: name.to_owned(), shape: vec![all, columns], plus_one: false };
        let mut first = 0;
        let share = |&rows: &u64| {
            let run = rows / groups;
            first += run;
            Self { tensor: tensor.clone(), rows, first: first - run, run, stride: all / groups }
        };
        rows.iter().map(share).collect()
    }

    /// These rows as a tensor of their own, under the name of [`rows_name`]; `None` where they are
    /// the whole tensor.
    pub fn alone(&self) -> Option<Self> {
        let name = rows_name(&self.tensor.name, self.first);
        let shape = std::iter::once(self.rows).chain(self.tensor.shape[1..].iter().copied()).collect();
        let tensor = Tensor { name, shape, plus_one: self.tensor.plus_one };
        (self.rows < self.tensor.shape[0]).then(|| Self::whole(tensor))
    }

    /// The tensor's row that holds `row` of the matrix.
    fn locate(&self, row: u64) -> u64 {
        self.first + row / self.run * self.stride + row % self.run
    }
}

/// The name of the rows of tensor `name` of which row `first` is the first, in files that have them
/// as a tensor of their own.
pub(super) fn rows_name(name: &str, first: u64) -> String {
    format!("{name}[{first}]")
}

/// Matrices whose rows, or vectors whose elements, are joined to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FusedTensor {
    /// What is joined; all have the same number of columns.
    pub sources: Vec<TensorRows>,
    /// Whether rows alternate in panels instead of following one another.
    pub interleaved: bool,
}

impl FusedTensor {
    pub fn one(name: String, shape: Vec<u64>) -> Self {
        Self::whole([Tensor { name, shape, plus_one: false }])
    }

    /// Whole tensors, one after another.
    pub fn whole(tensors: impl IntoIterator<Item = Tensor>) -> Self {
        Self { sources: tensors.into_iter().map(TensorRows::whole).collect(), interleaved: false }
    }

    /// Rows of all matrices together.
    pub fn rows(&self) -> u64 {
        self.sources.iter().map(|share| share.rows).sum()
    }

    /// Values of a row; 1 for a vector.
    pub fn columns(&self) -> u64 {
        self.sources[0].tensor.shape[1..].iter().product()
    }

    /// Index of the source that has `row`, and the row of its tensor.
    pub fn locate(&self, row: u64) -> (usize, u64) {
        if self.interleaved {
            let panel = row / (2 * INTERLEAVE) * INTERLEAVE;
            let height = INTERLEAVE.min(self.sources[0].rows - panel);
            let offset = row - 2 * panel;
            let (index, row) =
                if offset < height { (0, panel + offset) } else { (1, panel + offset - height) };
            return (index, self.sources[index].locate(row));
        }
        let mut row = row;
        for (index, share) in self.sources.iter().enumerate() {
            match row.checked_sub(share.rows) {
                Some(beyond) => row = beyond,
                None => return (index, share.locate(row)),
            }
        }
        panic!("row {row} is beyond {:?}", self.sources)
    }

    /// The tensors of the sources, each once.
    pub fn tensors(self) -> Vec<Tensor> {
        let mut tensors: Vec<_> = self.sources.into_iter().map(|share| share.tensor).collect();
        let mut seen = std::collections::BTreeSet::new();
        tensors.retain(|tensor| seen.insert(tensor.name.clone()));
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_a_fused_matrix_comes_from_its_own_row_of_one_tensor() {
        for (rows, interleaved) in [([40, 40], true), ([16, 16], true), ([5, 5], true), ([7, 20], false)] {
            let tensor = |rows| Tensor { name: String::new(), shape: vec![rows, 3], plus_one: false };
            let fused = FusedTensor { interleaved, ..FusedTensor::whole(rows.map(tensor)) };
            let mut seen: Vec<_> = (0..fused.rows()).map(|row| fused.locate(row)).collect();
            if interleaved {
                // Every range of whole panels has each gate row together with its up row.
                for (index, panel) in seen.chunks(2 * INTERLEAVE as usize).enumerate() {
                    let (gate, up) = panel.split_at(panel.len() / 2);
                    let first = index as u64 * INTERLEAVE;
                    assert!(gate.iter().enumerate().all(|(i, &at)| at == (0, first + i as u64)));
                    assert!(up.iter().enumerate().all(|(i, &at)| at == (1, first + i as u64)));
                }
            }
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len() as u64, rows[0] + rows[1]);
        }
    }

    #[test]
    fn matrices_that_share_a_tensor_have_each_of_its_rows_once_and_keep_to_their_groups() {
        for (groups, rows, interleaved) in [
            (1, vec![40, 40], true),
            (1, vec![48, 16, 16], false),
            (4, vec![48, 16, 16], false),
            (8, vec![16, 16, 16], false),
        ] {
            let sources = TensorRows::grouped("", groups, &rows, 3);
            let all: u64 = rows.iter().sum();
            let fused = FusedTensor { sources, interleaved };
            let located: Vec<_> = (0..fused.rows()).map(|row| fused.locate(row)).collect();
            // Within a group, rows of the first matrix come first, then those of the second, and so
            // on.
            for &(share, row) in &located {
                let within = row % (all / groups) * groups;
                let before: u64 = rows[..share].iter().sum();
                assert!((before..before + rows[share]).contains(&within), "{share} {row}");
            }
            let mut seen: Vec<_> = located.into_iter().map(|(_, row)| row).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..all).collect::<Vec<_>>());
        }
    }
}
