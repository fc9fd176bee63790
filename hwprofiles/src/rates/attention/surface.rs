//! A fitted surface: mechanisms, tables of what they leave unexplained, and the width of the band.

use crate::rates::attention::facts::AttentionFacts;
use crate::rates::attention::mechanism::{DECODE, Decode, PREFILL, Prefill};
use crate::rates::attention::shape::{AttentionShape, Phase};
use crate::rates::estimate::Bound;
use crate::rates::fit::lattice::Lattice;
use crate::rates::fit::parameter::{ParameterRow, logarithms};
use crate::rates::fit::reading::SurfaceReading;
use crate::units::DType;
use serde::{Deserialize, Serialize};

/// The time of attention over a KV cache of one number format, as a fitted function of its shape.
///
/// A single query per sequence and several queries run two kernels, whatever the phase is called,
/// and each kernel has its own fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "AttentionSurfaceFile", into = "AttentionSurfaceFile")]
pub struct AttentionSurface {
    file: AttentionSurfaceFile,
    decode: Option<(Decode, Lattice<2>)>,
    prefill: Option<(Prefill, Lattice<4>)>,
    mixed: Option<(Prefill, Lattice<4>)>,
}

/// A surface as files hold it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttentionSurfaceFile {
    pub kv: DType,
    pub facts: AttentionFacts,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode: Option<KernelFit<DecodeNode>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill: Option<KernelFit<PrefillNode>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed: Option<KernelFit<MixedNode>>,
}

/// The fit of one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelFit<Node: Serialize + serde::de::DeserializeOwned> {
    /// Half the width of the 80 % band at measured head shapes, as a logarithm.
    #[serde(deserialize_with = "crate::units::checked")]
    pub spread: f64,
    /// The head shapes that were measured.
    pub heads: HeadShapes,
    #[serde(
        serialize_with = "crate::files::table::serialize",
        deserialize_with = "crate::files::table::deserialize"
    )]
    pub parameters: Vec<ParameterRow>,
    #[serde(
        serialize_with = "crate::files::table::serialize",
        deserialize_with = "crate::files::table::deserialize"
    )]
    pub nodes: Vec<Node>,
}

/// The head shapes of the measured points; each list is rising.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeadShapes {
    pub kv_heads: Vec<u64>,
    /// Query heads per KV head.
    pub groups: Vec<u64>,
    pub head_dims: Vec<u64>,
}

/// A node of decode's table: ln(measured ÷ mechanism), smoothed, at batch · KV heads and keys of
/// one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecodeNode {
    pub units: f64,
    pub tokens: f64,
    pub residual: f64,
}

/// A node of prefill's table, at batch · heads, new tokens, queries per KV head, and all tokens ÷
/// new ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PrefillNode {
    pub units: f64,
    pub new_tokens: f64,
    pub group: f64,
    pub reach: f64,
    pub residual: f64,
}

/// A node of the mixed steps' table, at new tokens and all tokens of the prefill, and sequences and
/// keys of one sequence in the decode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MixedNode {
    pub new_tokens: f64,
    pub tokens: f64,
    pub sequences: f64,
    pub keys: f64,
    pub residual: f64,
}

/// The coordinates of decode's table, as logarithms.
pub(crate) fn decode_place(s: &AttentionShape) -> [f64; 2] {
    [(s.batch as f64 * s.kv_heads as f64).ln(), (s.tokens() as f64).ln()]
}

/// The coordinates of prefill's table, as logarithms.
pub(crate) fn prefill_place(s: &AttentionShape) -> [f64; 4] {
    let (new, heads) = (s.new_tokens as f64, s.heads as f64);
    let units = (s.batch as f64 * heads).ln();
    [units, new.ln(), (heads / s.kv_heads as f64).ln(), (s.tokens() as f64 / new).ln()]
}

/// The coordinates of the mixed steps' table, as logarithms.
pub(crate) fn mixed_place(prefill: &AttentionShape, decode: &AttentionShape) -> [f64; 4] {
    [prefill.batch * prefill.new_tokens, prefill.tokens(), decode.batch, decode.tokens()]
        .map(|x| (x as f64).ln())
}

/// How much the band widens, as a logarithm, per unit of logarithmic distance from what was
/// measured: in the coordinates of a table, in the number of KV heads, in their size, and in their
/// size beyond what kernels are made for.
const FAR: f64 = 0.06;

const FAR_HEADS: f64 = 0.035;

const FAR_DIM: f64 = 0.08;

const FAR_LARGE: f64 = 1.2;

/// How much wider the band of a mixed step is where no mixed step was measured.
const UNMIXED: f64 = 0.2;

const LARGEST_DIM: u64 = 256;

impl HeadShapes {
    /// How much the distance of a head shape adds to the half width of the band, and whether the
    /// shape is within the measured ones.
    fn doubt(&self, s: &AttentionShape) -> (f64, bool) {
        let far = |measured: &[u64], x: u64| {
            let distance = |m: u64| (m as f64 / x as f64).ln().abs();
            match measured.contains(&x) {
                true => 0.0,
                false => measured.iter().map(|&m| distance(m)).fold(f64::INFINITY, f64::min),
            }
        };
        let within = |measured: &[u64], x: u64| {
            measured.first().is_some_and(|&m| m <= x) && measured.last().is_some_and(|&m| m >= x)
        };
        let (dims, group) = (&self.head_dims, s.heads / s.kv_heads.max(1));
        let inside =
            within(&self.kv_heads, s.kv_heads) && within(dims, s.head_dim) && within(&self.groups, group);
        let measured_largest = dims.last().copied().unwrap_or(0).max(LARGEST_DIM);
        let large = match s.head_dim > measured_largest {
            true => (s.head_dim as f64 / measured_largest as f64).ln(),
            false => 0.0,
        };
        let doubt =
            FAR_HEADS * far(&self.kv_heads, s.kv_heads) + FAR_DIM * far(dims, s.head_dim) + FAR_LARGE * large;
        (doubt, inside)
    }
}

impl AttentionSurface {
    /// Whether the kernel of `phase` was fitted.
    pub(crate) fn knows(&self, phase: Phase) -> bool {
        match phase {
            Phase::Decode => self.decode.is_some(),
            Phase::Prefill => self.prefill.is_some(),
        }
    }

    /// The time of a shape that is not empty; `None` where its kernel was not fitted.
    pub(crate) fn at(&self, shape: &AttentionShape) -> Option<SurfaceReading> {
        let single = shape.new_tokens == 1;
        match (&self.decode, &self.prefill, &self.file.decode, &self.file.prefill) {
            (Some((mechanism, lattice)), _, Some(fitted), _) if single => {
                let parts = mechanism.time(shape);
                let (residual, outside) = lattice.at(&decode_place(shape));
                // Where KV is not split another kernel runs, and the table does not hold it.
                let residual = if mechanism.is_unsplit(shape) { 0.0 } else { residual };
                Some(reading(parts.time, residual, parts.bound, outside, &fitted.heads, fitted.spread, shape))
            }
            (_, Some((mechanism, lattice)), _, Some(fitted)) if !single || shape.phase == Phase::Prefill => {
                let parts = mechanism.time(shape);
                let (residual, outside) = lattice.at(&prefill_place(shape));
                Some(reading(parts.time, residual, parts.bound, outside, &fitted.heads, fitted.spread, shape))
            }
            _ => None,
        }
    }

    /// The time of a prefill and a decode in one call, neither empty; `None` where no prefill was
    /// fitted.
    pub(crate) fn at_mixed(
        &self,
        prefill: &AttentionShape,
        decode: &AttentionShape,
    ) -> Option<SurfaceReading> {
        if let (Some((mechanism, lattice)), Some(fitted)) = (&self.mixed, &self.file.mixed) {
            let parts = mechanism.together(prefill, Some(decode));
            let (residual, outside) = lattice.at(&mixed_place(prefill, decode));
            return Some(reading(
                parts.time,
                residual,
                parts.bound,
                outside,
                &fitted.heads,
                fitted.spread,
                prefill,
            ));
        }
        let ((mechanism, lattice), fitted) = (self.prefill.as_ref()?, self.file.prefill.as_ref()?);
        let parts = mechanism.together(prefill, Some(decode));
        let (residual, outside) = lattice.at(&prefill_place(prefill));
        let spread = fitted.spread + UNMIXED;
        let known = reading(parts.time, residual, parts.bound, outside, &fitted.heads, spread, prefill);
        Some(SurfaceReading { inside: false, ..known })
    }

    /// The same surface with a fit of mixed steps.
    pub(super) fn with_mixed(self, mixed: KernelFit<MixedNode>) -> Result<Self, String> {
        Self::try_from(AttentionSurfaceFile { mixed: Some(mixed), ..self.file })
    }

    /// The format of the keys and values, and the device's facts, which the fit started from.
    pub fn kv_and_facts(&self) -> (DType, &AttentionFacts) {
        (self.file.kv, &self.file.facts)
    }

    /// For each parameter of the fitted mechanisms: the kernel, its name, value, and unit (`1` for
    /// a share, factor or exponent).
    pub fn parameters(&self) -> impl Iterator<Item = (Phase, &str, f64, &str)> {
        let decode = self.file.decode.iter().flat_map(|f| &f.parameters).map(|row| (Phase::Decode, row));
        let prefill = self.file.prefill.iter().flat_map(|f| &f.parameters).map(|row| (Phase::Prefill, row));
        decode.chain(prefill).map(|(kernel, row)| (kernel, row.name.as_str(), row.value, row.unit.as_str()))
    }
}

fn reading(
    time: f64,
    residual: f64,
    bound: Bound,
    outside: f64,
    heads: &HeadShapes,
    spread: f64,
    shape: &AttentionShape,
) -> SurfaceReading {
    let (doubt, within) = heads.doubt(shape);
    SurfaceReading {
        time: time * residual.exp(),
        spread: spread + doubt + FAR * outside,
        bound,
        inside: within && outside < 1e-9,
    }
}

fn lattice<const N: usize>(nodes: impl Iterator<Item = ([f64; N], f64)>) -> Result<Lattice<N>, String> {
    let nodes: Vec<_> = nodes.map(|(place, residual)| (place.map(f64::ln), residual)).collect();
    let fine = nodes.iter().all(|(place, residual)| place.iter().chain([residual]).all(|x| x.is_finite()));
    Lattice::from_nodes(&nodes).filter(|_| fine).ok_or_else(|| {
        "the nodes do not fill a lattice: one finite residual at every combination of the coordinates"
            .to_owned()
    })
}

impl TryFrom<AttentionSurfaceFile> for AttentionSurface {
    type Error = String;

    fn try_from(file: AttentionSurfaceFile) -> Result<Self, String> {
        let decode = file.decode.as_ref().map(|fitted| {
            let parameters = logarithms(&fitted.parameters, &DECODE)?;
            let nodes = fitted.nodes.iter().map(|n| ([n.units, n.tokens], n.residual));
            Ok::<_, String>((Decode::new(&file.facts, file.kv, &parameters), lattice(nodes)?))
        });
        let prefill = file.prefill.as_ref().map(|fitted| {
            let parameters = logarithms(&fitted.parameters, &PREFILL)?;
            let nodes = fitted.nodes.iter().map(|n| ([n.units, n.new_tokens, n.group, n.reach], n.residual));
            Ok::<_, String>((Prefill::new(&file.facts, file.kv, &parameters), lattice(nodes)?))
        });
        let mixed = file.mixed.as_ref().map(|fitted| {
            let parameters = logarithms(&fitted.parameters, &PREFILL)?;
            let nodes =
                fitted.nodes.iter().map(|n| ([n.new_tokens, n.tokens, n.sequences, n.keys], n.residual));
            Ok::<_, String>((Prefill::new(&file.facts, file.kv, &parameters), lattice(nodes)?))
        });
        let (decode, prefill, mixed) = (decode.transpose()?, prefill.transpose()?, mixed.transpose()?);
        Ok(Self { file, decode, prefill, mixed })
    }
}

impl From<AttentionSurface> for AttentionSurfaceFile {
    fn from(surface: AttentionSurface) -> Self {
        surface.file
    }
}
