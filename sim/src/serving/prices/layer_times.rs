//! Steps priced by a GPU's measured layer times.

use crate::clock::{SimTime, Tick};
use crate::serving::prices::batch::{Batch, StepPrices};
use crate::serving::prices::interpolation::{Interpolation, Surface};
use crate::serving::prices::layer_tables::{LayerTables, TableText};
use crate::serving::prices::step_line::StepLine;
use hwprofiles::{MissingRate, RowsError, Seconds};
use scenarios::{Experts, Model};
use std::collections::BTreeMap;

/// Layers that occur in every transformer layer, with their count in it.
const EVERY_LAYER: [(&str, f64); 5] =
    [("layernorm", 2.0), ("qkv_proj", 1.0), ("qk_norm", 2.0), ("rotary_emb", 1.0), ("o_proj", 1.0)];

/// Layers that occur in every transformer layer without experts. All others occur once.
const DENSE_LAYERS: [&str; 3] = ["gate_up_proj", "act_fn", "down_proj"];

/// Bytes of a value that is added up over ranks: bf16.
const SUMMED_BYTES: u64 = 2;

/// The GPUs that share a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerRanks {
    /// GPUs that share each layer.
    pub tensor: u64,
    /// Engines side by side that share the experts alone, each with as many tokens as the others.
    pub experts: u64,
}

/// The time of a step by layer.
#[derive(Debug, Clone)]
pub struct LayerTimes {
    model: Model,
    ranks: LayerRanks,
    /// The count of each dense layer in the model, its name, and microseconds of one call by
    /// tokens.
    dense: Vec<(f64, String, Interpolation)>,
    /// Microseconds of all dense layers, by tokens.
    dense_sum: Interpolation,
    /// The head and the sampler, by sampled sequences.
    per_sequence: Vec<(String, Interpolation)>,
    attention: Surface,
    /// The context lengths at which decodes without prompts were measured.
    contexts: Vec<f64>,
    /// Layers with experts, and microseconds of the experts by tokens and touched experts.
    experts: Option<(f64, Surface)>,
    /// Microseconds of an all-reduce, by bytes.
    all_reduce: Option<Interpolation>,
}

/// The time of one layer in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerTime {
    /// The layer, as its table names it.
    pub layer: String,
    /// The time of all its calls.
    pub time: Seconds,
}

impl LayerTimes {
    /// The times of `model` in `tables`, which were measured on one of `ranks`.
    ///
    /// # Errors
    /// Names the file, the line and the column that is wrong, or the table that is missing.
    pub fn read(tables: &LayerTables<'_>, model: &Model, ranks: LayerRanks) -> Result<Self, RowsError> {
        let layers = model.layers as f64;
        let with_experts = (0..model.layers).filter(|&layer| model.layer(layer).experts.is_some()).count();
        let with_experts = with_experts as f64;
        let count = |name: &str| match EVERY_LAYER.iter().find(|(known, _)| *known == name) {
            Some((_, count)) => count * layers,
            None if DENSE_LAYERS.contains(&name) => layers - with_experts,
            None => 1.0,
        };
        let dense: Vec<_> = read_layers(&tables.dense, "tokens")?
            .into_iter()
            .map(|(name, times)| (count(&name), name, times))
            .collect();
        let dense_sum = Interpolation::sum(dense.iter().map(|(count, _, times)| (*count, times)));
        let (attention, contexts) = read_attention(&tables.attention)?;
        let experts = match (with_experts > 0.0, &tables.experts) {
            (false, _) => None,
            (true, Some(table)) => Some((with_experts, read_experts(table)?)),
            (true, None) => {
                let message = "the model has experts, and the table of their times is missing: tokens, \
                               activated_experts, time_us";
                return Err(tables.dense.refuse(message));
            }
        };
        let all_reduce = match (ranks.tensor.max(ranks.experts), &tables.all_reduce) {
            (..2, _) => None,
            (ranks, Some(table)) => Some(read_all_reduce(table, ranks)?),
            (ranks, None) => {
                let message = format!(
                    "{ranks} GPUs share the model, and the table of their all-reduces is missing: ranks, \
                     bytes, time_us"
                );
                return Err(tables.dense.refuse(&message));
            }
        };
        let per_sequence = read_layers(&tables.per_sequence, "sequences")?.into_iter().collect();
        let model = model.clone();
        Ok(Self { model, ranks, dense, dense_sum, per_sequence, attention, contexts, experts, all_reduce })
    }

    /// The time of each layer in a step of `batch`, in the order of the tables.
    pub fn by_layer(&self, batch: &Batch<'_>) -> Vec<LayerTime> {
        let (tokens, sampled) = (batch.tokens() as f64, batch.sampled.max(1) as f64);
        let dense = self.dense.iter().map(|(count, name, times)| (name.as_str(), count * times.at(tokens)));
        let ends = self.per_sequence.iter().map(|(name, times)| (name.as_str(), times.at(sampled)));
        let others = [
            ("attention", self.model.layers as f64 * self.attention(batch)),
            ("experts", self.expert_time(batch.tokens())),
            ("all_reduce", self.all_reduce_time(batch.tokens())),
        ];
        let all = dense.chain(others).chain(ends);
        all.filter(|(_, time)| *time > 0.0)
            .map(|(layer, time)| LayerTime { layer: layer.to_owned(), time: Seconds::new(time * 1e-6) })
            .collect()
    }

    fn time_without_attention(&self, tokens: u64, sampled: u64) -> f64 {
        let ends: f64 = self.per_sequence.iter().map(|(_, times)| times.at(sampled as f64)).sum();
        self.dense_sum.at(tokens as f64) + ends + self.expert_time(tokens) + self.all_reduce_time(tokens)
    }

    /// Microseconds of attention in one layer.
    fn attention(&self, batch: &Batch<'_>) -> f64 {
        let [chunk, past] = batch.equivalent_chunk();
        let mean = batch.decode_tokens as f64 / batch.decodes.max(1) as f64;
        self.attention_at([chunk, past, batch.decodes as f64, mean])
    }

    fn attention_at(&self, point: [f64; 4]) -> f64 {
        match point {
            [0.0, _, 0.0, _] => 0.0,
            _ => self.attention.at(&point),
        }
    }

    /// Microseconds of the experts in all layers. Where engines share the experts, each computes
    /// its share of the experts for the tokens of all. These are as many pairs of a token and an
    /// expert as its own tokens have with all experts.
    fn expert_time(&self, tokens: u64) -> f64 {
        let Some((layers, times)) = &self.experts else { return 0.0 };
        let Some(experts) = self.model.shapes().iter().find_map(|shape| shape.experts.as_ref()) else {
            return 0.0;
        };
        layers * times.at(&[tokens as f64, touched_experts(experts, tokens, self.ranks.experts)])
    }

    /// Microseconds of all sums over ranks. Ranks that share a layer add up their results after
    /// attention and after the feed-forward network, and once for the embedding. Ranks that share
    /// the experts alone collect the tokens of all before them and add up the results behind them,
    /// which takes as long as one all-reduce over the tokens of all.
    fn all_reduce_time(&self, tokens: u64) -> f64 {
        let Some(times) = &self.all_reduce else { return 0.0 };
        let time = |tokens: u64| times.at((tokens * self.model.hidden * SUMMED_BYTES) as f64);
        let layers = self.model.layers as f64;
        let shared_layers = if self.ranks.tensor > 1 { (2.0 * layers + 1.0) * time(tokens) } else { 0.0 };
        let shared_experts = match (&self.experts, self.ranks.experts) {
            (Some((layers, _)), ranks @ 2..) => layers * time(tokens * ranks),
            _ => 0.0,
        };
        shared_layers + shared_experts
    }
}

impl StepPrices for LayerTimes {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate> {
        let attention = self.model.layers as f64 * self.attention(batch);
        Ok(sim_time(self.time_without_attention(batch.tokens(), batch.sampled.max(1)) + attention))
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        let axis = &self.contexts;
        let mean = tokens / decodes;
        let next = axis.partition_point(|&context| context as u64 <= mean).clamp(1, axis.len() - 1);
        let ends = [axis[next - 1], axis[next]];
        let layers = self.model.layers as f64;
        let [low, high] = ends.map(|context| layers * self.attention_at([0.0, 0.0, decodes as f64, context]));
        let [from, until] = ends.map(|context| context as u64 * decodes);
        let beside = self.time_without_attention(decodes, decodes);
        let StepLine { base, per_token, .. } =
            StepLine::through(from, sim_time(beside + low), until, sim_time(beside + high));
        let last = next + 1 == axis.len();
        // Below the first context of the table, the first line continues.
        let (from, base) = match tokens < from {
            true => (tokens, base.saturating_add_signed(-per_token * (from - tokens) as i64)),
            false => (from, base),
        };
        Ok(StepLine {
            from,
            until: if last && per_token >= 0 { u64::MAX } else { until.max(tokens + 1) },
            base,
            per_token,
        })
    }
}

/// The experts of one of `ranks` shares that `tokens` tokens of each rank touch.
fn touched_experts(experts: &Experts, tokens: u64, ranks: u64) -> f64 {
    experts.traffic(&(0..experts.count), tokens * ranks).touched / ranks as f64
}

fn sim_time(microseconds: f64) -> SimTime {
    SimTime::rounding_up(Seconds::new(microseconds * 1e-6), Tick::Picosecond)
}

/// Microseconds of each layer of a table, by the numbers of the column `counted`.
fn read_layers(table: &TableText<'_>, counted: &str) -> Result<BTreeMap<String, Interpolation>, RowsError> {
    let mut points: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in table.layers(counted)? {
        points.entry(row.layer).or_default().push((row.count, row.microseconds));
    }
    Ok(points.into_iter().map(|(layer, points)| (layer, Interpolation::new(points))).collect())
}

/// Microseconds of attention in one layer, by tokens of the chunks, tokens before them, decoding
/// sequences, and tokens of each decoding sequence; and the contexts of decodes alone.
fn read_attention(table: &TableText<'_>) -> Result<(Surface, Vec<f64>), RowsError> {
    let points = table.points(["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"])?;
    let alone = points.iter().filter(|(point, _)| point[0] == 0.0 && point[2] > 0.0);
    let mut contexts: Vec<f64> = alone.map(|(point, _)| point[3].floor()).collect();
    contexts.sort_by(f64::total_cmp);
    contexts.dedup();
    if contexts.len() < 2 {
        return Err(
            table.refuse("rows with decodes alone (prefill_chunk 0) of at least two lengths are missing")
        );
    }
    Ok((Surface::new(points), contexts))
}

/// Microseconds of the experts of one layer, by tokens and touched experts.
fn read_experts(table: &TableText<'_>) -> Result<Surface, RowsError> {
    Ok(Surface::new(table.points(["tokens", "activated_experts"])?))
}

/// Microseconds of an all-reduce over `ranks`, by bytes.
fn read_all_reduce(table: &TableText<'_>, ranks: u64) -> Result<Interpolation, RowsError> {
    let points = table.points(["ranks", "bytes"])?.into_iter();
    let points: Vec<_> =
        points.filter(|(point, _)| point[0] == ranks as f64).map(|(point, time)| (point[1], time)).collect();
    match points.is_empty() {
        true => Err(table.refuse(&format!("no row is over {ranks} ranks: add rows with `ranks` of {ranks}"))),
        false => Ok(Interpolation::new(points)),
    }
}
