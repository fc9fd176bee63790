//! The GPU's kernels on the host, against the CPU's. Their text is compiled as C and runs with two
//! orders of threads.

mod attention;
mod experts;
mod heads;
mod mixture;
mod recurrences;
mod rings;
mod rows;
mod sampling;
mod values;
mod weights;

use crate::host_gpu::{Library, Operand};
use hwprofiles::DType;
use kernels::cuda::calls;

#[test]
fn shapes_that_do_not_agree_panic_before_a_launch() {
    let mut x = Operand::<u16>::unwritten(8);
    let mut w = Operand::<u8>::unwritten(8);
    let (x, w) = (x.values(), w.values());
    assert!(std::panic::catch_unwind(|| calls::silu_mul(x, x, x, 4, 3, 4)).is_err());
    assert!(calls::unpack(x, (DType::Bf16, 2, 4), w).is_err(), "8 bytes are no 2 × 4 in bf16");
    assert!(calls::unpack(x, (DType::F32, 1, 2), w).is_err(), "no kernel reads f32");
}

/// Shows what the two orders are for and what the host notices, with a faulty program.
#[test]
fn a_forgotten_barrier_and_one_that_not_all_reach_are_noticed() {
    let prelude = kernels::cuda::GpuProgram::Norm.text();
    let prelude = prelude.split("// Normalisation").next().expect("a beginning");
    let folder = tempfile::tempdir().expect("a folder");
    let run = |name: &str, barrier: &str, last_first| {
        let text = format!(
            "{prelude}typedef struct {{ u32 *out; }} Out;\nKERNEL(turn, Out, 64) {{ __shared__ u32 s[64]; \
             s[threadIdx.x] = threadIdx.x; {barrier} a.out[threadIdx.x] = s[63 - threadIdx.x]; }}\n"
        );
        let library = Library::compile(&text, name, folder.path());
        let mut out = Operand::<u32>::unwritten(64);
        let address = bytemuck::bytes_of(&(out.values().address())).to_vec();
        library.run("turn", [1, 1, 1], 64, &address, last_first).map(|()| out.read())
    };
    let turned: Vec<u32> = (0..64).rev().collect();
    for last_first in [false, true] {
        assert_eq!(run(&format!("right{last_first}"), "__syncthreads();", last_first), Ok(turned.clone()));
        let forgotten = run(&format!("forgotten{last_first}"), "", last_first).expect("no barrier, no wait");
        assert_ne!(forgotten, turned);
    }
    assert!(
        run("some", "if (threadIdx.x < 32) __syncthreads();", false).expect_err("a wait").contains("wait")
    );
}
