//! How close a real run comes to what the machine can do: decode is compared with the read
//! bandwidth, prefill with the rate of bare matrix products, and the time between tasks is printed.
//!
//! `cargo run --release -p fulcrum-executor --example speed [PRESET [CORES [FORMAT]]]` (default:
//! fulcrum-1b on all cores, weights in bf16). Measurements of the run and of the machine alternate,
//! because the machine drifts. Medians are compared, and a second figure that other programs
//! disturb less: the sum of each task's lower quartile over the steps, against the upper quartile
//! of the machine's rates over pieces of a matrix's size.

use executor::{Checkpoint, GeneratedBatch, RunSetup, Sampling, Session, make_random};
use hwprofiles::{Bytes, DType, DeviceId, Machine, MemoryId};
use kernels::{
    Buffer, MemoryArena, Pool, Scratch, StridedRows, StridedRowsMut, Weights, affinity, gemm, stream,
};
use planner::{Placement, RunExtent};
use scenarios::{Formats, Model, Phase, Step, Sublayer, WeightFormats, Work};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

const PROMPT: u64 = 512;
const OUTPUT: u64 = 24;
const ROUNDS: usize = 5;
/// As much as a step reads, and four times the largest last-level cache.
const READ_BYTES: usize = 2 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = Model::preset(&arguments.next().unwrap_or("fulcrum-1b".to_owned()))?;
    let mut cores = affinity::available_cores();
    if let Some(count) = arguments.next() {
        cores.truncate(count.parse()?);
    }
    let weights: DType = arguments.next().map_or(Ok(DType::Bf16), |word| word.parse())?;
    let parent = std::env::temp_dir().join(format!("fulcrum-speed-{}", std::process::id()));
    let folder = parent.join(&model.name);
    let start = Instant::now();
    make_random(&model, &folder, 1)?;
    let made = start.elapsed().as_secs_f64();
    let result = measure(&model, weights, &folder, &cores, made);
    std::fs::remove_dir_all(&parent)?;
    result
}

fn measure(
    model: &Model,
    weights: DType,
    folder: &std::path::Path,
    cores: &[usize],
    made: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let checkpoint = Checkpoint::open(folder)?;
    // Only rates that the trace needs are taken from this machine file; nothing here is modelled.
    let text = include_str!("../../hwprofiles/data/example-loopback.yaml");
    let mut machine = Machine::from_yaml(text, "example-loopback.yaml")?;
    machine.devices[0].cores = cores.to_vec();
    let formats = Formats { weights: WeightFormats::all(weights), kv: DType::Bf16, activations: DType::F32 };
    let placement = Placement::uniform(model, DeviceId(0), MemoryId(0));
    let extent = RunExtent { batch: 1, context: PROMPT + OUTPUT, chunk: PROMPT, step_tokens: 1 };
    let setup = RunSetup { machine, model: model.clone(), formats, placement, extent, plan: String::new() };
    let start = Instant::now();
    let mut session = Session::new(setup, &checkpoint)?;
    let loaded = start.elapsed().as_secs_f64();
    println!("{} on cores {cores:?}: written in {made:.1} s, loaded in {loaded:.1} s", model.name);

    let pool = Pool::new(cores)?;
    pool.pin_caller()?;
    let mut bench = Bench::new(&pool, model, &formats)?;
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| i * 7919 % model.vocab as u32).collect();
    let (mut read, mut product, mut runs) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        (0..2).for_each(|_| read.extend(bench.read()));
        product.push(bench.products());
        runs.push(affinity_free(|| {
            session.generate(std::slice::from_ref(&prompt), OUTPUT, Sampling::Greedy, |_| {})
        })?);
    }
    report(model, &formats, &session, &runs, &read, &product);
    Ok(())
}

/// Runs on a thread that is not pinned, like a program's main thread.
fn affinity_free<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    affinity::restoring(|| std::thread::scope(|scope| scope.spawn(work).join()))
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Bare kernels on the model's shapes.
struct Bench<'a> {
    pool: &'a Pool,
    array: Buffer,
    weights: Vec<(Weights, u64)>,
    x: Buffer,
    y: Buffer,
    scratch: Scratch,
}

impl<'a> Bench<'a> {
    fn new(pool: &'a Pool, model: &Model, formats: &Formats) -> Result<Self, kernels::KernelError> {
        let memory = MemoryArena::new("bench", Bytes::new(u64::MAX));
        let mut array = Buffer::new(READ_BYTES)?;
        let values = array.view_mut::<f64>().iter_mut().zip(1_u64..);
        values.for_each(|(value, at)| *value = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64);
        let (mut weights, mut widest, mut deepest) = (vec![], 0, 0);
        for sublayer in Sublayer::DENSE {
            let Some((rows, columns)) = sublayer.matrix(model) else { continue };
            let (n, k) = (rows as usize, columns as usize);
            let matrix = Weights::from_rows(
                &memory,
                formats.weights.for_sublayer(sublayer).main(),
                n,
                k,
                |row, out| out.fill(row as f32),
            )?;
            weights.push((matrix, model.layers));
            (widest, deepest) = (n.max(widest), k.max(deepest));
        }
        let m = PROMPT as usize;
        let scratch = Scratch::unaccounted(gemm::scratch_bytes(pool.members(), m, deepest))?;
        Ok(Self {
            pool,
            array,
            weights,
            x: Buffer::new(4 * m * deepest)?,
            y: Buffer::new(4 * m * widest)?,
            scratch,
        })
    }

    /// Bytes per second of reading an array far larger than any cache, in pieces of 16 MiB.
    fn read(&self) -> Vec<f64> {
        let pieces = self.array.view::<f64>().chunks_exact(2 << 20);
        let rate = |piece: &[f64]| {
            let start = Instant::now();
            black_box(stream::read(self.pool, piece));
            size_of_val(piece) as f64 / start.elapsed().as_secs_f64()
        };
        pieces.map(rate).collect()
    }

    /// FLOP per second of the products of one prefill.
    fn products(&mut self) -> f64 {
        let (mut flop, mut time, m) = (0.0, 0.0, PROMPT as usize);
        for (weights, times) in &self.weights {
            let view = weights.view();
            let (n, k) = (view.rows(), view.columns());
            let start = Instant::now();
            let y = StridedRowsMut::new(self.y.view_mut(), n);
            gemm::gemm(self.pool, m, y, StridedRows::new(self.x.view(), k), view, &mut self.scratch);
            time += start.elapsed().as_secs_f64() * *times as f64;
            flop += 2.0 * (m * n * k) as f64 * *times as f64;
        }
        flop / time
    }
}

fn report(
    model: &Model,
    formats: &Formats,
    session: &Session,
    runs: &[GeneratedBatch],
    read: &[f64],
    product: &[f64],
) {
    let decode = Step::decode(1, PROMPT + OUTPUT / 2);
    let bytes: u64 = session
        .setup()
        .placement
        .sublayers()
        .flat_map(|(_, sublayer, slices)| {
            sublayer.operators(model).iter().map(move |&op| (op, slices[0].rows.clone()))
        })
        .map(|(operator, rows)| Work::count(operator, model, formats, &decode, &rows))
        .map(|work| (work.weights + work.kv_read).get())
        .sum();
    let flop: u128 =
        runs[0].trace.events.iter().filter(|event| event.step == 0).map(|event| event.flop.get()).sum();
    compare("decode, weights and KV against a plain read", bytes as f64, runs, Phase::Decode, read, "GB/s");
    compare("prefill against its bare products", flop as f64, runs, Phase::Prefill, product, "GFLOP/s");
    for phase in [Phase::Prefill, Phase::Decode] {
        breakdown(&runs[ROUNDS / 2], phase);
    }
}

/// Compares the rates of steps that do `amount` of work with those of the machine.
fn compare(what: &str, amount: f64, runs: &[GeneratedBatch], phase: Phase, machine: &[f64], unit: &str) {
    let (mut steps, mut tasks) = (vec![], BTreeMap::<u32, Vec<f64>>::new());
    for run in runs {
        let spans = &run.trace.steps;
        let of_phase = |step: usize| spans[step].step.phase == phase;
        steps.extend(
            spans.iter().filter(|s| s.step.phase == phase).map(|s| (s.end_ns - s.start_ns) as f64 * 1e-9),
        );
        for event in run.trace.events.iter().filter(|event| of_phase(event.step as usize)) {
            tasks.entry(event.task).or_default().push((event.end_ns - event.start_ns) as f64 * 1e-9);
        }
    }
    let undisturbed = tasks.into_values().map(|times| quantile(times, 0.25)).sum();
    println!("{what}:");
    let rates = |q| quantile(machine.to_vec(), q);
    for (word, time, limit) in
        [("median", quantile(steps, 0.5), rates(0.5)), ("quartiles", undisturbed, rates(0.75))]
    {
        let (ms, rate, percent) = (time * 1e3, amount / time * 1e-9, 100.0 * amount / time / limit);
        println!("  {word:9} {ms:9.2} ms, {rate:6.1} of {:6.1} {unit} = {percent:.0} %", limit * 1e-9);
    }
}

/// Prints the mean time of each operator in a step, and the time between tasks.
fn breakdown(run: &GeneratedBatch, phase: Phase) {
    let spans = &run.trace.steps;
    let steps = spans.iter().filter(|span| span.step.phase == phase).count() as f64;
    let mut names: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for event in run.trace.events.iter().filter(|event| spans[event.step as usize].step.phase == phase) {
        let entry = names.entry(&event.name).or_default();
        *entry = (entry.0 + (event.end_ns - event.start_ns) as f64 / steps, entry.1 + 1.0 / steps);
    }
    let total: f64 =
        spans.iter().filter(|s| s.step.phase == phase).map(|s| (s.end_ns - s.start_ns) as f64 / steps).sum();
    let (busy, tasks) = names.values().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!(
        "{phase}: {:.3} ms a step, between tasks {:.2} µs each",
        total * 1e-6,
        (total - busy) * 1e-3 / tasks
    );
    for (name, (time, count)) in names {
        println!("  {name:10} {:9.1} µs each, {:5.1} %", time * 1e-3 / count, 100.0 * time / total);
    }
}

fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q) as usize]
}
