//! With or without a GPU, a measurement says what became of it.

use hwprofiles::Presence;
use microbench::{Depth, Options, Progress, measure};

#[test]
fn a_gpu_is_measured_or_absent_with_the_reason_told_and_never_an_error() {
    let options = Options { depth: Depth::Tiny, date: "2026-11-21".into(), command: "fulcrum bench".into() };
    let mut told = Vec::new();
    let measured =
        measure(&options, &mut |progress: Progress<'_>| told.push(progress.what.to_owned()), &mut |_| Ok(()))
            .expect("a machine without a GPU can be measured as well");
    let reasons: Vec<_> = told.iter().filter(|what| what.starts_with("no GPU: ")).collect();
    let warned = measured.warnings.iter().any(|warning| warning.what == "GPU");
    match &measured.host.gpu {
        Presence::Present(gpu) => {
            assert!(gpu.read.points.len() > 1 && gpu.transfers.len() == 6, "{gpu:?}");
            assert!(reasons.is_empty(), "{reasons:?}");
        }
        Presence::Absent => {
            assert!(measured.host.to_yaml().contains("\ngpu: absent\n"));
            // Where there is no driver nobody expects a GPU: that is told, and nobody is warned.
            let library = reasons.iter().any(|reason| reason.contains("libcuda.so.1"));
            assert_eq!(library, !warned, "{reasons:?} {:?}", measured.warnings);
        }
    }
}
