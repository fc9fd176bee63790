//! Jacobi's sweep over a grid.

use crate::error::MeasureError;
use crate::method::experiment::expect;
use crate::method::rig::Rig;
use crate::operands::arena::random;
use crate::operands::array_walk::ArrayWalk;
use crate::roofline::subject::{RooflineKernel, bits, filled, sampled};
use crate::roofline::work::KernelWork;
use hwprofiles::Bytes;
use kernels::Buffer;
use std::ops::Range;

/// Points of a row: three rows fit the smallest cache.
const WIDTH: usize = 1024;

/// A five-point sweep from one grid to another, a slice of rows in each call.
#[derive(Debug)]
pub(crate) struct JacobiKernel {
    /// With a row above and one below those of `to`.
    from: Buffer,
    to: Buffer,
    walk: ArrayWalk,
}

impl JacobiKernel {
    /// Two grids of about `size` together.
    pub fn new(rig: &Rig<'_>, size: Bytes) -> Result<Self, MeasureError> {
        // Each row has a point of 4 bytes in both grids.
        let rows = size.get() as usize / size_of::<f64>() / WIDTH;
        let walk = ArrayWalk::new(rows.max(512), WIDTH, rig.all());
        // Longer than a whole number of rows, so that no two rows are alike.
        let grid = |rows: usize, seed| filled(rig, rows * WIDTH, &bits(&random((1 << 16) + 96, seed)));
        Ok(Self { from: grid(walk.len() + 2, 37)?, to: grid(walk.len(), 38)?, walk })
    }

    fn run(&mut self, rig: &Rig<'_>, rows: Range<usize>) {
        let to = &mut self.to.view_mut()[rows.start * WIDTH..rows.end * WIDTH];
        let from = &self.from.view()[rows.start * WIDTH..(rows.end + 2) * WIDTH];
        rig.subject.jacobi(rig.all(), to, from, WIDTH);
    }
}

impl RooflineKernel for JacobiKernel {
    fn name(&self) -> String {
        format!("Jacobi, rows of {WIDTH}")
    }

    fn parts(&self) -> Vec<KernelWork> {
        vec![KernelWork::jacobi(self.walk.slice(), WIDTH)]
    }

    fn verify(&mut self, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let rows = self.walk.len();
        self.run(rig, 0..rows);
        let (from, to) = (self.from.view::<f32>(), self.to.view::<f32>());
        for at in sampled(rows * WIDTH) {
            let (middle, column) = (at + WIDTH, at % WIDTH);
            let around = match column == 0 || column == WIDTH - 1 {
                true => [middle; 4],
                false => [middle - WIDTH, middle + WIDTH, middle - 1, middle + 1],
            };
            let wanted = around.map(|at| f64::from(from[at])).iter().sum::<f64>() / 4.0;
            expect(|| format!("Jacobi of {rows} rows"), f64::from(to[at]), wanted, 1e-6)?;
        }
        Ok(())
    }

    fn call(&mut self, rig: &Rig<'_>) {
        let rows = self.walk.next();
        self.run(rig, rows);
    }
}
