//! The kernels under measurement, as a trait, so that a test can replace one by a wrong one.

use hwprofiles::Seconds;
use kernels::numeric::{self, CgVectors, CsrMatrix};
use kernels::stream::{self, StoreInstruction};
use kernels::{KvCache, KvSpan, Pool, RateLimitedLink, Scratch, StridedRows, StridedRowsMut, WeightsView};
use std::ops::Range;

/// What attention reads.
#[derive(Clone, Copy)]
pub(crate) struct AttentionInputs<'a> {
    /// Query heads.
    pub heads: usize,
    /// The factor of scores: 1 / √head dim.
    pub scale: f32,
    /// [new tokens, heads · head dim]
    pub q: &'a [f32],
    pub cache: KvCache<'a>,
    pub spans: &'a [KvSpan],
}

/// The kernels under measurement. Each method is the kernel of its name.
pub(crate) trait KernelSet: std::fmt::Debug + Sync {
    fn read(&self, pool: &Pool, x: &[f64]) -> f64 {
        stream::read(pool, x)
    }

    fn write(&self, pool: &Pool, to: &mut [f64], value: f64, store: StoreInstruction) {
        stream::write(pool, to, value, store);
    }

    fn copy(&self, pool: &Pool, to: &mut [f64], from: &[f64], store: StoreInstruction) {
        stream::copy(pool, to, from, store);
    }

    fn triad(&self, pool: &Pool, to: &mut [f64], a: &[f64], b: &[f64], factor: f64, store: StoreInstruction) {
        stream::triad(pool, to, a, b, factor, store);
    }

    /// The sum of up to three arrays; of none it writes zeros.
    fn sum(&self, pool: &Pool, to: &mut [f64], from: &[&[f64]], store: StoreInstruction) {
        match *from {
            [] => stream::write(pool, to, 0.0, store),
            [a] => stream::sum(pool, to, [a], store),
            [a, b] => stream::sum(pool, to, [a, b], store),
            [a, b, c] => stream::sum(pool, to, [a, b, c], store),
            _ => unreachable!("there are loops for up to three arrays"),
        }
    }

    fn dependent_adds(&self, count: u64) -> u64 {
        kernels::dependent_adds(count)
    }

    fn chase(&self, ring: &[u32], start: u32, steps: usize) -> u32 {
        stream::chase_from(ring, start, steps)
    }

    fn transfer(&self, link: &RateLimitedLink, to: &mut [u8], from: &[u8]) -> Seconds {
        link.copy(to, from)
    }

    fn gemm(
        &self,
        pool: &Pool,
        m: usize,
        y: &mut [f32],
        x: &[f32],
        w: WeightsView<'_>,
        scratch: &mut Scratch,
    ) {
        let (y, x) = (StridedRowsMut::new(y, w.rows()), StridedRows::new(x, w.columns()));
        kernels::gemm(pool, m, y, x, w, scratch);
    }

    fn attention(&self, pool: &Pool, out: &mut [f32], operands: AttentionInputs<'_>, scratch: &mut Scratch) {
        let AttentionInputs { heads, scale, q, cache, spans } = operands;
        let width = heads * cache.shape().head_dim;
        let scores = kernels::Scores::scaled(scale);
        let (out, q) = (StridedRowsMut::new(out, width), StridedRows::new(q, width));
        let operands =
            kernels::AttentionOperands { heads, scores, sinks: &[], out, q, cache, new: None, spans };
        kernels::attention(pool, operands, scratch);
    }

    fn rms_norm(&self, pool: &Pool, y: &mut [f32], x: &[f32], gamma: &[f32]) {
        kernels::rms_norm(pool, y, x, gamma, 1e-5);
    }

    fn add(&self, pool: &Pool, y: &mut [f32], x: &[f32]) {
        kernels::add(pool, y, x);
    }

    fn silu_mul(
        &self,
        pool: &Pool,
        out: &mut [f32],
        gate: &[f32],
        up: &[f32],
        stride: usize,
        columns: usize,
    ) {
        kernels::silu_mul(pool, out, gate, up, stride, columns);
    }

    fn axpy(&self, pool: &Pool, y: &mut [f32], a: f32, x: &[f32]) {
        numeric::axpy(pool, y, a, x);
    }

    fn sparse(&self, pool: &Pool, matrix: &CsrMatrix, rows: Range<usize>, y: &mut [f32], x: &[f32]) {
        matrix.multiply(pool, rows, y, x);
    }

    fn jacobi(&self, pool: &Pool, to: &mut [f32], from: &[f32], width: usize) {
        numeric::jacobi(pool, to, from, width);
    }

    fn gradients(&self, pool: &Pool, matrix: &CsrMatrix, mut vectors: CgVectors<'_>, residual: f64) -> f64 {
        numeric::conjugate_gradients_step(pool, matrix, &mut vectors, residual)
    }
}

/// The kernels as they are.
#[derive(Debug)]
pub(crate) struct RealKernels;

impl KernelSet for RealKernels {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::MeasureError;
    use crate::host::bench;
    use crate::method::options::{Depth, Options};

    /// Kernels of which the named one is slightly wrong.
    #[derive(Debug)]
    pub(crate) struct FaultyKernels(pub(crate) &'static str);

    impl FaultyKernels {
        /// Makes the last value wrong if this is the kernel.
        fn spoil(&self, name: &str, values: &mut [f32]) {
            if let (true, Some(last)) = (self.0 == name, values.last_mut()) {
                *last += 0.5;
            }
        }

        fn spoil_doubles(&self, name: &str, values: &mut [f64]) {
            if let (true, Some(last)) = (self.0 == name, values.last_mut()) {
                *last += 1e-6;
            }
        }
    }

    impl KernelSet for FaultyKernels {
        fn read(&self, pool: &Pool, x: &[f64]) -> f64 {
            let sum = RealKernels.read(pool, x);
            // As if one of the values were left out.
            if self.0 == "read" { sum - x[x.len() / 2] } else { sum }
        }

        fn write(&self, pool: &Pool, to: &mut [f64], value: f64, store: StoreInstruction) {
            RealKernels.write(pool, to, value, store);
            self.spoil_doubles("write", to);
        }

        fn copy(&self, pool: &Pool, to: &mut [f64], from: &[f64], store: StoreInstruction) {
            RealKernels.copy(pool, to, from, store);
            self.spoil_doubles("copy", to);
        }

        fn triad(
            &self,
            pool: &Pool,
            to: &mut [f64],
            a: &[f64],
            b: &[f64],
            factor: f64,
            store: StoreInstruction,
        ) {
            RealKernels.triad(pool, to, a, b, factor, store);
            self.spoil_doubles("triad", to);
        }

        fn sum(&self, pool: &Pool, to: &mut [f64], from: &[&[f64]], store: StoreInstruction) {
            RealKernels.sum(pool, to, from, store);
            self.spoil_doubles("mix", to);
        }

        fn dependent_adds(&self, count: u64) -> u64 {
            RealKernels.dependent_adds(count) - u64::from(self.0 == "additions")
        }

        fn chase(&self, ring: &[u32], start: u32, steps: usize) -> u32 {
            RealKernels.chase(ring, start, if self.0 == "chase" { steps - 1 } else { steps })
        }

        fn transfer(&self, link: &RateLimitedLink, to: &mut [u8], from: &[u8]) -> Seconds {
            let time = RealKernels.transfer(link, to, from);
            if let (true, Some(last)) = (self.0 == "transfer", to.last_mut()) {
                *last ^= 1;
            }
            time
        }

        fn gemm(&self, pool: &Pool, m: usize, y: &mut [f32], x: &[f32], w: WeightsView<'_>, s: &mut Scratch) {
            RealKernels.gemm(pool, m, y, x, w, s);
            self.spoil("product", y);
            self.spoil(if m == 1 { "GEMV" } else { "GEMM" }, y);
        }

        fn attention(
            &self,
            pool: &Pool,
            out: &mut [f32],
            operands: AttentionInputs<'_>,
            scratch: &mut Scratch,
        ) {
            // As if the scale were forgotten.
            let scale = if self.0 == "attention" { 1.0 } else { operands.scale };
            RealKernels.attention(pool, out, AttentionInputs { scale, ..operands }, scratch);
        }

        fn rms_norm(&self, pool: &Pool, y: &mut [f32], x: &[f32], gamma: &[f32]) {
            RealKernels.rms_norm(pool, y, x, gamma);
            if self.0 == "norm" {
                y.iter_mut().for_each(|y| *y += 0.01);
            }
        }

        fn add(&self, pool: &Pool, y: &mut [f32], x: &[f32]) {
            RealKernels.add(pool, y, x);
            if self.0 == "addition" {
                y.iter_mut().for_each(|y| *y += 0.01);
            }
        }

        fn silu_mul(&self, pool: &Pool, out: &mut [f32], gate: &[f32], up: &[f32], stride: usize, n: usize) {
            let gate = if self.0 == "activation" { up } else { gate };
            RealKernels.silu_mul(pool, out, gate, up, stride, n);
        }

        fn axpy(&self, pool: &Pool, y: &mut [f32], a: f32, x: &[f32]) {
            RealKernels.axpy(pool, y, a, x);
            self.spoil("AXPY", y);
        }

        fn sparse(&self, pool: &Pool, matrix: &CsrMatrix, rows: Range<usize>, y: &mut [f32], x: &[f32]) {
            RealKernels.sparse(pool, matrix, rows, y, x);
            self.spoil("SpMV", y);
        }

        fn jacobi(&self, pool: &Pool, to: &mut [f32], from: &[f32], width: usize) {
            RealKernels.jacobi(pool, to, from, width);
            self.spoil("Jacobi", to);
        }

        fn gradients(&self, pool: &Pool, matrix: &CsrMatrix, vectors: CgVectors<'_>, residual: f64) -> f64 {
            let CgVectors { x, r, p, q } = vectors;
            let parts = CgVectors { x: &mut *x, r: &mut *r, p, q };
            let next = RealKernels.gradients(pool, matrix, parts, residual);
            self.spoil("CG", x);
            next
        }
    }

    #[test]
    fn a_kernel_that_computes_something_wrong_is_refused_by_name_and_nothing_is_reported() {
        let options = Options { depth: Depth::Tiny, date: "2026-11-21".into(), command: "test".into() };
        let measure = |name| bench::measure(&FaultyKernels(name), &options, &mut |_| {}, &mut |_| Ok(()));
        assert!(measure("none of them").is_ok());
        let kernels = [
            "read",
            "write",
            "copy",
            "triad",
            "chase",
            "mix",
            "additions",
            "product",
            "attention",
            "norm",
            "addition",
            "activation",
        ];
        let transfer = (kernels::affinity::available_cores().len() > 1).then_some("transfer");
        for name in kernels.into_iter().chain(transfer) {
            match measure(name) {
                Err(MeasureError::Wrong { kernel, .. }) => assert!(kernel.contains(name), "{name}: {kernel}"),
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}
