//! What holds with and without a GPU: there is a reason, or everything that it computes is right.

mod stand_in;

use hwprofiles::units::Bytes;
use hwprofiles::{DType, Direction, HostMemory};
use kernels::cuda::{Gpu, Work};

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
