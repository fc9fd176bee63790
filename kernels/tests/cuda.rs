//! The GPU with and without a device: either there is a reason why it is unavailable, or its
//! results are right.

mod stand_in;

use hwprofiles::units::Bytes;
use hwprofiles::{DType, Direction, HostMemory};
use kernels::cuda::calls::{self, GPU_MATRICES, ProductOutput};
use kernels::cuda::{
    Accelerator, Gpu, GpuEvent, GpuMatrix, GpuProgram, GpuWork, Queue, StridedCopy, compile, parity,
};
use kernels::{MemoryArena, Weights};
use std::sync::Arc;

#[test]
fn there_is_a_reason_for_no_gpu_or_all_that_it_computes_is_right() {
    let mut gpu = match Gpu::open(Bytes::new(64 << 20)) {
        Ok(gpu) => gpu,
        Err(absent) => {
            // Without a driver the reason is the missing library; with one it is the driver's or
            // the GPU's.
            let library = absent.reason.contains("libcuda.so.1");
            assert_eq!(library, !absent.has_driver, "{absent}");
            return;
        }
    };
    println!("a GPU: {:?}", gpu.facts());
    let mib = Bytes::new(1 << 20);
    let transfers =
        [Direction::ToDevice, Direction::ToHost, Direction::Both].into_iter().flat_map(|direction| {
            let transfer = move |memory| GpuWork::Transfer { direction, memory, bytes: mib };
            [transfer(HostMemory::Pageable), transfer(HostMemory::Pinned)]
        });
    let simple = [
        GpuWork::Launch,
        GpuWork::Node,
        GpuWork::Replay,
        GpuWork::RoundTrip,
        GpuWork::Read(mib),
        GpuWork::Copy(mib),
    ];
    let new_enough = |dtype: &DType| match dtype {
        DType::Bf16 => gpu.facts().capability >= (8, 0),
        DType::Fp8 => gpu.facts().capability >= (8, 9),
        _ => gpu.facts().capability >= (7, 5),
    };
    let formats = [DType::Bf16, DType::F16, DType::Fp8, DType::Int8].into_iter().filter(new_enough);
    let formats: Vec<_> = if gpu.facts().no_products.is_none() { formats.collect() } else { Vec::new() };
    let products = formats.into_iter().map(|dtype| GpuWork::Product { dtype, m: 16, n: 256, k: 256 });
    for work in simple.into_iter().chain(transfers).chain(products) {
        if let Some(check) = gpu.check(work).expect("it can be done") {
            assert!((check.got - check.wanted).abs() <= check.tolerance, "{work}: {check:?}");
        }
        let time = gpu.time(work, 3).expect("it can be timed").get();
        assert!(time > 0.0 && time < 0.1, "{work}: {time} s");
    }
}

#[test]
fn every_call_is_as_a_stand_in_stricter_than_the_driver_demands() {
    let output = stand_in::run("there_is_a_reason_for_no_gpu_or_all_that_it_computes_is_right");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("a GPU: GpuFacts { name: \"Stand-in 1\""),
        "{text}{errors}"
    );
}

#[test]
fn there_is_a_reason_for_no_compiler_or_it_knows_every_program() {
    for program in GpuProgram::all(&[64], &[64], &GPU_MATRICES) {
        match compile(program, (9, 0)) {
            // Machine code is an ELF file.
            Ok(code) => assert!(code.starts_with(b"\x7fELF"), "{program:?}"),
            Err(error) => {
                assert!(error.to_string().contains("libnvrtc.so.13 or .12 was not found"), "{error}")
            }
        }
    }
}

/// Everything a model needs: a product whose matrix is copied in several parts, kernels, and copies
/// between two streams.
#[test]
fn an_accelerator_works_or_says_what_is_missing() {
    let gpu = match Accelerator::open() {
        Ok(gpu) => Arc::new(gpu),
        Err(absent) => {
            return assert_eq!(absent.reason.contains("libcuda.so.1"), !absent.has_driver, "{absent}");
        }
    };
    println!("an accelerator: {}", gpu.name().expect("a name"));
    let memory = MemoryArena::on_gpu("hbm", Bytes::new(1 << 30), Arc::clone(&gpu));
    let host = MemoryArena::new("dram", Bytes::new(1 << 30));
    let (m, n, k) = (19, 100, 48);
    let weights: Vec<f32> = (0..n * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
    let packed = Weights::from_f32(&memory, DType::Bf16, n, k, &weights).expect("room");
    assert_eq!(memory.used(), Bytes::new(2 * (n * k) as u64));
    let x: Vec<f32> = (0..m * k).map(|i| ((i * 29 % 97) as f32 - 48.0) / 32.0).collect();
    let mut from = host.allocate(4 * x.len()).expect("room");
    from.view_mut().copy_from_slice(&x);
    from.pin(&gpu).expect("pages to lock");
    let mut to = host.allocate(4 * m * n).expect("room");
    to.pin(&gpu).expect("pages to lock");
    let (near, y) = (memory.allocate(2 * m * k).expect("room"), memory.allocate(4 * m * n).expect("room"));
    // Room for 32 rows of the copy at a time: four parts, the last with four rows.
    let scratch = memory.allocate((32 << 20) + 2 * 32 * k).expect("room");
    let (mut compute, mut copies) =
        (Queue::new(&gpu).expect("a stream"), Queue::new(&gpu).expect("a stream"));
    let (arrived, done) = (GpuEvent::new().expect("an event"), GpuEvent::new().expect("an event"));
    copies.run(&calls::narrow_rows((near.values(), k), (from.values(), k), [m, k])).expect("a call");
    copies.record(&arrived).expect("recorded");
    compute.follow(&arrived).expect("followed");
    let out = ProductOutput::Wide(y.values());
    let w = packed.buffer().values();
    let matrix = GpuMatrix::packed(packed.shape(), w);
    compute.multiply(m, (out, n), near.values(), matrix, scratch.values()).expect("a product");
    compute.record(&done).expect("recorded");
    copies.follow(&done).expect("followed");
    copies.copy(to.values(), y.values()).expect("a copy");
    copies.record(&arrived).expect("recorded");
    arrived.wait().expect("all of it");
    for (row, y) in to.view::<f32>().chunks(n).enumerate() {
        for (column, y) in y.iter().enumerate() {
            let (x, w) = (&x[row * k..][..k], &weights[column * k..][..k]);
            // All values are bf16 values.
            let wanted: f64 = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            assert!((f64::from(*y) - wanted).abs() < 1e-3, "{y} and not {wanted} at {row}, {column}");
        }
    }
    assert_eq!(y.read_back::<f32>(n..2 * n).expect("they are there"), to.view::<f32>()[n..2 * n]);
    // Pieces: the first 8 bytes of every 16.
    let pieces = StridedCopy { count: 3, bytes: 8, stride: 16 };
    compute.copy_pieces(near.values(), from.values(), pieces).expect("pieces");
    compute.wait().expect("all of it");
    let got = near.read_back::<f32>(0..10).expect("they are there");
    for at in [0, 1, 4, 5, 8, 9] {
        assert_eq!(got[at], x[at]);
    }
    println!("it works");
}

#[test]
fn an_accelerator_works_in_every_order_that_events_allow_and_in_no_other() {
    let folder = stand_in::folder();
    for (words, works) in [("", true), ("late", true), ("others", true), ("late forget", false)] {
        let output = stand_in::run_in(&folder, "an_accelerator_works_or_says_what_is_missing", words);
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("an accelerator: Stand-in 1"), "{words}: {text}{errors}");
        assert_eq!(output.status.success() && text.contains("it works"), works, "{words}: {text}{errors}");
    }
}

#[test]
fn every_kernel_agrees_with_the_cpus() {
    let Ok(gpu) = Accelerator::open() else { return };
    let found = parity(&Arc::new(gpu)).expect("they compile and run");
    let wrong: Vec<_> = found.iter().filter(|parity| !parity.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    println!("{} kernels and shapes agree", found.len());
}

#[test]
fn every_kernel_agrees_with_the_cpus_behind_a_stand_in() {
    let output = stand_in::run_in(&stand_in::folder(), "every_kernel_agrees_with_the_cpus", "early");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("kernels and shapes agree"), "{text}{errors}");
}
