//! FlexGen (Sheng et al., ICML 2023): which shares of weights, KV cache and activations stand on GPU, CPU and disk,
//! as a linear program for a given block of batches.
//!
//! A block is `batches` GPU batches of `gpu_batch` sequences that share one reading of each layer's weights. For l
//! layers and n output tokens T = T_prefill · l + T_decode · (n − 1) · l, each T the longest of GPU ← CPU, CPU ← GPU,
//! CPU ← disk, disk ← CPU and compute, of one layer over one block. Attention on cache that is not on the GPU is
//! computed by the CPU, in decode alone.

use crate::error::PlannerError;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable, constraint,
    default_solver, variable,
};
use hwprofiles::{Bytes, BytesPerSec, Elements, Flop, FlopPerSec, Seconds};
use scenarios::{Formats, Model, Sublayer, kv_bytes};

/// GPU, CPU, disk.
const PLACES: usize = 3;
/// Weights, cache, activations.
const KINDS: usize = 3;

/// Rates in FlexGen's cost form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// CPU to GPU.
    pub to_gpu: BytesPerSec,
    /// GPU to CPU.
    pub to_cpu: BytesPerSec,
    /// Disk to CPU and back; `None` without a disk.
    pub disk: Option<[BytesPerSec; 2]>,
    /// Matrix products of the GPU.
    pub matrix: FlopPerSec,
    /// The GPU's attention.
    pub attention: FlopPerSec,
    /// The CPU's attention.
    pub cpu: FlopPerSec,
}

/// What shares one reading of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Sequences computed at once.
    pub gpu_batch: u64,
    /// GPU batches in the block.
    pub batches: u64,
}

impl Block {
    /// Sequences.
    pub fn sequences(&self) -> u64 {
        self.gpu_batch * self.batches
    }
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

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
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
    /// What GPU, CPU and disk have for weights, cache and activations, working memory taken off.
    pub room: [Bytes; PLACES],
}

/// What FlexGen would do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// The shares.
    pub shares: Shares,
    /// T of one block.
    pub time: Seconds,
}

/// A time (in seconds) or a size (in bytes) that is linear in the nine shares.
#[derive(Debug, Clone, Copy, Default)]
struct Linear {
    constant: f64,
    of: [f64; KINDS * PLACES],
}

impl Linear {
    fn at(&self, shares: &[f64; KINDS * PLACES]) -> f64 {
        self.constant + self.of.iter().zip(shares).map(|(of, share)| of * share).sum::<f64>()
    }

    /// `amounts` of weights, cache and activations for each share that stands in one of `places`.
    fn from(places: &[usize], amounts: [f64; KINDS]) -> Self {
        let of = |i: usize| if places.contains(&(i % PLACES)) { amounts[i / PLACES] } else { 0.0 };
        Self { constant: 0.0, of: std::array::from_fn(of) }
    }
}

impl Question<'_> {
    /// The best shares; `None` where nothing fits.
    ///
    /// # Errors
    /// [`PlannerError::Solver`] where the solver fails.
    pub fn policy(&self) -> Result<Option<Policy>, PlannerError> {
        let mut variables = ProblemVariables::new();
        let shares: Vec<Variable> = variables.add_vector(variable().min(0.0).max(1.0), KINDS * PLACES);
        let times: Vec<Variable> = variables.add_vector(variable().min(0.0), 2);
        let phases = self.times();
        // Times in units of the longest that is possible, so that the solver sees numbers near 1.
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
        let sizes = self.sizes();
        for (place, room) in self.room.iter().enumerate() {
            let unit = sizes.iter().sum::<f64>().max(1.0);
            let held = Linear::from(&[place], sizes);
            program = program.with(constraint!(linear(&held, unit) <= room.as_f64() / unit));
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

    /// Whether `shares` fit into the room.
    pub fn fits(&self, shares: &Shares) -> bool {
        let flat = shares.flat();
        let held = |place: usize| Linear::from(&[place], self.sizes()).at(&flat);
        self.room.iter().enumerate().all(|(place, room)| held(place) <= room.as_f64() * (1.0 + 1e-9))
    }

    /// Bytes of one layer's matrices.
    fn layer(&self) -> f64 {
        let of = |sublayer: Sublayer| {
            let rows = sublayer.matrix(self.model).map_or(0, |(rows, _)| rows);
            sublayer.matrix_bytes(self.model, self.formats.weights, &(0..rows))
        };
        Sublayer::LAYER.into_iter().map(of).sum::<Bytes>().as_f64()
    }

    fn cache(&self, tokens: u64) -> f64 {
        kv_bytes(self.model, self.formats, self.block.sequences(), tokens).as_f64()
    }

    fn activations(&self, tokens: u64) -> f64 {
        let numbers = Elements::product(&[self.block.sequences(), tokens, self.model.hidden]);
        self.formats.activations.bytes(numbers).as_f64()
    }

    /// Bytes of all weights, of the cache at its end, and of the activations between layers.
    fn sizes(&self) -> [f64; KINDS] {
        let layers = self.model.layers as f64;
        [self.layer() * layers, self.cache(self.prompt + self.output) * layers, self.activations(self.prompt)]
    }

    /// What each path and the devices take for one layer in prefill and in decode.
    fn times(&self) -> [Vec<Linear>; 2] {
        const CPU: usize = 1;
        const DISK: usize = 2;
        let rates = &self.rates;
        let layer = self.layer();
        // Activations are loaded and stored in front of and behind attention and FFN: twice.
        let entering = |tokens: u64| 2.0 * self.activations(tokens);
        let path = |places: &[usize], amounts: [f64; KINDS], rate: Option<BytesPerSec>| {
            let time = |amount: f64| rate.map_or(0.0, |rate| amount / rate.get());
            Linear::from(places, amounts.map(time))
        };
        let [read, write] = rates.disk.map_or([None, None], |[read, write]| [Some(read), Some(write)]);
        let outside = [CPU, DISK];
        let (prompt, new, past) =
            (entering(self.prompt), entering(1), self.cache(self.prompt + self.output / 2));
        let computing = |tokens: u64| Linear {
            constant: (self.product_flop(tokens) / rates.matrix).get(),
            of: [0.0; KINDS * PLACES],
        };
        let mut prefill = computing(self.prompt);
        prefill.constant += (self.attention_flop(self.prompt, self.prompt) / rates.attention).get();
        let mut decode = computing(1);
        let attention = self.attention_flop(1, self.prompt + self.output / 2);
        for (place, rate) in [rates.attention, rates.cpu, rates.cpu].into_iter().enumerate() {
            decode.of[PLACES + place] = (attention / rate).get();
        }
        let filled = self.cache(self.prompt + 1);
        let added = self.cache(1);
        [
            vec![
                path(&outside, [layer, 0.0, prompt], Some(rates.to_gpu)),
                path(&outside, [0.0, filled, prompt], Some(rates.to_cpu)),
                path(&[DISK], [layer, 0.0, prompt], read),
                path(&[DISK], [0.0, filled, prompt], write),
                prefill,
            ],
            vec![
                path(&outside, [layer, 0.0, new], Some(rates.to_gpu)),
                path(&outside, [0.0, 0.0, new], Some(rates.to_cpu)),
                path(&[DISK], [layer, past, new], read),
                path(&[DISK], [0.0, added, new], write),
                decode,
            ],
        ]
    }

    /// FLOP of one layer's matrices for `tokens` of each sequence of the block.
    fn product_flop(&self, tokens: u64) -> Flop {
        let matrices = Sublayer::LAYER.into_iter().filter_map(|sublayer| sublayer.matrix(self.model));
        let products: u128 = matrices.map(|(n, k)| u128::from(n) * u128::from(k)).sum();
        Flop::new(2 * products * u128::from(self.block.sequences() * tokens))
    }

    /// FLOP of one layer's scores and their product with the values.
    fn attention_flop(&self, tokens: u64, length: u64) -> Flop {
        let width = u128::from(self.model.context_width());
        Flop::new(4 * width * u128::from(self.block.sequences() * tokens) * u128::from(length))
    }

    /// What the GPU needs beside shares: two layers in staging, and of one GPU batch the activations, scores and
    /// probabilities of a prompt. FlexGen's own count also shrinks with the weights that stay on the GPU.
    pub fn workspace(&self) -> Bytes {
        let tokens = self.prompt;
        let columns = self.model.hidden + self.model.qkv_width().max(2 * self.model.heads * tokens);
        let columns = columns.max(self.model.hidden + self.model.up_width());
        let numbers = Elements::product(&[self.block.gpu_batch, tokens, columns]);
        let staged = Bytes::new((2.0 * self.layer()) as u64);
        staged + self.formats.activations.bytes(numbers)
    }
}
