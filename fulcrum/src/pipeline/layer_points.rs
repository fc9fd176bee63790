//! What tables of an engine's layer times say of a GPU: points of products and attention, the time
//! of a small kernel, all-reduces.

use crate::error::{OrError, Result};
use hwprofiles::statistics::median;
use hwprofiles::{
    AllReduce, Bytes, BytesPerSec, Curve, CurvePoint, GpuPart, LinkPart, MeasuredAllReduce, MeasuredPoints,
    Provenance, Seconds, Sourced,
};
use scenarios::Model;
use sim::serving::TableText;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A table of layer times, by what it measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayerTable {
    /// `layer, tokens, time_us`.
    Dense,
    /// `layer, sequences, time_us`.
    PerSequence,
    /// `prefill_chunk, kv_prefill, n_decode, kv_decode, time_us`.
    Attention,
    /// `tokens, activated_experts, time_us`.
    Experts,
    /// `ranks, bytes, time_us`.
    AllReduce,
}

/// What was read of layer times beside points.
#[derive(Debug, Default)]
pub(crate) struct LayerFacts {
    /// Rows by what they measure, which no point counts.
    pub counts: BTreeMap<String, usize>,
    small_kernels: Vec<f64>,
    all_reduces: Vec<([f64; 2], f64)>,
}

/// Layers that are one small kernel where there are few tokens.
const SMALL_LAYERS: [&str; 5] = ["layernorm", "final_layernorm", "qk_norm", "rotary_emb", "act_fn"];

/// The most tokens with which such a layer's time is that of a small kernel.
const FEW_TOKENS: f64 = 8.0;

impl LayerTable {
    /// The kind of table that has this first line.
    pub fn from_header(text: &str) -> Option<Self> {
        let header = text.lines().next()?.to_lowercase();
        let columns: Vec<_> = header.split(',').map(str::trim).collect();
        let has = |names: &[&str]| names.iter().all(|name| columns.contains(name));
        let kinds = [
            (Self::Dense, &["layer", "tokens", "time_us"] as &[_]),
            (Self::PerSequence, &["layer", "sequences", "time_us"]),
            (Self::Attention, &["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"]),
            (Self::Experts, &["tokens", "activated_experts", "time_us"]),
            (Self::AllReduce, &["ranks", "bytes", "time_us"]),
        ];
        kinds.into_iter().find(|(_, names)| has(names)).map(|(kind, _)| kind)
    }
}

impl LayerFacts {
    /// Adds a table of `model`'s layer times on one of `ranks` GPUs that share each layer. Products
    /// and attention become points.
    pub fn read(
        &mut self,
        kind: LayerTable,
        table: TableText<'_>,
        model: &Model,
        ranks: u64,
        points: &mut MeasuredPoints,
    ) -> Result {
        let rows = match kind {
            LayerTable::Dense => self.products(&table, "tokens", model, ranks)?,
            LayerTable::PerSequence => self.products(&table, "sequences", model, ranks)?,
            LayerTable::Attention => self.attention(&table, model, ranks)?,
            LayerTable::Experts => {
                let rows = table.points(["tokens", "activated_experts"]).or_input()?;
                self.count("experts, which products price", rows.len());
                return Ok(());
            }
            LayerTable::AllReduce => {
                let rows = table.points(["ranks", "bytes"]).or_input()?;
                self.count("all-reduces", rows.len());
                self.all_reduces.extend(rows);
                return Ok(());
            }
        };
        // A table may hold small kernels alone.
        match rows.lines().nth(1) {
            Some(_) => points.read(rows.as_bytes(), table.file).or_input(),
            None => Ok(()),
        }
    }

    fn count(&mut self, what: &str, rows: usize) {
        if rows > 0 {
            *self.counts.entry(what.to_owned()).or_default() += rows;
        }
    }

    /// The products among named layers, as a table of points.
    fn products(
        &mut self,
        table: &TableText<'_>,
        counted: &str,
        model: &Model,
        ranks: u64,
    ) -> Result<String> {
        let mut rows = "dtype,m,n,k,latency_us\n".to_owned();
        let (mut small, mut others) = (0, 0);
        for row in table.layers(counted).or_input()? {
            let shape = match row.layer.as_str() {
                "qkv_proj" => [model.qkv_width() / ranks, model.hidden],
                "o_proj" => [model.hidden, model.context_width() / ranks],
                "gate_up_proj" => [model.up_width() / ranks, model.hidden],
                "down_proj" => [model.hidden, model.intermediate / ranks],
                "lm_head" => [model.vocab / ranks, model.hidden],
                name if SMALL_LAYERS.contains(&name) && row.count <= FEW_TOKENS => {
                    self.small_kernels.push(row.microseconds);
                    small += 1;
                    continue;
                }
                _ => {
                    others += 1;
                    continue;
                }
            };
            let ([n, k], dtype) = (shape, model.dtype);
            let _ = writeln!(rows, "{dtype},{},{n},{k},{}", row.count, row.microseconds);
        }
        self.count("small kernels", small);
        self.count("other layers, which are not fitted", others);
        Ok(rows)
    }

    /// Prompts alone and decodes alone, as a table of points. What both take together is a matter
    /// of the fitted kernel.
    fn attention(&mut self, table: &TableText<'_>, model: &Model, ranks: u64) -> Result<String> {
        let mut rows =
            "phase,batch,new_tokens,past_tokens,heads,kv_heads,head_dim,dtype,latency_us\n".to_owned();
        let heads = [model.heads, model.kv_heads].map(|heads| (heads / ranks).max(1));
        let ([heads, kv_heads], dim, dtype) = (heads, model.head_dim, model.dtype);
        let mut mixed = 0;
        for ([chunk, past, decodes, context], time) in
            table.points(["prefill_chunk", "kv_prefill", "n_decode", "kv_decode"]).or_input()?
        {
            let (phase, batch, new, past) = match (chunk > 0.0, decodes > 0.0) {
                (true, false) => ("prefill", 1.0, chunk, past),
                (false, true) => ("decode", decodes, 1.0, (context - 1.0).max(0.0)),
                _ => {
                    mixed += 1;
                    continue;
                }
            };
            let _ = writeln!(rows, "{phase},{batch},{new},{past},{heads},{kv_heads},{dim},{dtype},{time}");
        }
        self.count("steps of prompts and decodes together, which are not fitted", mixed);
        Ok(rows)
    }

    /// `part` with the time of a small kernel, where some were measured.
    pub fn with_small_kernel(&self, part: GpuPart, source: &Provenance) -> GpuPart {
        let time = median(&self.small_kernels).map(|time| Seconds::new(time * 1e-6));
        let small_kernel = time.map(|value| Sourced { value, source: source.clone() });
        GpuPart { kernel: small_kernel.or(part.kernel.clone()), ..part }
    }

    /// The link between GPUs called `link`, from the all-reduces over the fewest ranks; `None`
    /// without at least two sizes of them.
    ///
    /// The formula is that of [`AllReduce`]: its α is what the smallest sum takes, its β what the
    /// largest takes beyond that.
    pub fn peer_link(&self, link: &str, source: &Provenance) -> Option<LinkPart> {
        let ranks = self.all_reduces.iter().map(|(point, _)| point[0]).filter(|ranks| *ranks >= 2.0);
        let ranks = ranks.reduce(f64::min)?;
        let of_ranks = self.all_reduces.iter().filter(|(point, time)| point[0] == ranks && *time > 0.0);
        let mut sums: Vec<_> = of_ranks.map(|(point, time)| (point[1], time * 1e-6)).collect();
        sums.sort_by(|a, b| a.0.total_cmp(&b.0));
        sums.dedup_by(|next, kept| next.0 == kept.0);
        let (&(_, first), &(bytes, last)) = (sums.first()?, sums.last().filter(|_| sums.len() > 1)?);
        let step = first / (2.0 * ranks.log2());
        let rate = 2.0 * (ranks - 1.0) / ranks * bytes / (last - first).max(last * 0.1);
        fn sourced<T>(value: T, source: &Provenance) -> Sourced<T> {
            Sourced { value, source: source.clone() }
        }
        let rate = || sourced(BytesPerSec::new(rate), source);
        let mut longest = Seconds::ZERO;
        let points = sums.iter().map(|(bytes, time)| {
            longest = longest.max(Seconds::new(*time));
            CurvePoint { size: Bytes::new(*bytes as u64), value: longest }
        });
        let times = Curve { source: source.clone(), points: points.collect() };
        let step = || sourced(Seconds::new(step), source);
        let measured = Some(MeasuredAllReduce { ranks: ranks as u64, times });
        let all_reduce = Some(AllReduce { step: step(), bandwidth: rate(), by_pair: false, measured });
        Some(LinkPart { all_reduce, ..LinkPart::new(link, step(), rate(), rate()) })
    }
}
