//! The highest rates of cores in FLOP/s: loops on registers, and products that stay in the
//! second-level cache.
//!
//! `cargo bench -p fulcrum-kernels --bench peaks`. All loops take turns. Printed are the median of
//! a loop's rounds, their spread (the width of the middle half over the median), and the best
//! round, which matters on a busy machine.
#![allow(missing_docs)]

use hwprofiles::DType;
use hwprofiles::units::{Bytes, Flop};
use kernels::peak::{CachedProduct, Instructions, run};
use kernels::{Path, Pool, affinity};
use std::time::Instant;

const ROUNDS: usize = 60;
/// The time of one round of a loop in seconds: shorter than a time slice.
const LONG_ENOUGH: f64 = 0.001;

struct Loop<'a> {
    name: String,
    work: Box<dyn FnMut(usize) -> Flop + 'a>,
    times: usize,
    rates: Vec<f64>,
}

impl Loop<'_> {
    fn visit(&mut self) {
        loop {
            let start = Instant::now();
            let work = (self.work)(self.times);
            let took = start.elapsed().as_secs_f64();
            if took >= LONG_ENOUGH {
                return self.rates.push(work.as_f64() / took);
            }
            self.times = (self.times * 2).max((self.times as f64 * 1.2 * LONG_ENOUGH / took) as usize);
        }
    }

    fn print(mut self) {
        self.rates.sort_by(f64::total_cmp);
        let at = |share: f64| self.rates[(share * (self.rates.len() - 1) as f64).round() as usize];
        let spread = 100.0 * (at(0.75) - at(0.25)) / at(0.5);
        let (median, best) = (at(0.5) * 1e-9, at(1.0) * 1e-9);
        println!("{:44} {median:8.1} GFLOP/s  spread {spread:5.1} %  best {best:8.1}", self.name);
    }
}

fn main() {
    let cores = affinity::available_cores();
    for count in [1, cores.len()] {
        let paths = Path::supported().into_iter().filter(|path| *path != Path::Reference);
        let pool = |path| Pool::new(&cores[..count]).expect("our cores").with_path(path);
        let pools: Vec<Pool> = paths.map(pool).collect();
        let Some(first) = pools.first() else { return println!("this CPU has none of these instructions") };
        first.pin_caller().expect("our core");
        let mut loops = Vec::new();
        for instructions in Instructions::ALL {
            let name = format!("{count} threads, registers, {instructions}");
            if !instructions.is_present() {
                println!("{name:44}   absent");
                continue;
            }
            let work = move |bursts| run(first, instructions, bursts).expect("present");
            loops.push(Loop { name, work: Box::new(work), times: 1, rates: Vec::new() });
        }
        for pool in &pools {
            for dtype in [DType::F32, DType::Bf16, DType::Int8, DType::Int4] {
                let mut product = CachedProduct::new(dtype, 192, count, Bytes::new(1 << 20)).expect("memory");
                let name = format!("{count} threads, cache, {} {dtype}", pool.path());
                let work = move |times| product.run(pool, times);
                loops.push(Loop { name, work: Box::new(work), times: 1, rates: Vec::new() });
            }
        }
        for _ in 0..ROUNDS {
            loops.iter_mut().for_each(Loop::visit);
        }
        loops.into_iter().for_each(Loop::print);
    }
}
