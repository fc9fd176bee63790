//! Steps priced by a GPU's measured layer times, as LLMServingSim publishes them: microseconds of each dense layer by
//! tokens, of attention by what is attended to, and of what is done once for each sampled sequence.

use super::batch::{Batch, StepPrices};
use super::line::Line;
use super::picos::Picos;
use hwprofiles::{Missing, Seconds};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Layers that every transformer layer has, and how many of each. The others are there once.
const OF_A_LAYER: [(&str, f64); 8] = [
    ("layernorm", 2.0),
    ("qkv_proj", 1.0),
    ("rotary_emb", 1.0),
    ("o_proj", 1.0),
    ("gate_up_proj", 1.0),
    ("act_fn", 1.0),
    ("down_proj", 1.0),
    ("qk_norm", 2.0),
];

/// A number of a table: tokens, sequences, microseconds. Beyond three hours a layer is none.
const MOST: f64 = 1e10;

/// Tables of layer times.
#[derive(Debug, Clone)]
pub struct LayerTimes {
    /// Microseconds of all dense layers, by tokens.
    dense: Series,
    /// Microseconds of what is done once for each sampled sequence, by sequences.
    sampled: Series,
    attention: Attention,
    layers: f64,
}

/// A table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}: {reason}")]
pub struct TableError {
    /// Which.
    pub table: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl LayerTimes {
    /// The tables of a model of so many layers: `dense` (`layer,tokens,time_us`), `sampled`
    /// (`layer,sequences,time_us`), `attention` (`prefill_chunk,kv_prefill,n_decode,kv_decode,time_us` of one layer).
    ///
    /// # Errors
    /// Names the table and the line of what is missing or is not a time.
    pub fn read(dense: &str, sampled: &str, attention: &str, layers: u64) -> Result<Self, TableError> {
        let times = |name: &str| match OF_A_LAYER.iter().find(|(known, _)| *known == name) {
            Some((_, count)) => count * layers as f64,
            None => 1.0,
        };
        Ok(Self {
            dense: Series::sum("dense", dense, "tokens", times)?,
            sampled: Series::sum("per_sequence", sampled, "sequences", |_| 1.0)?,
            attention: Attention::read(attention)?,
            layers: layers as f64,
        })
    }

    fn beside_attention(&self, tokens: u64, sampled: u64) -> f64 {
        self.dense.at(tokens as f64) + self.sampled.at(sampled as f64)
    }
}

impl StepPrices for LayerTimes {
    fn step(&mut self, batch: &Batch<'_>) -> Result<Picos, Missing> {
        let [chunk, before] = one_chunk(batch);
        let mean = batch.decode_tokens as f64 / batch.decodes.max(1) as f64;
        let attention = self.attention.at([chunk, before, batch.decodes as f64, mean]);
        Ok(picos(self.beside_attention(batch.tokens(), batch.sampled.max(1)) + self.layers * attention))
    }

    fn decode(&mut self, decodes: u64, tokens: u64) -> Result<Line, Missing> {
        let axis = &self.attention.contexts;
        let mean = tokens / decodes;
        let next = axis.partition_point(|&context| context as u64 <= mean).clamp(1, axis.len() - 1);
        let ends = [axis[next - 1], axis[next]];
        let [low, high] =
            ends.map(|context| self.layers * self.attention.at([0.0, 0.0, decodes as f64, context]));
        let [from, until] = ends.map(|context| context as u64 * decodes);
        let beside = self.beside_attention(decodes, decodes);
        let Line { base, per_token, .. } =
            Line::through(from, picos(beside + low), until, picos(beside + high));
        let last = next + 1 == axis.len();
        // Below the first context of the table, the first stretch goes on.
        let (from, base) = match tokens < from {
            true => (tokens, base.saturating_add_signed(-per_token * (from - tokens) as i64)),
            false => (from, base),
        };
        Ok(Line {
            from,
            until: if last && per_token >= 0 { u64::MAX } else { until.max(tokens + 1) },
            base,
            per_token,
        })
    }
}

/// The chunk, and the tokens before it, that stand for all chunks of a batch: as many new tokens with as many pairs of
/// a token and one that it attends to. Several short prompts have fewer pairs than one prompt of as many tokens: there,
/// the one prompt that has as many.
fn one_chunk(batch: &Batch<'_>) -> [f64; 2] {
    let new: f64 = batch.pieces.iter().map(|piece| piece.new as f64).sum();
    let pairs = |new: f64, past: f64| new * past + new * new / 2.0;
    let all: f64 = batch.pieces.iter().map(|piece| pairs(piece.new as f64, piece.past as f64)).sum();
    match all >= pairs(new, 0.0) {
        true => [new, (all - pairs(new, 0.0)) / new.max(1.0)],
        false => [(2.0 * all).sqrt(), 0.0],
    }
}

fn picos(microseconds: f64) -> Picos {
    Picos::rounding_up(Seconds::new(microseconds * 1e-6))
}

/// A function of one number, known at points, straight in between and beyond.
#[derive(Debug, Clone)]
struct Series {
    points: Vec<(f64, f64)>,
}

impl Series {
    /// The sum over a table's layers, each so many `times`, at the points of all of them.
    fn sum(
        table: &'static str,
        text: &str,
        axis: &str,
        times: impl Fn(&str) -> f64,
    ) -> Result<Self, TableError> {
        let mut layers: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows::<(String, f64, f64)>(table, text, &["layer", axis, "time_us"])? {
            layers.entry(row.0).or_default().push((row.1, row.2));
        }
        let mut sum: Vec<(f64, f64)> = Vec::new();
        let all = layers.values().flatten().map(|point| point.0);
        let mut at: Vec<f64> = all.collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        let layers: Vec<(f64, Series)> = layers
            .into_iter()
            .map(|(name, mut points)| {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points.dedup_by(|next, kept| next.0 == kept.0);
                (times(&name), Series { points })
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

/// Microseconds of attention in one layer: by tokens of the chunks, tokens before them, sequences that decode, tokens
/// of each.
#[derive(Debug, Clone)]
struct Attention {
    times: Surface,
    /// The tokens at which sequences that decode alone were measured.
    contexts: Vec<f64>,
}

impl Attention {
    fn read(text: &str) -> Result<Self, TableError> {
        let columns = ["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"];
        let rows: Vec<(f64, f64, f64, f64, f64)> = rows("attention", text, &columns)?;
        let alone = rows.iter().filter(|row| row.0 == 0.0 && row.2 > 0.0);
        let mut contexts: Vec<f64> = alone.map(|row| row.3.floor()).collect();
        contexts.sort_by(f64::total_cmp);
        contexts.dedup();
        if contexts.len() < 2 {
            let reason = "decodes alone (prefill_chunk 0) of two lengths at least are wanted".to_owned();
            return Err(TableError { table: "attention", reason });
        }
        let points = rows.iter().map(|row| ([row.0, row.1, row.2, row.3], row.4)).collect();
        Ok(Self { times: Surface::of(points, 0), contexts })
    }

    fn at(&self, point: [f64; 4]) -> f64 {
        match point {
            [0.0, _, 0.0, _] => 0.0,
            _ => self.times.at(&point).max(0.0),
        }
    }
}

/// A function of several numbers, known on a grid in which each value of a number has its own values of the next one.
/// Straight between the nearest values of each number and beyond the last, level below the first.
#[derive(Debug, Clone)]
enum Surface {
    /// Its value.
    Known(f64),
    /// By the next number, in rising order.
    Along(Vec<(f64, Surface)>),
}

impl Surface {
    /// Of points that agree in the numbers before `axis`; of several at one place, the first.
    fn of(mut points: Vec<([f64; 4], f64)>, axis: usize) -> Self {
        if axis == 4 {
            return Self::Known(points[0].1);
        }
        points.sort_by(|a, b| a.0[axis].total_cmp(&b.0[axis]));
        let alike = points.chunk_by(|a, b| a.0[axis] == b.0[axis]);
        Self::Along(alike.map(|alike| (alike[0].0[axis], Self::of(alike.to_vec(), axis + 1))).collect())
    }

    fn at(&self, point: &[f64]) -> f64 {
        let (Self::Along(along), [x, rest @ ..]) = (self, point) else {
            return match self {
                Self::Known(value) => *value,
                Self::Along(_) => f64::NAN,
            };
        };
        let next = along.partition_point(|(at, _)| at <= x).min(along.len() - 1);
        let Some(low) = next.checked_sub(1) else { return along[0].1.at(rest) };
        let ((x0, low), (x1, high)) = (&along[low], &along[next]);
        let low = low.at(rest);
        if x == x0 { low } else { low + (high.at(rest) - low) * (x - x0) / (x1 - x0) }
    }
}

/// The rows of a table whose header is `columns`, every number of which is finite and not negative.
fn rows<R: for<'r> Deserialize<'r> + Numbers>(
    table: &'static str,
    text: &str,
    columns: &[&str],
) -> Result<Vec<R>, TableError> {
    let wrong = |reason: String| TableError { table, reason };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| wrong(error.to_string()))?;
    if !header.iter().eq(columns.iter().copied()) {
        let is = header.iter().collect::<Vec<_>>().join(",");
        return Err(wrong(format!("the header is '{is}', '{}' is wanted", columns.join(","))));
    }
    let mut all = Vec::new();
    for row in reader.deserialize::<R>() {
        let row = row.map_err(|error| wrong(error.to_string()))?;
        if !row.numbers().iter().all(|number| (0.0..=MOST).contains(number)) {
            return Err(wrong(format!("row {}: numbers from 0 to {MOST} are wanted", all.len() + 2)));
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
