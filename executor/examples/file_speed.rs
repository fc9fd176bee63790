//! Prefill and decode of a GGUF file on the CPU, with its tensors in their own formats.
//!
//! `cargo run --release -p fulcrum-executor --example file_speed -- FILE DTYPE [PROMPT [OUTPUT]]`
//! prints the better of two runs as JSON: tokens per second of both, and the rate at which decoding
//! reads weights beside that of a plain read of memory in the same minute. DTYPE is the format of
//! most weights in the file, or one to which they are converted: bf16, int8, int4.

use executor::{Checkpoint, RunSetup, Sampling, Session};
use hwprofiles::{DType, DeviceId, Machine, MemoryId};
use kernels::{Buffer, Pool, affinity, stream};
use planner::{Placement, RunExtent};
use scenarios::{Formats, Phase, WeightFormats};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: file_speed FILE DTYPE [PROMPT [OUTPUT]]";
    let file = PathBuf::from(arguments.next().ok_or(usage)?);
    let dtype: DType = arguments.next().ok_or(usage)?.parse()?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |word| word.parse());
    let (prompt, output) = (number(512)?, number(64)?);
    let checkpoint = Checkpoint::open(&file)?;
    let model = checkpoint.model().clone();
    let text = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(text, "example-loopback.yaml")?;
    let cores = affinity::available_cores();
    machine.devices[0].cores = cores.clone();
    // Only the trace needs a rate, and nothing here is modelled.
    let any = machine.devices[0].gemm[&DType::Bf16].clone();
    machine.devices[0].gemm.entry(dtype).or_insert(any);
    let formats = Formats { weights: WeightFormats::all(dtype), kv: DType::Bf16, activations: DType::F32 };
    let placement = Placement::uniform(&model, DeviceId(0), MemoryId(0));
    let extent = RunExtent { batch: 1, context: prompt + output, chunk: prompt, step_tokens: 1 };
    let setup = RunSetup { machine, model: model.clone(), formats, placement, extent, plan: String::new() };
    let mut session = Session::new(setup, &checkpoint)?;
    let tokens: Vec<u32> = (0..prompt as u32).map(|i| i * 7919 % model.vocab as u32).collect();
    let mut reading = Reading::new(&cores)?;
    let (mut prefill, mut decode, mut read) = (f64::INFINITY, f64::INFINITY, 0.0f64);
    for _ in 0..2 {
        read = read.max(reading.rate());
        let run = affinity::restoring(|| {
            let run = || session.generate(std::slice::from_ref(&tokens), output, Sampling::Greedy, |_| {});
            std::thread::scope(|scope| scope.spawn(run).join())
        })
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let times = |phase: Phase| -> Vec<f64> {
            let of_phase = run.trace.steps.iter().filter(|span| span.step.phase == phase);
            of_phase.map(|span| (span.end_ns - span.start_ns) as f64 * 1e-9).collect()
        };
        let (first, steps) = (times(Phase::Prefill), times(Phase::Decode));
        prefill = prefill.min(first.iter().sum());
        decode = decode.min(steps.iter().sum::<f64>() / steps.len().max(1) as f64);
    }
    read = read.max(reading.rate());
    println!(
        "{{\"prefill\": {:.2}, \"decode\": {:.3}, \"read_gb_s\": {:.2}}}",
        prompt as f64 / prefill,
        1.0 / decode,
        read * 1e-9
    );
    Ok(())
}

/// A plain read of an array far larger than any cache.
struct Reading {
    pool: Pool,
    array: Buffer,
}

impl Reading {
    fn new(cores: &[usize]) -> Result<Self, kernels::KernelError> {
        let mut array = Buffer::new(512 << 20)?;
        array.view_mut::<f64>().fill(1.0);
        Ok(Self { pool: Pool::new(cores)?, array })
    }

    /// Bytes per second.
    fn rate(&mut self) -> f64 {
        let start = Instant::now();
        black_box(stream::read(&self.pool, self.array.view::<f64>()));
        self.array.len() as f64 / start.elapsed().as_secs_f64()
    }
}
