//! What a kernel computes and moves.

use hwprofiles::{Bytes, Flop};

/// FLOP and traffic of one kernel in f32. The formulas count a multiply-add as 2 FLOP, and each
/// value that is read or written once: what fits a core's cache is not read again. A line is read
/// before it is written, by the program (y = a·x + y) or by its store, so the bytes read include
/// all bytes written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KernelWork {
    pub flop: Flop,
    /// Bytes read from the memory.
    pub read: Bytes,
    /// Bytes written to it.
    pub written: Bytes,
    pub kind: WorkKind,
}

/// Which rates of a host apply.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum WorkKind {
    /// Operands from memory.
    Streamed,
    /// Operands of these bytes together, which stay in the caches.
    Cached(Bytes),
    /// y[m, n] = x[m, k] · W[n, k]ᵀ, with the matrix from memory.
    Product { m: u64, n: u64, k: u64 },
}

impl KernelWork {
    /// Counts of FLOP and of values.
    fn streamed(flop: usize, read: usize, written: usize) -> Self {
        let bytes = |values: usize| Bytes::new((values * size_of::<f32>()) as u64);
        let (flop, read, written) = (Flop::new(flop as u128), bytes(read), bytes(written));
        Self { flop, read, written, kind: WorkKind::Streamed }
    }

    /// y = a·x + y of `n` values: 2n FLOP, 8n bytes read, 4n written.
    pub fn axpy(n: usize) -> Self {
        Self::streamed(2 * n, 2 * n, n)
    }

    /// x·y of `n` values: 2n FLOP, 8n bytes read.
    pub fn dot(n: usize) -> Self {
        Self::streamed(2 * n, 2 * n, 0)
    }

    /// x·x of `n` values: 2n FLOP, 4n bytes read.
    pub fn norm(n: usize) -> Self {
        Self::streamed(2 * n, n, 0)
    }

    /// y[m, n] = x[m, k] · W[n, k]ᵀ: 2mnk FLOP, 4(nk + mk + mn) bytes read, 4mn written.
    pub fn product(m: usize, n: usize, k: usize) -> Self {
        let kind = WorkKind::Product { m: m as u64, n: n as u64, k: k as u64 };
        Self { kind, ..Self::streamed(2 * m * n * k, n * k + m * k + m * n, m * n) }
    }

    /// A sparse product with `nonzeros` values in `rows` rows and `x` values of the vector from
    /// memory: 2 FLOP and 8 bytes for each nonzero (value and column), 4x bytes, and for each row
    /// 8 bytes read (its start and y's line) and 4 written.
    pub fn sparse(rows: usize, nonzeros: usize, x: usize) -> Self {
        Self::streamed(2 * nonzeros, 2 * nonzeros + x + 2 * rows, rows)
    }

    /// A five-point sweep over `rows` rows of `width` points with a row above and one below:
    /// 4·rows·(width − 2) FLOP, 4·(2·rows + 2)·width bytes read, 4·rows·width written.
    pub fn jacobi(rows: usize, width: usize) -> Self {
        Self::streamed(4 * rows * (width - 2), (2 * rows + 2) * width, rows * width)
    }

    /// The parts of one iteration of conjugate gradients with `n` unknowns: the sparse product,
    /// p·q, two AXPYs, r·r and the new direction, which has an AXPY's work. 2·nonzeros + 10n FLOP.
    pub fn gradients(n: usize, nonzeros: usize) -> Vec<Self> {
        let axpy = Self::axpy(n);
        vec![Self::sparse(n, nonzeros, n), Self::dot(n), axpy, axpy, Self::norm(n), axpy]
    }

    /// All bytes read and written.
    pub fn traffic(&self) -> Bytes {
        self.read + self.written
    }

    /// Bytes written ÷ all bytes, at most a half.
    pub fn written_share(&self) -> f64 {
        self.written.as_f64() / self.traffic().as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(work: KernelWork, flop: u128, read: u64, written: u64) {
        let got = (work.flop, work.read, work.written);
        assert_eq!(got, (Flop::new(flop), Bytes::new(read), Bytes::new(written)));
        assert!(work.read >= work.written, "a line is read before it is written");
    }

    #[test]
    fn flop_and_bytes_are_their_closed_forms() {
        check(KernelWork::axpy(1000), 2000, 8000, 4000);
        check(KernelWork::dot(1000), 2000, 8000, 0);
        check(KernelWork::norm(1000), 2000, 4000, 0);
        check(KernelWork::product(2, 3, 5), 60, 4 * (15 + 10 + 6), 24);
        check(KernelWork::sparse(10, 160, 0), 320, 8 * 160 + 8 * 10, 40);
        check(KernelWork::sparse(10, 160, 10), 320, 8 * 160 + 12 * 10, 40);
        check(KernelWork::jacobi(10, 100), 4 * 10 * 98, 4 * 22 * 100, 4 * 1000);
        let iteration = KernelWork::gradients(1000, 5000);
        let flop: u128 = iteration.iter().map(|work| work.flop.get()).sum();
        let bytes: u64 = iteration.iter().map(|work| work.traffic().get()).sum();
        assert_eq!(flop, 2 * 5000 + 10 * 1000);
        // 8 per nonzero; per row 16 of the product, 8 + 4 of the dots, 12 of each update.
        assert_eq!(bytes, 8 * 5000 + (16 + 12 + 36) * 1000);
    }

    #[test]
    fn intensities_are_those_of_the_textbook() {
        let intensity = |work: KernelWork| (work.flop / work.traffic()).get();
        assert!((intensity(KernelWork::axpy(99)) - 1.0 / 6.0).abs() < 1e-12);
        // Many rows: four operations for twelve bytes.
        assert!((intensity(KernelWork::jacobi(1 << 20, 1 << 10)) / (1.0 / 3.0) - 1.0).abs() < 0.01);
        // A matrix and a vector: 2 FLOP for each weight of 4 bytes.
        assert!((intensity(KernelWork::product(1, 4096, 4096)) / 0.5 - 1.0).abs() < 0.01);
        // A square product of n³: n ÷ 8, since y is read and written.
        assert!((intensity(KernelWork::product(512, 512, 512)) - 64.0).abs() < 1e-9);
        // Many values per row: 2 FLOP for 8 bytes.
        assert!((intensity(KernelWork::sparse(1, 1 << 20, 0)) - 0.25).abs() < 1e-3);
    }
}
