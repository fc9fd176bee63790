//! AXPY, with vectors from memory and from the caches.

use crate::error::MeasureError;
use crate::method::experiment::expect;
use crate::method::rig::Rig;
use crate::operands::arena::random;
use crate::operands::array_walk::ArrayWalk;
use crate::roofline::subject::{RooflineKernel, bits, filled, sampled};
use crate::roofline::work::{KernelWork, WorkKind};
use hwprofiles::Bytes;
use kernels::Buffer;
use std::ops::Range;

/// y = a·x + y.
#[derive(Debug)]
pub(crate) struct AxpyKernel {
    a: f32,
    x: Buffer,
    y: Buffer,
    /// In pairs of values.
    walk: ArrayWalk,
    kind: WorkKind,
}

impl AxpyKernel {
    /// Two vectors of `size` together, which come from memory.
    pub fn streamed(rig: &Rig<'_>, size: Bytes) -> Result<Self, MeasureError> {
        Self::new(rig, size, WorkKind::Streamed)
    }

    /// The same where they stay in the caches.
    pub fn cached(rig: &Rig<'_>, size: Bytes) -> Result<Self, MeasureError> {
        Self::new(rig, size, WorkKind::Cached(size))
    }

    fn new(rig: &Rig<'_>, size: Bytes, kind: WorkKind) -> Result<Self, MeasureError> {
        let walk = ArrayWalk::new(size.get() as usize / 2 / size_of::<f64>(), 2, rig.all());
        let vector = |seed| filled(rig, 2 * walk.len(), &bits(&random(1 << 16, seed)));
        Ok(Self { a: 0.5, x: vector(31)?, y: vector(32)?, walk, kind })
    }

    fn run(&mut self, rig: &Rig<'_>, pairs: Range<usize>) {
        let range = 2 * pairs.start..2 * pairs.end;
        rig.subject.axpy(rig.all(), &mut self.y.view_mut()[range.clone()], self.a, &self.x.view()[range]);
    }
}

impl RooflineKernel for AxpyKernel {
    fn name(&self) -> String {
        match self.kind {
            WorkKind::Cached(size) => format!("AXPY, {size} in caches"),
            _ => "AXPY".to_owned(),
        }
    }

    fn parts(&self) -> Vec<KernelWork> {
        vec![KernelWork { kind: self.kind, ..KernelWork::axpy(2 * self.walk.slice()) }]
    }

    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let len = 2 * self.walk.len();
        let before: Vec<f32> = sampled(len).map(|at| self.y.view::<f32>()[at]).collect();
        self.run(rig, 0..len / 2);
        let (x, y) = (self.x.view::<f32>(), self.y.view::<f32>());
        for (at, before) in sampled(len).zip(before) {
            let wanted = f64::from(self.a) * f64::from(x[at]) + f64::from(before);
            expect(|| format!("AXPY of {len} values"), f64::from(y[at]), wanted, 1e-6)?;
        }
        Ok(())
    }

    fn call(&mut self, rig: &Rig<'_>) {
        let pairs = self.walk.next();
        self.run(rig, pairs);
        // So that y stays near where it began.
        self.a = -self.a;
    }
}
