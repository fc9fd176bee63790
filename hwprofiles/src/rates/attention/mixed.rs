//! Mixed steps: a chunk of a prompt and decodes of other sequences in one call.

use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::units::Seconds;
use serde::{Deserialize, Serialize};

/// One measured call that computed a prefill and a decode together, both with the same heads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MixedRow", into = "MixedRow")]
pub struct MixedPoint {
    /// The chunk of a prompt.
    pub prefill: AttentionShape,
    /// The sequences that decode at the same time.
    pub decode: AttentionShape,
    /// Median time of the call, without the fork-join or launch.
    pub time: Seconds,
}

/// One row of the table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixedRow {
    batch: u64,
    new_tokens: u64,
    past_tokens: u64,
    decode_batch: u64,
    decode_past_tokens: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    #[serde(with = "crate::files::table::microseconds")]
    time_us: Seconds,
}

impl TryFrom<MixedRow> for MixedPoint {
    type Error = String;

    fn try_from(row: MixedRow) -> Result<Self, String> {
        let prefill = AttentionShape {
            phase: Phase::Prefill,
            batch: row.batch,
            new_tokens: row.new_tokens,
            past_tokens: row.past_tokens,
            heads: row.heads,
            kv_heads: row.kv_heads,
            head_dim: row.head_dim,
        };
        let decode = AttentionShape {
            phase: Phase::Decode,
            batch: row.decode_batch,
            new_tokens: 1,
            past_tokens: row.decode_past_tokens,
            ..prefill
        };
        AttentionPoint::new(prefill, row.time_us)?;
        AttentionPoint::new(decode, row.time_us).map_err(|wrong| format!("decode: {wrong}"))?;
        Ok(Self { prefill, decode, time: row.time_us })
    }
}

impl From<MixedPoint> for MixedRow {
    fn from(MixedPoint { prefill, decode, time }: MixedPoint) -> Self {
        Self {
            batch: prefill.batch,
            new_tokens: prefill.new_tokens,
            past_tokens: prefill.past_tokens,
            decode_batch: decode.batch,
            decode_past_tokens: decode.past_tokens,
            heads: prefill.heads,
            kv_heads: prefill.kv_heads,
            head_dim: prefill.head_dim,
            time_us: time,
        }
    }
}
