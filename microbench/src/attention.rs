//! Attention over a KV cache that comes from memory (decode) or was just written (prefill).

use crate::Error;
use crate::arena::random_buffer;
use crate::experiment::{Experiment, expect};
use crate::extent::Extent;
use crate::record::{Points, Record, threads, without_launch};
use crate::rig::Rig;
use crate::series::Series;
use hwprofiles::{AttentionPoint, AttentionRates, AttentionShape, DType, Host, Seconds};
use kernels::{Buffer, KvCache, KvShape, Pool, Scratch, Span};

/// The attention of one KV format in a model of 16 heads over 4 KV heads of 64 values.
///
/// Between two steps of a decode all weights and the other layers' caches are read, so each call takes another
/// cache of an arena larger than the machine's caches. In prefill the keys and values were written a moment ago:
/// there it is always the same cache.
#[derive(Debug)]
pub(crate) struct Attention {
    dtype: DType,
    q: Buffer,
    out: Buffer,
    scratch: Scratch,
    points: Vec<Point>,
}

#[derive(Debug)]
struct Point {
    phase: Phase,
    /// Index of the team, and its size.
    team: (usize, usize),
    series: Series,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// One new token for each sequence of so many tokens, the new one included.
    Decode { sequences: usize, tokens: usize },
    /// One prompt.
    Prefill { tokens: usize },
}

const HEADS: usize = 16;
const KV_HEADS: usize = 4;
const HEAD_DIM: usize = 64;
const WIDTH: usize = HEADS * HEAD_DIM;
/// 1 / √head dim.
const SCALE: f32 = 0.125;

impl Attention {
    /// For a cache in `dtype` (f32 or bf16), and the contexts, prompts and teams of `extent`.
    pub fn new(rig: &Rig<'_>, dtype: DType, extent: &Extent) -> Result<Self, Error> {
        let decode = extent.decode.iter().map(|&(sequences, tokens)| Phase::Decode { sequences, tokens });
        let prefill = extent.prompts.iter().map(|&tokens| Phase::Prefill { tokens });
        let mut points = Vec::new();
        for phase in decode.chain(prefill) {
            for team in rig.teams.iter().map(Pool::members).enumerate() {
                points.push(Point { phase, team, series: Series::default() });
            }
        }
        let rows = points.iter().map(|p| p.phase.rows()).max().unwrap_or(0);
        let scratch = |p: &Point| {
            kernels::attention::scratch_bytes(p.team.1, HEADS, p.phase.shape(dtype), p.phase.spans().len())
        };
        Ok(Self {
            dtype,
            q: random_buffer(rows * WIDTH, 6)?,
            out: random_buffer(rows * WIDTH, 7)?,
            scratch: Scratch::unaccounted(points.iter().map(scratch).max().unwrap_or(0))?,
            points,
        })
    }

    /// Whether one call at this point would take too long, judged by the measured prompt of fewer tokens.
    fn takes_too_long(&self, point: &Point, rig: &Rig<'_>) -> bool {
        let Phase::Prefill { tokens } = point.phase else { return false };
        let shorter = self.points.iter().filter(|p| p.team == point.team).filter_map(|p| match p.phase {
            Phase::Prefill { tokens: fewer } if fewer < tokens => Some((fewer, p.series.summary()?)),
            _ => None,
        });
        let Some((fewer, summary)) = shorter.max_by_key(|(fewer, _)| *fewer) else { return false };
        summary.median * (tokens as f64 / fewer as f64).powi(2) > rig.longest
    }

    /// The rates of one team, where both phases have points.
    fn rates(&self, team: usize, launch: f64, record: &mut Record<'_>) -> Option<AttentionRates> {
        let (mut points, mut labels) = (Vec::new(), Points::default());
        for point in self.points.iter().filter(|p| p.team.1 == team) {
            let Some(summary) = point.series.summary() else { continue };
            let time = Seconds::new(without_launch(summary.median, launch));
            labels.add(point.phase.to_string(), summary);
            points.push(AttentionPoint { shape: point.phase.measured(), time });
        }
        let has = |phase| points.iter().any(|p| p.shape.phase == phase);
        if !has(hwprofiles::Phase::Decode) || !has(hwprofiles::Phase::Prefill) {
            return None;
        }
        points.sort_by_key(|p| p.shape);
        let source = record.table(&threads(team), labels, None);
        Some(AttentionRates::new(source, points))
    }
}

impl Phase {
    /// Rows of q.
    fn rows(self) -> usize {
        match self {
            Phase::Decode { sequences, .. } => sequences,
            Phase::Prefill { tokens } => tokens,
        }
    }

    fn shape(self, dtype: DType) -> KvShape {
        let (sequences, capacity) = match self {
            Phase::Decode { sequences, tokens } => (sequences, tokens),
            Phase::Prefill { tokens } => (1, tokens),
        };
        KvShape { dtype, sequences, kv_heads: KV_HEADS, capacity, head_dim: HEAD_DIM }
    }

    fn spans(self) -> Vec<Span> {
        match self {
            Phase::Decode { sequences, tokens } => {
                (0..sequences).map(|sequence| Span { sequence, past: tokens - 1, new: 1 }).collect()
            }
            Phase::Prefill { tokens } => vec![Span { sequence: 0, past: 0, new: tokens }],
        }
    }

    /// The same in a profile's words.
    fn measured(self) -> AttentionShape {
        let (phase, batch, new_tokens, past_tokens) = match self {
            Phase::Decode { sequences, tokens } => (hwprofiles::Phase::Decode, sequences, 1, tokens - 1),
            Phase::Prefill { tokens } => (hwprofiles::Phase::Prefill, 1, tokens, 0),
        };
        AttentionShape {
            phase,
            batch: batch as u64,
            new_tokens: new_tokens as u64,
            past_tokens: past_tokens as u64,
            heads: HEADS as u64,
            kv_heads: KV_HEADS as u64,
            head_dim: HEAD_DIM as u64,
        }
    }

    /// Bytes of keys and values.
    fn kv_bytes(self, dtype: DType) -> usize {
        2 * self.shape(dtype).bytes()
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Phase::Decode { sequences, tokens } => write!(f, "decode of {sequences} × {tokens} tokens"),
            Phase::Prefill { tokens } => write!(f, "prefill of {tokens} tokens"),
        }
    }
}

impl Experiment for Attention {
    fn what(&self) -> String {
        format!("attention over {}", self.dtype)
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), Error> {
        if self.takes_too_long(&self.points[point], rig) {
            return Ok(());
        }
        let Self { dtype, q, out, scratch, points } = self;
        let mut caches = rig.arena(*dtype);
        let Point { phase, team, series } = &mut points[point];
        let (pool, shape, spans) = (&rig.teams[team.0], phase.shape(*dtype), phase.spans());
        let len = phase.rows() * WIDTH;
        let (q, out) = (&q.view()[..len], &mut out.view_mut()[..len]);
        if series.is_empty() {
            let bytes = caches.next(phase.kv_bytes(*dtype));
            let cache = cache(shape, bytes)?;
            rig.subject.attention(pool, HEADS, SCALE, out, q, cache, &spans, scratch);
            let what = || format!("attention over {dtype}, {phase}, by {}", threads(team.1));
            verify(what, shape, &spans, q, bytes, out)?;
        }
        let mut failed = Ok(());
        series.visit(rig, || {
            let bytes = match phase {
                Phase::Decode { .. } => caches.next(phase.kv_bytes(*dtype)),
                Phase::Prefill { .. } => caches.first(phase.kv_bytes(*dtype)),
            };
            match cache(shape, bytes) {
                Ok(cache) => rig.subject.attention(pool, HEADS, SCALE, out, q, cache, &spans, scratch),
                Err(error) => failed = Err(error),
            }
        });
        failed
    }

    fn fill(&self, host: &mut Host, record: &mut Record<'_>) {
        for team in &mut host.teams {
            if let Some(rates) = self.rates(team.threads, team.launch.value.get(), record) {
                team.attention.insert(self.dtype, rates);
            }
        }
    }
}

/// The cache whose keys, then values, are `bytes`.
fn cache(shape: KvShape, bytes: &[u8]) -> Result<KvCache<'_>, Error> {
    let (keys, values) = bytes.split_at(shape.bytes());
    Ok(KvCache::new(shape, keys, values)?)
}

/// Compares the last row of every span, for one head, with softmax(scale · q·Kᵀ) · V in double precision.
fn verify(
    what: impl Fn() -> String,
    shape: KvShape,
    spans: &[Span],
    q: &[f32],
    bytes: &[u8],
    out: &[f32],
) -> Result<(), Error> {
    let value = |index: usize| match shape.dtype {
        DType::Bf16 => {
            f32::from_bits(u32::from(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])) << 16)
        }
        _ => f32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * index + byte])),
    };
    let elements = shape.sequences * KV_HEADS * shape.capacity * HEAD_DIM;
    let mut rows = 0;
    for span in spans {
        rows += span.new;
        let head = span.sequence * 5 % HEADS;
        let at = (rows - 1) * WIDTH + head * HEAD_DIM;
        let first = (span.sequence * KV_HEADS + head / (HEADS / KV_HEADS)) * shape.capacity * HEAD_DIM;
        let score = |position: usize| {
            let key = first + position * HEAD_DIM;
            let product =
                (0..HEAD_DIM).map(|i| f64::from(q[at + i]) * f64::from(value(key + i))).sum::<f64>();
            (f64::from(SCALE) * product).exp()
        };
        let weights: Vec<f64> = (0..span.past + span.new).map(score).collect();
        let total: f64 = weights.iter().sum();
        for i in [0, HEAD_DIM - 1] {
            let term = |(position, weight): (usize, &f64)| {
                weight / total * f64::from(value(elements + first + position * HEAD_DIM + i))
            };
            let wanted: f64 = weights.iter().enumerate().map(term).sum();
            expect(&what, f64::from(out[at + i]), wanted, 1e-4)?;
        }
    }
    Ok(())
}
