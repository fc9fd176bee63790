//! The element-wise kernels, in bytes of their operands per second, with operands in the
//! second-level cache and from memory.
//!
//! `cargo bench -p fulcrum-kernels --bench elementwise`. All kernels take turns. Printed are the
//! median and the best of a kernel's rounds.
#![allow(missing_docs)]

use hwprofiles::units::Bytes;
use kernels::{MemoryArena, PANEL, Pool, RopeTable, add, affinity, gelu_tanh, rms_norm, rope, silu_mul};
use std::hint::black_box;
use std::time::Instant;

const COLUMNS: usize = 4096;
const HEAD: usize = 64;
const ROUNDS: usize = 40;

struct Kernel<'a> {
    name: &'static str,
    bytes: usize,
    work: Box<dyn FnMut() + 'a>,
    times: Vec<f64>,
}

fn main() {
    let pool = Pool::new(&affinity::available_cores()[..1]).expect("our core");
    pool.pin_caller().expect("our core");
    let gamma = vec![1.5; COLUMNS];
    let frequencies: Vec<f32> = (0..HEAD / 2).map(|i| 1e4f32.powf(-2.0 * i as f32 / HEAD as f32)).collect();
    let memory = MemoryArena::new("table", Bytes::new(1 << 30));
    let table = &RopeTable::new(&memory, &frequencies, 2048).expect("memory");
    for rows in [8, 2048] {
        let len = rows * COLUMNS;
        let positions = &(0..rows).collect::<Vec<_>>()[..];
        let value = |i: usize| (i * 2_654_435_761 % 65_521) as f32 / 4096.0 - 8.0;
        let x: Vec<f32> = (0..2 * len).map(value).collect();
        let y = std::cell::RefCell::new(x[..len].to_vec());
        let (x, y, gamma, pool) = (&x, &y, &gamma, &pool);
        let kernel =
            |name, arrays: usize, work| Kernel { name, bytes: 4 * arrays * len, work, times: Vec::new() };
        let mut kernels: Vec<Kernel<'_>> = vec![
            kernel("add", 3, Box::new(move || add(pool, &mut y.borrow_mut(), &x[..len]))),
            kernel(
                "rms_norm",
                2,
                Box::new(move || rms_norm(pool, &mut y.borrow_mut(), &x[..len], gamma, 1e-5)),
            ),
            kernel(
                "silu_mul",
                3,
                Box::new(move || {
                    silu_mul(pool, &mut y.borrow_mut(), &x[..len], &x[len..], COLUMNS, COLUMNS);
                }),
            ),
            kernel(
                "panels",
                3,
                Box::new(move || silu_mul(pool, &mut y.borrow_mut(), x, &x[PANEL..], 2 * PANEL, PANEL)),
            ),
            kernel(
                "rope",
                2,
                Box::new(move || {
                    rope(pool, &mut y.borrow_mut(), COLUMNS, COLUMNS / HEAD, HEAD, table, positions);
                }),
            ),
            kernel("gelu_tanh", 2, Box::new(move || gelu_tanh(pool, &mut y.borrow_mut()))),
        ];
        for _ in 0..ROUNDS {
            for kernel in &mut kernels {
                let start = Instant::now();
                (kernel.work)();
                kernel.times.push(start.elapsed().as_secs_f64());
                y.borrow_mut().copy_from_slice(black_box(&x[..len]));
            }
        }
        for mut kernel in kernels {
            kernel.times.sort_by(f64::total_cmp);
            let rate = |time: f64| kernel.bytes as f64 / time * 1e-9;
            let (median, best) = (rate(kernel.times[ROUNDS / 2]), rate(kernel.times[0]));
            println!("{rows:5} × {COLUMNS} {:10} {median:6.1} GB/s  best {best:6.1}", kernel.name);
        }
    }
}
