//! Steps priced by a GPU's measured layer times, in the format that LLMServingSim publishes:
//! microseconds of each dense layer by tokens, of attention by the tokens that it attends to, and
//! of per-sequence work by sampled sequences.

use crate::clock::{SimTime, Tick};
use crate::serving::prices::batch::{Batch, StepPrices};
use crate::serving::prices::step_line::StepLine;
use hwprofiles::{MissingRate, Seconds};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Dense layers that occur in every transformer layer, with their count in it. All others occur
/// once.
const PER_TRANSFORMER_LAYER: [(&str, f64); 8] = [
    ("layernorm", 2.0),
    ("qkv_proj", 1.0),
    ("rotary_emb", 1.0),
    ("o_proj", 1.0),
    ("gate_up_proj", 1.0),
    ("act_fn", 1.0),
    ("down_proj", 1.0),
    ("qk_norm", 2.0),
];

/// The largest number in a table: tokens, sequences or microseconds (three hours).
const LARGEST: f64 = 1e10;

/// Tables of layer times.
#[derive(Debug, Clone)]
pub struct LayerTimes {
    /// Microseconds of all dense layers, by tokens.
    dense: Interpolation,
    /// Microseconds of per-sequence work, by sampled sequences.
    sampled: Interpolation,
    attention: Attention,
    layers: f64,
}

/// A CSV table with an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}: {reason}")]
pub struct CsvTableError {
    /// The name of the table.
    pub table: &'static str,
    /// The error.
    pub reason: String,
}

impl LayerTimes {
    /// The tables of a model of `layers` layers: `dense` (`layer,tokens,time_us`), `sampled`
    /// (`layer,sequences,time_us`), `attention`
    /// (`prefill_chunk,kv_prefill,n_decode,kv_decode,time_us` of one layer).
    ///
    /// # Errors
    /// Names the table, and the line where a value is missing or is not a time.
    pub fn read(dense: &str, sampled: &str, attention: &str, layers: u64) -> Result<Self, CsvTableError> {
        let times = |name: &str| match PER_TRANSFORMER_LAYER.iter().find(|(known, _)| *known == name) {
            Some((_, count)) => count * layers as f64,
            None => 1.0,
        };
        Ok(Self {
            dense: Interpolation::sum("dense", dense, "tokens", times)?,
            sampled: Interpolation::sum("per_sequence", sampled, "sequences", |_| 1.0)?,
            attention: Attention::read(attention)?,
            layers: layers as f64,
        })
    }

    fn time_without_attention(&self, tokens: u64, sampled: u64) -> f64 {
        self.dense.at(tokens as f64) + self.sampled.at(sampled as f64)
    }
}

impl StepPrices for LayerTimes {
    fn step(&mut self, batch: &Batch<'_>) -> Result<SimTime, MissingRate> {
        let [chunk, past] = equivalent_chunk(batch);
        let mean = batch.decode_tokens as f64 / batch.decodes.max(1) as f64;
        let attention = self.attention.at([chunk, past, batch.decodes as f64, mean]);
        Ok(sim_time(
            self.time_without_attention(batch.tokens(), batch.sampled.max(1)) + self.layers * attention,
        ))
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<StepLine, MissingRate> {
        let axis = &self.attention.contexts;
        let mean = tokens / decodes;
        let next = axis.partition_point(|&context| context as u64 <= mean).clamp(1, axis.len() - 1);
        let ends = [axis[next - 1], axis[next]];
        let [low, high] =
            ends.map(|context| self.layers * self.attention.at([0.0, 0.0, decodes as f64, context]));
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

/// One chunk, and the tokens before it, that stands for all chunks of a batch. It has as many new
/// tokens and as many attended pairs of tokens as all of them. Several short prompts have fewer
/// pairs than one prompt with all their tokens. They are replaced by one shorter prompt with the
/// same number of pairs.
fn equivalent_chunk(batch: &Batch<'_>) -> [f64; 2] {
    let new: f64 = batch.chunks.iter().map(|chunk| chunk.new as f64).sum();
    let pairs = |new: f64, past: f64| new * past + new * new / 2.0;
    let all: f64 = batch.chunks.iter().map(|chunk| pairs(chunk.new as f64, chunk.past as f64)).sum();
    match all >= pairs(new, 0.0) {
        true => [new, (all - pairs(new, 0.0)) / new.max(1.0)],
        false => [(2.0 * all).sqrt(), 0.0],
    }
}

fn sim_time(microseconds: f64) -> SimTime {
    SimTime::rounding_up(Seconds::new(microseconds * 1e-6), Tick::Picosecond)
}

/// A function of one number, known at points. It is a straight line between them and beyond.
#[derive(Debug, Clone)]
struct Interpolation {
    points: Vec<(f64, f64)>,
}

impl Interpolation {
    /// The sum over a table's layers, each multiplied by its count in `times`, at the points of all
    /// layers.
    fn sum(
        table: &'static str,
        text: &str,
        axis: &str,
        times: impl Fn(&str) -> f64,
    ) -> Result<Self, CsvTableError> {
        let mut layers: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows::<(String, f64, f64)>(table, text, &["layer", axis, "time_us"])? {
            layers.entry(row.0).or_default().push((row.1, row.2));
        }
        let mut sum: Vec<(f64, f64)> = Vec::new();
        let all = layers.values().flatten().map(|point| point.0);
        let mut at: Vec<f64> = all.collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let layers: Vec<(f64, Self)> = layers
            .into_iter()
            .map(|(name, mut points)| {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points.dedup_by(|next, kept| next.0 == kept.0);
                (times(&name), Self { points })
            })
            .collect();
        for x in at {
            sum.push((x, layers.iter().map(|(times, layer)| times * layer.at(x)).sum()));
        }
        Ok(Self { points: sum })
    }

    fn at(&self, x: f64) -> f64 {
        let next = self.points.partition_point(|point| point.0 <= x).clamp(1, self.points.len().max(2) - 1);
        let (Some(&(x0, y0)), Some(&(x1, y1))) = (self.points.get(next - 1), self.points.get(next)) else {
            return self.points.first().map_or(0.0, |point| point.1);
        };
        (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).max(0.0)
    }
}

/// Microseconds of attention in one layer, by tokens of the chunks, tokens before them, decoding
/// sequences, and tokens of each decoding sequence.
#[derive(Debug, Clone)]
struct Attention {
    times: Surface,
    /// The context lengths at which decodes without prompts were measured.
    contexts: Vec<f64>,
}

impl Attention {
    fn read(text: &str) -> Result<Self, CsvTableError> {
        let columns = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"];
        let rows: Vec<(f64, f64, f64, f64, f64)> = rows("attention", text, &columns)?;
        let alone = rows.iter().filter(|row| row.0 == 0.0 && row.2 > 0.0);
        let mut contexts: Vec<f64> = alone.map(|row| row.3.floor()).collect();
        contexts.sort_by(f64::total_cmp);
        contexts.dedup();
        if contexts.len() < 2 {
            let reason =
                "rows with decodes alone (prefill_chunk 0) of at least two lengths are missing".to_owned();
            return Err(CsvTableError { table: "attention", reason });
        }
        let points = rows.iter().map(|row| ([row.0, row.1, row.2, row.3], row.4)).collect();
        Ok(Self { times: Surface::new(points, 0), contexts })
    }

    fn at(&self, point: [f64; 4]) -> f64 {
        match point {
            [0.0, _, 0.0, _] => 0.0,
            _ => self.times.at(&point).max(0.0),
        }
    }
}

/// A function of four numbers, known on a grid in which each value of a number has its own values
/// of the next number. It is a straight line between the nearest values of each number and beyond
/// the last. It is constant below the first.
#[derive(Debug, Clone)]
enum Surface {
    /// The value at a grid point.
    Known(f64),
    /// By the values of the next number, in rising order.
    Along(Vec<(f64, Surface)>),
}

impl Surface {
    /// The surface of points that agree in the numbers before `axis`. Of several points at one
    /// place the first counts.
    fn new(mut points: Vec<([f64; 4], f64)>, axis: usize) -> Self {
        if axis == 4 {
            return Self::Known(points[0].1);
        }
        points.sort_by(|a, b| a.0[axis].total_cmp(&b.0[axis]));
        let alike = points.chunk_by(|a, b| a.0[axis] == b.0[axis]);
        Self::Along(alike.map(|alike| (alike[0].0[axis], Self::new(alike.to_vec(), axis + 1))).collect())
    }

    fn at(&self, point: &[f64]) -> f64 {
        let (along, x, rest) = match (self, point) {
            (Self::Known(value), _) => return *value,
            (Self::Along(along), [x, rest @ ..]) => (along, x, rest),
            (Self::Along(_), []) => unreachable!("a point has a number for each axis"),
        };
        let next = along.partition_point(|(at, _)| at <= x).min(along.len() - 1);
        let Some(low) = next.checked_sub(1) else { return along[0].1.at(rest) };
        let ((x0, low), (x1, high)) = (&along[low], &along[next]);
        let low = low.at(rest);
        if x == x0 { low } else { low + (high.at(rest) - low) * (x - x0) / (x1 - x0) }
    }
}

/// The rows of a table with the header `columns`. Every number must be finite and not negative.
fn rows<R: for<'r> Deserialize<'r> + Numbers>(
    table: &'static str,
    text: &str,
    columns: &[&str],
) -> Result<Vec<R>, CsvTableError> {
    let wrong = |reason: String| CsvTableError { table, reason };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| wrong(error.to_string()))?;
    if !header.iter().eq(columns.iter().copied()) {
        let is = header.iter().collect::<Vec<_>>().join(",");
        return Err(wrong(format!("the header is '{is}' instead of '{}'", columns.join(","))));
    }
    let mut all = Vec::new();
    for row in reader.deserialize::<R>() {
        let row = row.map_err(|error| wrong(error.to_string()))?;
        if !row.numbers().iter().all(|number| (0.0..=LARGEST).contains(number)) {
            return Err(wrong(format!("row {}: a number is not from 0 to {LARGEST}", all.len() + 2)));
        }
        all.push(row);
    }
    match all.is_empty() {
        true => Err(wrong("it has no rows".to_owned())),
        false => Ok(all),
    }
}

/// The numbers of a row.
trait Numbers {
    fn numbers(&self) -> Vec<f64>;
}

impl Numbers for (String, f64, f64) {
    fn numbers(&self) -> Vec<f64> {
        vec![self.1, self.2]
    }
}

impl Numbers for (f64, f64, f64, f64, f64) {
    fn numbers(&self) -> Vec<f64> {
        vec![self.0, self.1, self.2, self.3, self.4]
    }
}
