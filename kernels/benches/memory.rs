//! The bandwidth of memory: streams over arrays of 256 MiB of f64, by one thread and by all. Bytes
//! counted per value are: read 8, write 8, copy 16, triad 24. The line that an ordinary store reads
//! first is not counted.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kernels::stream::{self, StoreInstruction};
use kernels::{Buffer, Pool, affinity};
use std::time::{Duration, Instant};

const VALUES: usize = 32 << 20;

fn memory(criterion: &mut Criterion) {
    let cores = affinity::available_cores();
    for threads in [1, cores.len()] {
        let pool = Pool::new(&cores[..threads]).expect("our cores");
        pool.pin_caller().expect("our core");
        let [mut a, mut b, mut c] = [1.25, 2.5, 0.75].map(|value| {
            let mut buffer = Buffer::new(8 * VALUES).expect("memory");
            stream::write(&pool, buffer.view_mut(), value, StoreInstruction::Ordinary);
            buffer
        });
        println!("{threads} threads, pages of an array: {:?}", a.pages());
        let name = |stream: &str| format!("{stream} by {threads} threads ({})", pool.path());
        measure(criterion, name("read"), 1, || {
            assert_eq!(stream::read(&pool, a.view()), 1.25 * VALUES as f64);
        });
        for store in [StoreInstruction::Ordinary, StoreInstruction::NonTemporal] {
            let name = |stream| name(&format!("{stream}, {store:?}"));
            measure(criterion, name("copy"), 2, || stream::copy(&pool, b.view_mut(), a.view(), store));
            measure(criterion, name("triad"), 3, || {
                stream::triad(&pool, c.view_mut(), a.view(), b.view(), 3.0, store);
            });
            measure(criterion, name("write"), 1, || stream::write(&pool, a.view_mut(), 1.25, store));
        }
    }
}

fn measure(criterion: &mut Criterion, stream: String, arrays: usize, mut call: impl FnMut()) {
    let bytes = (8 * arrays * VALUES) as f64;
    let mut fastest = f64::INFINITY;
    let mut group = criterion.benchmark_group("memory");
    group.throughput(Throughput::BytesDecimal(bytes as u64));
    group.bench_function(BenchmarkId::from_parameter(stream), |bencher| {
        bencher.iter_custom(|calls| {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            let took = start.elapsed();
            fastest = fastest.min(took.as_secs_f64() / calls as f64);
            took
        });
    });
    group.finish();
    if fastest.is_finite() {
        println!("    best: {:.1} GB/s", bytes / fastest * 1e-9);
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = memory
}
criterion_main!(benches);
