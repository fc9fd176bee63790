//! The numerical kernels against their definitions in f64, on every path and at lengths around
//! their steps.

use kernels::numeric::{self, CgVectors, CsrMatrix};
use kernels::{Buffer, Path, Pool, affinity};

const LENGTHS: [usize; 10] = [0, 1, 3, 15, 16, 17, 63, 64, 129, 9001];

fn pools() -> Vec<Pool> {
    let cores = affinity::available_cores();
    let cores = [cores[0], cores[cores.len() - 1]];
    let pool = |path| Pool::new(&cores).expect("our cores").with_path(path);
    Path::supported().into_iter().map(pool).collect()
}

/// Values between −1 and 1 without a pattern.
fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn assert_close(got: &[f32], wanted: impl IntoIterator<Item = f64>, size: f64) {
    let wanted: Vec<f64> = wanted.into_iter().collect();
    assert_eq!(got.len(), wanted.len());
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!((f64::from(*got) - wanted).abs() <= 1e-6 * size, "{at}: {got} for {wanted}");
    }
}

#[test]
fn sums_and_products_of_vectors_are_those_of_each_value() {
    for (pool, len) in pools().iter().flat_map(|pool| LENGTHS.map(|len| (pool, len))) {
        let (x, y) = (values(len, 1), values(len, 2));
        let pairs = || x.iter().zip(&y).map(|(x, y)| (f64::from(*x), f64::from(*y)));
        let mut sum = y.clone();
        numeric::axpy(pool, &mut sum, 0.75, &x);
        assert_close(&sum, pairs().map(|(x, y)| 0.75 * x + y), 1.0);
        let mut sum = y.clone();
        numeric::xpay(pool, &mut sum, 0.75, &x);
        assert_close(&sum, pairs().map(|(x, y)| x + 0.75 * y), 1.0);
        let wanted: f64 = pairs().map(|(x, y)| x * y).sum();
        let size: f64 = pairs().map(|(x, y)| (x * y).abs()).sum();
        assert!((numeric::dot(pool, &x, &y) - wanted).abs() <= 1e-6 * size, "{} {len}", pool.path());
    }
}

/// A matrix with these starts of rows, columns and values.
fn matrix(columns: usize, starts: &[u32], indices: &[u32], entries: &[f32]) -> CsrMatrix {
    let words = |words: &[u32]| {
        let mut buffer = Buffer::new(size_of_val(words)).expect("memory");
        buffer.view_mut().copy_from_slice(words);
        buffer
    };
    let bits: Vec<u32> = entries.iter().map(|value| value.to_bits()).collect();
    CsrMatrix::new(columns, words(starts), words(indices), words(&bits))
}

/// A matrix of `rows` rows: row i has i mod 7 values, in columns without order.
fn irregular(rows: usize, columns: usize) -> CsrMatrix {
    let mut starts = vec![0];
    (0..rows).for_each(|row| starts.push(starts[row] + (row % 7) as u32));
    let nonzeros = starts[rows] as usize;
    let indices: Vec<u32> = (0..nonzeros).map(|at| (at * 7919 % columns) as u32).collect();
    matrix(columns, &starts, &indices, &values(nonzeros, 3))
}

fn product(matrix: &CsrMatrix, x: &[f64]) -> Vec<f64> {
    let row = |row| matrix.row(row).map(|(column, value)| f64::from(value) * x[column]).sum();
    (0..matrix.rows()).map(row).collect()
}

#[test]
fn a_sparse_product_is_that_of_each_row_also_of_some_rows_alone() {
    for (pool, rows) in pools().iter().flat_map(|pool| LENGTHS.map(|rows| (pool, rows))) {
        let matrix = irregular(rows, 101);
        assert_eq!((matrix.rows(), matrix.columns()), (rows, 101));
        let stored: usize = (0..rows).map(|row| matrix.row(row).count()).sum();
        assert_eq!(matrix.nonzeros(0..rows), stored);
        let x = values(101, 4);
        let doubles: Vec<f64> = x.iter().copied().map(f64::from).collect();
        let mut y = vec![f32::NAN; rows];
        matrix.multiply(pool, 0..rows, &mut y, &x);
        assert_close(&y, product(&matrix, &doubles), 6.0);
        let some = rows / 3..rows / 2;
        let mut part = vec![f32::NAN; some.len()];
        matrix.multiply(pool, some.clone(), &mut part, &x);
        assert_eq!(part, y[some]);
    }
}

#[test]
#[should_panic(expected = "a column is out of range")]
fn a_column_beyond_the_last_is_refused() {
    matrix(3, &[0, 1], &[3], &[1.0]);
}

#[test]
fn a_sweep_gives_each_inner_point_the_mean_of_its_neighbours_and_keeps_the_edges() {
    for (pool, (rows, width)) in pools().iter().flat_map(|pool| {
        [(0, 5), (1, 2), (1, 3), (2, 17), (3, 64), (5, 130), (40, 33)].map(|shape| (pool, shape))
    }) {
        let from = values((rows + 2) * width, 5);
        let mut to = vec![f32::NAN; rows * width];
        numeric::jacobi(pool, &mut to, &from, width);
        let at = |row: usize, column: usize| f64::from(from[row * width + column]);
        let points = (1..=rows).flat_map(|row| (0..width).map(move |column| (row, column)));
        let wanted = points.map(|(row, column)| match column {
            edge if edge == 0 || edge == width - 1 => at(row, edge),
            _ => {
                let beside = at(row, column - 1) + at(row, column + 1);
                (at(row - 1, column) + at(row + 1, column) + beside) / 4.0
            }
        });
        assert_close(&to, wanted, 1.0);
    }
}

/// The five-point Laplacian of a square grid with zeros around it.
fn laplacian(side: usize) -> CsrMatrix {
    let (mut starts, mut indices, mut entries) = (vec![0], Vec::new(), Vec::new());
    for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
        let mut add = |there: bool, at: usize, value: f32| {
            if there {
                indices.push(at as u32);
                entries.push(value);
            }
        };
        let at = row * side + column;
        add(row > 0, at.wrapping_sub(side), -1.0);
        add(column > 0, at.wrapping_sub(1), -1.0);
        add(true, at, 4.0);
        add(column + 1 < side, at + 1, -1.0);
        add(row + 1 < side, at + side, -1.0);
        starts.push(entries.len() as u32);
    }
    matrix(side * side, &starts, &indices, &entries)
}

#[test]
fn conjugate_gradients_follow_the_textbook_and_solve_the_equation() {
    let side = 23;
    let matrix = laplacian(side);
    let b = values(side * side, 6);
    let doubles: Vec<f64> = b.iter().copied().map(f64::from).collect();
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for pool in pools() {
        let (mut x, mut r, mut p, mut q) = (vec![0.0; b.len()], b.clone(), b.clone(), vec![0.0; b.len()]);
        let mut vectors = CgVectors { x: &mut x, r: &mut r, p: &mut p, q: &mut q };
        let start = dot(&doubles, &doubles);
        let (mut residual, mut iterations) = (start, 0);
        // The same in f64, serially.
        let (mut x64, mut r64, mut p64, mut residual64) =
            (vec![0.0; b.len()], doubles.clone(), doubles.clone(), start);
        while residual > 1e-8 * start {
            residual = numeric::conjugate_gradients_step(&pool, &matrix, &mut vectors, residual);
            let q64 = product(&matrix, &p64);
            let step = residual64 / dot(&p64, &q64);
            x64.iter_mut().zip(&p64).for_each(|(x, p)| *x += step * p);
            r64.iter_mut().zip(&q64).for_each(|(r, q)| *r -= step * q);
            let next = dot(&r64, &r64);
            p64.iter_mut().zip(&r64).for_each(|(p, r)| *p = r + next / residual64 * *p);
            residual64 = next;
            iterations += 1;
            if iterations == 5 {
                assert_close(vectors.x, x64.iter().copied(), 10.0);
            }
            assert!(iterations < 200, "{residual} after {iterations} iterations");
        }
        let left = product(&matrix, &x.iter().copied().map(f64::from).collect::<Vec<_>>());
        assert_close(&left.iter().map(|&value| value as f32).collect::<Vec<_>>(), doubles.clone(), 1e3);
    }
}
