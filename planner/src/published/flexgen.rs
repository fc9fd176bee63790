//! FlexGen (Sheng et al., ICML 2023): the shares of weights, KV cache and activations on GPU, CPU
//! and disk, as a linear program for a given block of batches.
//!
//! A block is several GPU batches that share one reading of each layer's weights. For l layers and
//! n output tokens T = T_prefill · l + T_decode · (n − 1) · l, both for one layer over one block.
//! The paper takes the longest of GPU ← CPU, CPU ← GPU, CPU ← disk, disk ← CPU and compute. The
//! released code, which is followed here, adds the terms that depend on each other: T_prefill =
//! max(GPU ← CPU + CPU ← disk, CPU ← GPU + disk ← CPU, compute), and T_decode = GPU ← CPU + max(CPU
//! ← GPU, CPU ← disk, disk ← CPU, compute). In decode the CPU computes attention over the part of
//! the cache that is not on the GPU.

use super::model_totals::{layer_weights, product_flop};
use crate::error::PlannerError;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint,
    default_solver, variable,
};
use hwprofiles::{Bytes, BytesPerSec, Elements, Flop, FlopPerSec, Seconds};
use scenarios::{Formats, Model, Step, kv_bytes};

const PLACES: usize = 3;
const GPU: usize = 0;
const CPU: usize = 1;
const DISK: usize = 2;
/// Weights, cache, activations.
const KINDS: usize = 3;

/// Rates in FlexGen's cost form; pairs are those of prefill and of decode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// CPU to GPU.
    pub to_gpu: BytesPerSec,
    /// GPU to CPU, for cache and for activations.
    pub to_cpu: [BytesPerSec; 2],
    /// The disk; `None` without one.
    pub disk: Option<DiskRates>,
    /// Matrix products on the GPU.
    pub matrix: [FlopPerSec; 2],
    /// Attention on the GPU.
    pub attention: [FlopPerSec; 2],
    /// Attention on the CPU, in decode.
    pub cpu: FlopPerSec,
}

/// Rates of a disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskRates {
    /// Reads to the CPU.
    pub read: BytesPerSec,
    /// Writes of cache in prefill.
    pub write_cache: BytesPerSec,
    /// All other writes.
    pub write: BytesPerSec,
}

impl Rates {
    /// FlexGen's constants for its machine in GCP, a T4 with 208 GB and an NVMe disk: the defaults
    /// of the released cost model (FMInference/FlexLLMGen, experimental/cost_model.py; its GB are
    /// GiB). Its CPU slows by 3.28 % for each halving of a GPU batch below 64.
    pub fn gcp_t4(gpu_batch: u64) -> Self {
        const GIB: f64 = (1u64 << 30) as f64;
        let bytes = |gib: f64| BytesPerSec::new(gib * GIB);
        let halvings = (64.0 / gpu_batch.max(1) as f64).log2().max(0.0);
        Self {
            to_gpu: bytes(12.89),
            to_cpu: [bytes(0.97), bytes(4.82)],
            disk: Some(DiskRates { read: bytes(0.473), write_cache: bytes(0.746), write: bytes(2.015) }),
            matrix: [FlopPerSec::new(21.24e12), FlopPerSec::new(4.3e12)],
            attention: [FlopPerSec::new(9.97e12), FlopPerSec::new(79e9)],
            cpu: FlopPerSec::new(12.3e9) * (1.0 - 0.0328 * halvings).max(0.1),
        }
    }
}

/// The batches that share one reading of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Sequences computed at once.
    pub gpu_batch: u64,
    /// All sequences of the block.
    pub sequences: u64,
}

/// Shares on GPU, CPU and disk; each sums to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// Of the layers' weights.
    pub weights: [f64; PLACES],
    /// Of the KV cache.
    pub cache: [f64; PLACES],
    /// Of the activations between layers.
    pub activations: [f64; PLACES],
}

impl Shares {
    /// From percentages on GPU and CPU, as FlexGen's command line takes them; the rest is on disk.
    pub fn percent(weights: [u8; 2], cache: [u8; 2], activations: [u8; 2]) -> Self {
        let shares = |[gpu, cpu]: [u8; 2]| {
            let [gpu, cpu] = [gpu, cpu].map(|percent| f64::from(percent) / 100.0);
            [gpu, cpu, 1.0 - gpu - cpu]
        };
        Self { weights: shares(weights), cache: shares(cache), activations: shares(activations) }
    }

    fn flat(&self) -> [f64; KINDS * PLACES] {
        std::array::from_fn(|i| [self.weights, self.cache, self.activations][i / PLACES][i % PLACES])
    }
}

/// What FlexGen's planner needs to know.
#[derive(Debug, Clone, Copy)]
pub struct FlexGenProblem<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its formats.
    pub formats: &'a Formats,
    /// Tokens of each prompt.
    pub prompt: u64,
    /// Tokens of each output.
    pub output: u64,
    /// The block.
    pub block: Block,
    /// The machine's rates.
    pub rates: Rates,
    /// The capacities of GPU, CPU and disk.
    pub room: [Bytes; PLACES],
    /// Bytes on the GPU that computing one GPU batch needs; `None` takes FlexGen's own count, which
    /// keeps all scores of a prompt.
    pub working: Option<Bytes>,
}

/// FlexGen's answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// The shares.
    pub shares: Shares,
    /// T of one block.
    pub time: Seconds,
}

/// A time in seconds or a size in bytes that is linear in the nine shares.
#[derive(Debug, Clone, Copy, Default)]
struct Linear {
    constant: f64,
    of: [f64; KINDS * PLACES],
}

impl Linear {
    fn at(&self, shares: &[f64; KINDS * PLACES]) -> f64 {
        self.constant + self.of.iter().zip(shares).map(|(of, share)| of * share).sum::<f64>()
    }

    fn plus(mut self, other: &Self) -> Self {
        self.constant += other.constant;
        self.of.iter_mut().zip(other.of).for_each(|(of, other)| *of += other);
        self
    }

    /// `amounts` of weights, cache and activations for each share in one of `places`.
    fn from(places: &[usize], amounts: [f64; KINDS]) -> Self {
        let of = |i: usize| if places.contains(&(i % PLACES)) { amounts[i / PLACES] } else { 0.0 };
        Self { constant: 0.0, of: std::array::from_fn(of) }
    }
}

impl FlexGenProblem<'_> {
    /// The best shares; `None` where nothing fits.
    ///
    /// # Errors
    /// [`PlannerError::Solver`] where the solver fails.
    pub fn policy(&self) -> Result<Option<Policy>, PlannerError> {
        let mut variables = ProblemVariables::new();
        let shares: Vec<Variable> = variables.add_vector(variable().min(0.0).max(1.0), KINDS * PLACES);
        let times: Vec<Variable> = variables.add_vector(variable().min(0.0), 2);
        let phases = self.times();
        // Times in units of the longest possible one, so that the solver sees numbers near 1.
        let longest = phases.iter().flatten().fold(f64::MIN_POSITIVE, |most, time| {
            time.of.iter().fold(most.max(time.constant), |most, &of| most.max(of))
        });
        let weight = [1.0, self.output.saturating_sub(1) as f64];
        let total: Expression = times.iter().zip(weight).map(|(&time, weight)| time * weight).sum();
        let mut program = variables.minimise(total).using(default_solver);
        let linear = |linear: &Linear, unit: f64| -> Expression {
            let terms = shares.iter().zip(linear.of).map(|(&share, of)| share * (of / unit));
            terms.sum::<Expression>() + linear.constant / unit
        };
        for kind in shares.chunks(PLACES) {
            program = program.with(constraint!(kind.iter().sum::<Expression>() == 1.0));
        }
        for (&time, phase) in times.iter().zip(&phases) {
            for path in phase {
                program = program.with(constraint!(linear(path, longest) <= time));
            }
        }
        for (place, held) in self.held() {
            let unit = held.of.iter().fold(held.constant.max(1.0), |most, &of| most.max(of));
            let room = self.room[place].as_f64() / unit;
            program = program.with(constraint!(linear(&held, unit) <= room));
        }
        let solution = match program.solve() {
            Ok(solution) => solution,
            Err(ResolutionError::Infeasible) => return Ok(None),
            Err(error) => return Err(PlannerError::Solver { reason: error.to_string() }),
        };
        let found =
            |kind: usize| std::array::from_fn(|p| solution.value(shares[kind * PLACES + p]).clamp(0.0, 1.0));
        let shares = Shares { weights: found(0), cache: found(1), activations: found(2) };
        Ok(Some(Policy { shares, time: self.time(&shares) }))
    }

    /// T of one block under `shares`.
    pub fn time(&self, shares: &Shares) -> Seconds {
        let flat = shares.flat();
        let longest = |phase: &[Linear]| phase.iter().fold(0.0, |most: f64, path| most.max(path.at(&flat)));
        let [prefill, decode] = self.times().map(|phase| longest(&phase));
        let steps = self.output.saturating_sub(1) as f64;
        Seconds::new((prefill + decode * steps) * self.model.layers as f64)
    }

    /// Whether `shares` fit the capacities.
    pub fn fits(&self, shares: &Shares) -> bool {
        let flat = shares.flat();
        let fits =
            |(place, held): (usize, Linear)| held.at(&flat) <= self.room[place].as_f64() * (1.0 + 1e-6);
        self.held().into_iter().all(fits)
    }

    /// The mean bytes of a layer's matrices.
    fn layer(&self) -> f64 {
        layer_weights(self.model, self.formats).as_f64() / self.model.layers as f64
    }

    fn cache(&self, tokens: u64) -> f64 {
        kv_bytes(self.model, self.formats, self.block.sequences, tokens).as_f64()
    }

    fn activations(&self, tokens: u64) -> f64 {
        let numbers = Elements::product(&[self.block.sequences, tokens, self.model.hidden]);
        self.formats.activations.bytes(numbers).as_f64()
    }

    /// The most bytes that each place holds, in prefill and in decode.
    fn held(&self) -> Vec<(usize, Linear)> {
        let layers = self.model.layers as f64;
        let layer = self.layer();
        let cache = |tokens: u64| self.cache(tokens) * layers;
        let all = self.prompt + self.output;
        let mut held = Vec::new();
        for (tokens, length) in [(self.prompt, self.prompt), (1, all)] {
            let activations = self.activations(tokens);
            let staged = activations * self.block.gpu_batch as f64 / self.block.sequences as f64;
            // Weights and activations from elsewhere are staged, weights twice.
            let mut gpu = Linear::from(&[GPU], [layer * layers, cache(all), activations])
                .plus(&Linear::from(&[CPU, DISK], [2.0 * layer, 0.0, staged]));
            gpu.constant = self.working.map_or_else(|| self.gpu_batch(tokens), Bytes::as_f64);
            held.push((GPU, gpu));
            let cpu = Linear::from(&[CPU], [layer * layers, cache(length), activations])
                .plus(&Linear::from(&[CPU, DISK], [layer, 0.0, staged]));
            held.push((CPU, cpu));
        }
        held.push((DISK, Linear::from(&[DISK], [layer * layers, cache(all), self.activations(self.prompt)])));
        held
    }

    /// Bytes of one GPU batch's buffers on the GPU for `tokens` of each sequence: q, k, v and their
    /// input, scores and context, and the FFN's.
    fn gpu_batch(&self, tokens: u64) -> f64 {
        let Model { hidden, heads, .. } = *self.model;
        let scores = if tokens == 1 { 0 } else { heads * tokens };
        let columns = self.model.qkv_width() + 6 * hidden + scores + self.model.up_width();
        let numbers = Elements::product(&[self.block.gpu_batch, tokens, columns]);
        self.formats.activations.bytes(numbers).as_f64()
    }

    /// The time of one layer in prefill and in decode: the longest of these.
    fn times(&self) -> [Vec<Linear>; 2] {
        let rates = &self.rates;
        let layer = self.layer();
        let path = |places: &[usize], rates: [Option<BytesPerSec>; KINDS], amounts: [f64; KINDS]| {
            let time = |kind: usize| rates[kind].map_or(0.0, |rate| amounts[kind] / rate.get());
            Linear::from(places, std::array::from_fn(time))
        };
        let outside = [CPU, DISK];
        let to_gpu = [Some(rates.to_gpu); KINDS];
        let to_cpu = [None, Some(rates.to_cpu[0]), Some(rates.to_cpu[1])];
        let read = [rates.disk.map(|disk| disk.read); KINDS];
        let write = rates.disk.map(|disk| disk.write);
        let write_cache = rates.disk.map(|disk| disk.write_cache);
        let middle = self.prompt + self.output / 2;
        let sequences = self.block.sequences;
        let computing = |phase: usize, step: Step| {
            let flop = product_flop(self.model, self.formats, &step);
            let layer = flop / rates.matrix[phase] / self.model.layers as f64;
            Linear { constant: layer.get(), of: [0.0; KINDS * PLACES] }
        };
        let mut prefill = computing(0, Step::prefill(sequences, self.prompt));
        prefill.constant += (self.attention_flop(self.prompt, self.prompt) / rates.attention[0]).get();
        let mut decode = computing(1, Step::decode(sequences, middle));
        for (place, rate) in [rates.attention[1], rates.cpu, rates.cpu].into_iter().enumerate() {
            decode.of[PLACES + place] = (self.attention_flop(1, middle) / rate).get();
        }
        let (prompt, one) = (self.activations(self.prompt), self.activations(1));
        let filled = self.cache(self.prompt + 1);
        let fetching = path(&outside, to_gpu, [layer, 0.0, one]);
        let decoding = [
            path(&outside, to_cpu, [0.0, 0.0, one]),
            path(&[DISK], read, [layer, self.cache(middle), one]),
            path(&[DISK], [None, write, write], [0.0, self.cache(1), one]),
            decode,
        ];
        [
            vec![
                path(&outside, to_gpu, [layer, 0.0, prompt]).plus(&path(&[DISK], read, [layer, 0.0, prompt])),
                path(&outside, to_cpu, [0.0, filled, prompt]).plus(&path(
                    &[DISK],
                    [None, write_cache, write],
                    [0.0, filled, prompt],
                )),
                prefill,
            ],
            decoding.map(|path| path.plus(&fetching)).to_vec(),
        ]
    }

    /// FLOP of one layer's scores and of their product with the values.
    fn attention_flop(&self, tokens: u64, length: u64) -> Flop {
        let width = u128::from(self.model.context_width());
        Flop::new(4 * width * u128::from(self.block.sequences * tokens) * u128::from(length))
    }
}
