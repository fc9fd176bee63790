//! Norms, rotation, activations, sums, and conversions.

use super::bench::ParityBench;
use crate::cpu::{self, RopeTable};
use crate::cuda::calls;
use crate::runtime::{KernelError, MemoryArena, Pool};
use hwprofiles::units::Bytes;

pub(super) fn check(bench: &mut ParityBench) -> Result<(), KernelError> {
    for columns in [1, 33, 256, 5120] {
        norms(bench, 3, columns)?;
        maps(bench, 3, columns)?;
    }
    norms(bench, 260, 48)?;
    for head_dim in [64, 128] {
        heads(bench, 5, 6, head_dim)?;
    }
    Ok(())
}

fn norms(bench: &mut ParityBench, rows: usize, columns: usize) -> Result<(), KernelError> {
    let (x, gamma, beta) = (bench.noise(rows * columns), bench.noise(columns), bench.noise(columns));
    let (x_at, gamma_at, beta_at) = (bench.wide(&x)?, bench.wide(&gamma)?, bench.wide(&beta)?);
    let (y_at, y) = bench.room(rows * columns)?;
    let operands =
        calls::NormOperands { x: x_at.values(), delta: None, y, gamma: gamma_at.values(), epsilon: 1e-5 };
    let mut wanted = vec![0.0; x.len()];
    bench.run(&calls::rms_norm(rows, operands))?;
    cpu::rms_norm(&bench.pool, &mut wanted, &x, &gamma, 1e-5);
    bench.compare(format!("rms_norm of {rows} × {columns}"), &y_at, &wanted, 1e-5)?;
    let (delta, sum_at) = (bench.noise(rows * columns), bench.wide(&x)?);
    let delta_at = bench.narrow(&delta)?;
    let sum = calls::NormOperands { x: sum_at.values(), delta: Some(delta_at.values()), ..operands };
    bench.run(&calls::rms_norm(rows, sum))?;
    let summed: Vec<f32> = x.iter().zip(&delta).map(|(x, delta)| x + delta).collect();
    cpu::rms_norm(&bench.pool, &mut wanted, &summed, &gamma, 1e-5);
    bench.compare(format!("rms_norm of a sum of {rows} × {columns}"), &y_at, &wanted, 1e-5)?;
    bench.compare_wide(format!("the sum of {rows} × {columns}"), &sum_at, &summed, 0.0)?;
    bench.run(&calls::layer_norm(rows, operands, beta_at.values()))?;
    cpu::layer_norm(&bench.pool, &mut wanted, &x, &gamma, &beta, 1e-5);
    bench.compare(format!("layer_norm of {rows} × {columns}"), &y_at, &wanted, 1e-4)?;
    let made = bench.noise(rows * columns);
    let made_at = bench.narrow(&made)?;
    bench.run(&calls::add_rms_norm(rows, x_at.values(), made_at.values(), gamma_at.values(), 1e-5))?;
    let mut wanted = x;
    cpu::add_rms_norm(&bench.pool, &mut wanted, &made, &gamma, 1e-5);
    bench.compare_wide(format!("add_rms_norm of {rows} × {columns}"), &x_at, &wanted, 1e-5)
}

fn maps(bench: &mut ParityBench, rows: usize, columns: usize) -> Result<(), KernelError> {
    let what = |kernel: &str| format!("{kernel} of {rows} × {columns}");
    let (gate, up) = (bench.noise(rows * columns), bench.noise(rows * columns));
    let (gate_at, up_at) = (bench.narrow(&gate)?, bench.narrow(&up)?);
    let (out_at, out) = bench.room(gate.len())?;
    let mut wanted = vec![0.0; gate.len()];
    bench.run(&calls::silu_mul(out, gate_at.values(), up_at.values(), columns, rows, columns))?;
    cpu::silu_mul(&bench.pool, &mut wanted, &gate, &up, columns, columns);
    bench.compare(what("silu_mul"), &out_at, &wanted, 1e-5)?;
    bench.run(&calls::gelu_mul(out, gate_at.values(), up_at.values(), columns, rows, columns))?;
    cpu::gelu_mul(&bench.pool, &mut wanted, &gate, &up, columns, columns);
    bench.compare(what("gelu_mul"), &out_at, &wanted, 1e-5)?;
    type InPlace = fn(&Pool, &mut [f32]);
    let functions: [(&str, calls::ActivationFunction, InPlace); 4] = [
        ("relu", calls::ActivationFunction::Relu, cpu::relu),
        ("relu_squared", calls::ActivationFunction::ReluSquared, |pool, x| {
            cpu::relu(pool, x);
            x.iter_mut().for_each(|x| *x *= *x);
        }),
        ("gelu_tanh", calls::ActivationFunction::GeluTanh, cpu::gelu_tanh),
        ("gelu_erf", calls::ActivationFunction::GeluErf, cpu::gelu_erf),
    ];
    for (name, which, function) in functions {
        let at = bench.narrow(&gate)?;
        let mut wanted = gate.clone();
        bench.run(&calls::activation(which, at.values()))?;
        function(&bench.pool, &mut wanted);
        bench.compare(what(name), &at, &wanted, 1e-5)?;
    }
    let (x_at, bias_at) = (bench.wide(&gate)?, bench.wide(&up[..columns])?);
    bench.run(&calls::add(x_at.values(), up_at.values()))?;
    let sum: Vec<f32> = gate.iter().zip(&up).map(|(a, b)| a + b).collect();
    bench.compare_wide(what("add"), &x_at, &sum, 0.0)?;
    let (gate_at, logits_at) = (bench.narrow(&gate)?, bench.wide(&gate)?);
    bench.run(&calls::add_bias(gate_at.values::<u16>(), columns, rows, bias_at.values()))?;
    bench.run(&calls::add_bias(logits_at.values::<f32>(), columns, rows, bias_at.values()))?;
    let mut wanted = gate.clone();
    cpu::add_bias(&bench.pool, &mut wanted, &up[..columns]);
    bench.compare(what("add_bias"), &gate_at, &wanted, 0.0)?;
    bench.run(&calls::soft_cap(logits_at.values(), columns, rows, columns, 1.5))?;
    cpu::soft_cap(&bench.pool, &mut wanted, 1.5);
    bench.compare_wide(what("add_bias and soft_cap"), &logits_at, &wanted, 1e-5)?;
    // Both ends of a conversion may be in the GPU's memory.
    let (there_at, there) = bench.room::<f32>(up.len())?;
    bench.run(&calls::widen_rows((there, columns), (up_at.values(), columns), [rows, columns]))?;
    bench.compare_wide(what("widen_rows"), &there_at, &up, 0.0)?;
    let (back_at, back) = bench.room::<u16>(up.len())?;
    bench.run(&calls::narrow_rows((back, columns), (there, columns), [rows, columns]))?;
    bench.compare(what("narrow_rows"), &back_at, &up, 0.0)
}

fn heads(bench: &mut ParityBench, rows: usize, heads: usize, head_dim: usize) -> Result<(), KernelError> {
    let what = |kernel: &str| format!("{kernel} of {rows} × {heads} heads of {head_dim}");
    let (width, half) = (heads * head_dim, head_dim / 2);
    let (x, gamma) = (bench.noise(rows * width), bench.noise(head_dim));
    let (x_at, gamma_at) = (bench.narrow(&x)?, bench.wide(&gamma)?);
    let mut wanted = x.clone();
    bench.run(&calls::rms_norm_heads(x_at.values(), rows, width, heads, gamma_at.values(), 1e-6))?;
    cpu::rms_norm_heads(&bench.pool, &mut wanted, rows, width, heads, &gamma, 1e-6);
    bench.compare(what("rms_norm_heads"), &x_at, &wanted, 1e-5)?;
    let frequencies: Vec<f32> = (0..half).map(|i| 1e4f32.powf(-(i as f32) / half as f32)).collect();
    let host = MemoryArena::new("host", Bytes::new(1 << 30));
    let positions: Vec<usize> = (0..rows).map(|row| row * 1023).collect();
    let positions_at = bench.numbers(&positions)?;
    for (name, interleaved) in [("rope", false), ("rope of neighbours", true)] {
        let table = |memory| Ok(RopeTable::new(memory, &frequencies, 4096)?.with_interleaved(interleaved));
        let (here, there): (RopeTable, _) = (table(&host)?, table(&bench.memory)?);
        let x_at = bench.narrow(&x)?;
        let (at, places) = (x_at.values(), positions_at.values());
        bench.run(&calls::rope(at, width, heads, head_dim, there.on_gpu(), places))?;
        let mut wanted = x.clone();
        cpu::rope(&bench.pool, &mut wanted, width, heads, head_dim, &here, &positions);
        bench.compare(what(name), &x_at, &wanted, 1e-5)?;
    }
    Ok(())
}
