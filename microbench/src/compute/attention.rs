//! Attention over a KV cache that comes from memory (decode) or was just written (prefill).

use crate::error::MeasureError;
use crate::method::experiment::{Experiment, expect};
use crate::method::extent::MeasurementExtent;
use crate::method::late_points::late_points;
use crate::method::record::{MeasurementRecord, TablePoints, threads, without_launch};
use crate::method::rig::{Rig, TeamId};
use crate::method::series::SampleSeries;
use crate::operands::arena::random_buffer;
use crate::operands::kernel_set::AttentionInputs;
use hwprofiles::{AttentionPoint, AttentionRates, AttentionShape, DType, Host, Phase, Seconds};
use kernels::{Buffer, KvCache, KvShape, KvSpan, Scratch};

/// The attention of one KV format, in several groupings of heads, which decide how much work there
/// is for each byte of the cache.
///
/// Between two steps of a decode all weights and the caches of the other layers are read, so each
/// call takes another cache from an arena larger than the machine's caches. In prefill the keys and
/// values were written just before, so every call takes the same cache.
#[derive(Debug)]
pub(crate) struct AttentionExperiment {
    dtype: DType,
    q: Buffer,
    out: Buffer,
    scratch: Scratch,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    call: Call,
    team: TeamId,
    series: SampleSeries,
}

/// The shape of one call.
#[derive(Debug, Clone, Copy)]
struct Call(AttentionShape);

impl AttentionExperiment {
    /// For a cache in `dtype` (f32, bf16, int8 or int2), with the heads, contexts, prompts and
    /// teams of `extent`.
    pub fn new(rig: &Rig<'_>, dtype: DType, extent: &MeasurementExtent) -> Result<Self, MeasureError> {
        let mut points = Vec::new();
        for shape in extent.attention() {
            for team in rig.team_ids() {
                points.push(Point { call: Call(shape), team, series: SampleSeries::default() });
            }
        }
        let most = |of: &dyn Fn(&Point) -> usize| points.iter().map(of).max().unwrap_or(0);
        let values = most(&|p| p.call.values());
        let scratch = most(&|p| {
            let (kv, spans) = (p.call.cache(dtype), p.call.spans().len());
            kernels::attention::scratch_bytes(p.team.threads, p.call.heads(), kv, spans)
        });
        Ok(Self {
            dtype,
            q: random_buffer(values, 6)?,
            out: random_buffer(values, 7)?,
            scratch: Scratch::unaccounted(scratch)?,
            points,
        })
    }

    /// Whether one call at this point would take too long, estimated from a measured prompt of
    /// fewer tokens.
    fn takes_too_long(&self, point: &Point, rig: &Rig<'_>) -> bool {
        let wanted = point.call.0;
        if wanted.phase == Phase::Decode {
            return false;
        }
        let shorter = self.points.iter().filter_map(|p| {
            let alike = AttentionShape { new_tokens: wanted.new_tokens, ..p.call.0 } == wanted;
            let known = p.series.summary().filter(|_| alike && p.team == point.team)?;
            (p.call.0.new_tokens < wanted.new_tokens).then_some((p.call.0.new_tokens, known.median))
        });
        let Some((fewer, time)) = shorter.max_by_key(|(fewer, _)| *fewer) else { return false };
        time * (wanted.new_tokens as f64 / fewer as f64).powi(2) > rig.longest
    }

    /// The rates of one team, where both phases have points.
    fn rates(&self, team: usize, launch: f64, record: &mut MeasurementRecord<'_>) -> Option<AttentionRates> {
        let (mut points, mut labels) = (Vec::new(), TablePoints::default());
        for point in self.points.iter().filter(|p| p.team.threads == team) {
            let Some(summary) = point.series.summary() else { continue };
            let time = Seconds::new(without_launch(summary.median, launch));
            labels.add(point.call.0.to_string(), summary);
            points.push(AttentionPoint { shape: point.call.0, time });
        }
        let has = |phase| points.iter().any(|p| p.shape.phase == phase);
        if !has(Phase::Decode) || !has(Phase::Prefill) {
            return None;
        }
        points.sort_by_key(|p| p.shape);
        let source = record.table(&threads(team), labels, None);
        Some(AttentionRates::new(source, points))
    }
}

impl Point {
    /// Whether its call has as many sequences, tokens and heads as that of `less`, or more, for no
    /// more threads.
    fn does_more(&self, less: &Self) -> bool {
        let sizes = |AttentionShape { batch, new_tokens, past_tokens, heads, kv_heads, head_dim, .. }| {
            [batch, new_tokens, past_tokens, heads, kv_heads, head_dim]
        };
        let (ours, theirs) = (self.call.0, less.call.0);
        let as_large = sizes(ours).iter().zip(sizes(theirs)).all(|(ours, theirs)| *ours >= theirs);
        ours.phase == theirs.phase && as_large && self.team.threads <= less.team.threads
    }
}

impl Call {
    fn heads(self) -> usize {
        self.0.heads as usize
    }

    /// Query heads that share one head of keys and values.
    fn group(self) -> usize {
        (self.0.heads / self.0.kv_heads) as usize
    }

    /// Values of one row of q.
    fn width(self) -> usize {
        (self.0.heads * self.0.head_dim) as usize
    }

    /// All values of q.
    fn values(self) -> usize {
        (self.0.batch * self.0.new_tokens) as usize * self.width()
    }

    /// 1 / √head dim.
    fn scale(self) -> f32 {
        1.0 / (self.0.head_dim as f32).sqrt()
    }

    /// The shape of a cache of exactly its tokens.
    fn cache(self, dtype: DType) -> KvShape {
        KvShape {
            dtype,
            sequences: self.0.batch as usize,
            kv_heads: self.0.kv_heads as usize,
            capacity: (self.0.past_tokens + self.0.new_tokens) as usize,
            head_dim: self.0.head_dim as usize,
        }
    }

    fn spans(self) -> Vec<KvSpan> {
        let (past, new) = (self.0.past_tokens as usize, self.0.new_tokens as usize);
        (0..self.0.batch as usize).map(|sequence| KvSpan { sequence, past, new }).collect()
    }
}

impl Experiment for AttentionExperiment {
    fn name(&self) -> String {
        format!("attention over {}", self.dtype)
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        if self.takes_too_long(&self.points[point], rig) {
            return Ok(());
        }
        let Self { dtype, q, out, scratch, points } = self;
        let mut caches = rig.cache(*dtype);
        let Point { call, team, series } = &mut points[point];
        let (pool, shape, spans) = (rig.team(*team), call.cache(*dtype), call.spans());
        let (heads, scale, bytes) = (call.heads(), call.scale(), 2 * shape.bytes());
        let (q, out) = (&q.view()[..call.values()], &mut out.view_mut()[..call.values()]);
        if series.is_empty() {
            let bytes = caches.next(bytes);
            let cache = cache(shape, bytes)?;
            let operands = AttentionInputs { heads, scale, q, cache, spans: &spans };
            rig.subject.attention(pool, out, operands, scratch);
            let kernel = || format!("attention over {dtype}, {}, by {}", call.0, threads(team.threads));
            verify(kernel, *call, shape, q, bytes, out)?;
        }
        let mut failed = Ok(());
        series.visit(rig, || {
            let bytes = match call.0.phase {
                Phase::Decode => caches.next(bytes),
                Phase::Prefill => caches.first(bytes),
            };
            match cache(shape, bytes) {
                Ok(cache) => {
                    let operands = AttentionInputs { heads, scale, q, cache, spans: &spans };
                    rig.subject.attention(pool, out, operands, scratch);
                }
                Err(error) => failed = Err(error),
            }
        });
        failed
    }

    fn doubtful(&self) -> Vec<usize> {
        late_points(&self.points, |point| Some(point.series.summary()?.median), Point::does_more)
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        for team in &mut host.teams {
            if let Some(rates) = self.rates(team.threads, team.launch.value.get(), record) {
                team.attention.insert(self.dtype, rates);
            }
        }
    }
}

/// A cache of keys, then values, in `bytes`.
fn cache(shape: KvShape, bytes: &[u8]) -> Result<KvCache<'_>, MeasureError> {
    let (keys, values) = bytes.split_at(shape.bytes());
    Ok(KvCache::new(shape, keys, values)?)
}

/// Compares the last row of every sequence, for one head, with softmax(scale · q·Kᵀ) · V in double
/// precision.
fn verify(
    kernel: impl Fn() -> String,
    call: Call,
    shape: KvShape,
    q: &[f32],
    bytes: &[u8],
    out: &[f32],
) -> Result<(), MeasureError> {
    let (dim, tokens, row_bytes) = (shape.head_dim, shape.capacity, shape.row_bytes());
    let row = |index: usize| {
        let mut values = vec![0.0; dim];
        shape.read_row(&bytes[index * row_bytes..][..row_bytes], &mut values);
        values
    };
    // All rows of keys come first, then all rows of values.
    let keys = shape.sequences * shape.kv_heads * tokens;
    for sequence in 0..shape.sequences {
        let (token, head) = ((sequence + 1) * call.0.new_tokens as usize - 1, sequence * 5 % call.heads());
        let at = token * call.width() + head * dim;
        let first = (sequence * shape.kv_heads + head / call.group()) * tokens;
        let score = |position: usize| {
            let key = row(first + position);
            let product = (0..dim).map(|i| f64::from(q[at + i]) * f64::from(key[i])).sum::<f64>();
            (f64::from(call.scale()) * product).exp()
        };
        let weights: Vec<f64> = (0..tokens).map(score).collect();
        let total: f64 = weights.iter().sum();
        let mut wanted = [0.0; 2];
        for (position, weight) in weights.iter().enumerate() {
            let value = row(keys + first + position);
            wanted[0] += weight / total * f64::from(value[0]);
            wanted[1] += weight / total * f64::from(value[dim - 1]);
        }
        for (i, wanted) in [0, dim - 1].into_iter().zip(wanted) {
            expect(&kernel, f64::from(out[at + i]), wanted, 1e-4)?;
        }
    }
    Ok(())
}
