//! What holds with and without a GPU: there is a reason, or everything that it computes is right.

#![allow(unsafe_code)]

mod stand_in;

use hwprofiles::units::Bytes;
use hwprofiles::{DType, Direction, HostMemory};
use kernels::cuda::calls::add;
use kernels::cuda::{Gpu, Program, Queue, Work, compile};

#[test]
fn there_is_a_reason_for_no_gpu_or_all_that_it_computes_is_right() {
    let mut gpu = match Gpu::open(Bytes::new(64 << 20)) {
        Ok(gpu) => gpu,
        Err(absent) => {
            // Without a driver nobody is to blame; with one the reason is the driver's or the GPU's.
            let library = absent.reason.contains("libcuda.so.1");
            assert_eq!(library, !absent.driver, "{absent}");
            return;
        }
    };
    println!("a GPU: {:?}", gpu.facts());
    let mib = Bytes::new(1 << 20);
    let transfers =
        [Direction::ToDevice, Direction::ToHost, Direction::Both].into_iter().flat_map(|direction| {
            let of = move |memory| Work::Transfer { direction, memory, bytes: mib };
            [of(HostMemory::Pageable), of(HostMemory::Pinned)]
        });
    let simple = [Work::Launch, Work::Node, Work::Replay, Work::RoundTrip, Work::Read(mib), Work::Copy(mib)];
    let new_enough = |dtype: &DType| match dtype {
        DType::Bf16 => gpu.facts().capability >= (8, 0),
        DType::Fp8 => gpu.facts().capability >= (8, 9),
        _ => gpu.facts().capability >= (7, 5),
    };
    let formats = [DType::Bf16, DType::F16, DType::Fp8, DType::Int8].into_iter().filter(new_enough);
    let formats: Vec<_> = if gpu.facts().no_products.is_none() { formats.collect() } else { Vec::new() };
    let products = formats.into_iter().map(|dtype| Work::Product { dtype, m: 16, n: 256, k: 256 });
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
        output.status.success() && text.contains("a GPU: Facts { name: \"Stand-in 1\""),
        "{text}{errors}"
    );
}

#[test]
fn there_is_a_reason_for_no_compiler_or_it_knows_every_program() {
    for program in Program::all(64) {
        match compile(program, (9, 0)) {
            // Machine code is an ELF file.
            Ok(code) => assert!(code.starts_with(b"\x7fELF"), "{program:?}"),
            Err(error) => {
                assert!(error.to_string().contains("libnvrtc.so.13 or .12 was not found"), "{error}")
            }
        }
    }
}

#[test]
fn a_call_runs_or_says_what_is_missing() {
    let mut queue = match Queue::open() {
        Ok(queue) => queue,
        Err(absent) => return assert_eq!(absent.reason.contains("libcuda.so.1"), !absent.driver, "{absent}"),
    };
    let (x, ones) =
        (queue.keep(&[1.5f32, 2.5, -1.0]).expect("room"), queue.keep(&[0x3f80u16; 3]).expect("room"));
    // SAFETY: both are kept by the queue, and the kernel writes no more than x.
    match unsafe { queue.run(&add(x, ones)) } {
        Ok(()) => assert_eq!(queue.read(x).expect("a result"), [2.5, 3.5, 0.0]),
        Err(error) => {
            // The stand-in takes no machine code, where there is a compiler all the same.
            let (text, known) = (error.to_string(), ["libnvrtc", "our kernels"]);
            assert!(known.iter().any(|what| text.contains(what)), "{text}");
            println!("a queue without a compiler: {error}");
            assert_eq!(queue.read(x).expect("as it was"), [1.5, 2.5, -1.0]);
        }
    }
}

#[test]
fn a_queue_keeps_and_reads_as_a_stand_in_stricter_than_the_driver_demands() {
    let output = stand_in::run("a_call_runs_or_says_what_is_missing");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("a queue without a compiler"), "{text}{errors}");
}
