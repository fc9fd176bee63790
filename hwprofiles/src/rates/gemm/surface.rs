//! A fitted surface: a mechanism, a table of what it leaves unexplained, and the width of the band.

use crate::rates::fit::lattice::Lattice;
use crate::rates::fit::parameter::{self, ParameterRow};
use crate::rates::fit::reading::SurfaceReading;
use crate::rates::gemm::facts::GemmFacts;
use crate::rates::gemm::mechanism::{Mechanism, PARAMETERS};
use crate::units::DType;
use serde::{Deserialize, Serialize};

/// The band widens by this share of itself per unit of logarithmic distance outside the measured
/// region.
const WIDER_OUTSIDE: f64 = 0.3;

/// The time of products of one weight format, as a fitted function of their shape.
///
/// Products with one row run another kernel (matrix × vector) than those with more, so each kind
/// has its own table. From 2 rows up to the smallest measured number above 1, a product takes as
/// long as that number of rows: tiles are not finer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "GemmSurfaceFile", into = "GemmSurfaceFile")]
pub struct GemmSurface {
    dtype: DType,
    facts: GemmFacts,
    spread: f64,
    nodes: Vec<SurfaceNode>,
    mechanism: Mechanism,
    tables: Tables,
}

/// What the mechanism leaves unexplained, for the kernels that were measured.
#[derive(Debug, Clone, PartialEq)]
enum Tables {
    /// Products with one row alone.
    Vector(Lattice<2>),
    /// Products with more rows alone.
    Matrix(Lattice<3>),
    Both(Lattice<2>, Lattice<3>),
}

/// One node of the table: ln(measured ÷ mechanism) at a shape, smoothed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SurfaceNode {
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub residual: f64,
}

/// The coordinates of the tables, in which they are linear.
pub(crate) fn place<const N: usize>(shape: [u64; N]) -> [f64; N] {
    shape.map(|x| (x as f64).ln())
}

impl GemmSurface {
    /// A surface from its parts. `spread` is half the width of the 80 % band inside the measured
    /// region, as a logarithm. `None` unless the nodes fill a lattice.
    pub(crate) fn new(
        dtype: DType,
        facts: GemmFacts,
        mechanism: Mechanism,
        spread: f64,
        nodes: Vec<SurfaceNode>,
    ) -> Option<Self> {
        let of_vector = |n: &SurfaceNode| (place([n.n, n.k]), n.residual);
        let of_matrix = |n: &SurfaceNode| (place([n.m, n.n, n.k]), n.residual);
        let vectors: Vec<_> = nodes.iter().filter(|n| n.m == 1).map(of_vector).collect();
        let matrices: Vec<_> = nodes.iter().filter(|n| n.m != 1).map(of_matrix).collect();
        let tables = match (Lattice::from_nodes(&vectors), Lattice::from_nodes(&matrices)) {
            (Some(vector), Some(matrix)) => Tables::Both(vector, matrix),
            (Some(vector), None) if matrices.is_empty() => Tables::Vector(vector),
            (None, Some(matrix)) if vectors.is_empty() => Tables::Matrix(matrix),
            _ => return None,
        };
        Some(Self { dtype, facts, spread, nodes, mechanism, tables })
    }

    /// The time of a product, all dimensions at least 1.
    pub(crate) fn at(&self, m: u64, n: u64, k: u64) -> SurfaceReading {
        let (seconds, bound) = self.mechanism.time(m, n, k);
        let [row, column, depth] = place([m, n, k]);
        let (residual, outside) = match &self.tables {
            Tables::Both(vector, _) if m == 1 => vector.at(&[column, depth]),
            Tables::Matrix(matrix) | Tables::Both(_, matrix) => {
                matrix.at(&[if m > 1 { row.max(matrix.first(0)) } else { row }, column, depth])
            }
            Tables::Vector(vector) => {
                let (residual, outside) = vector.at(&[column, depth]);
                (residual, outside + row)
            }
        };
        SurfaceReading {
            time: seconds * residual.exp(),
            spread: self.spread * (1.0 + WIDER_OUTSIDE * outside),
            bound,
            inside: outside <= 0.0,
        }
    }

    /// Half the width of the 80 % band inside the measured region, as a share of the time.
    pub fn spread(&self) -> f64 {
        self.spread.exp() - 1.0
    }

    /// For each parameter of the fitted mechanism: its name, value, and unit (`1` for a share).
    pub fn parameters(&self) -> impl Iterator<Item = (&'static str, f64, &'static str)> {
        PARAMETERS.iter().zip(&self.mechanism.parameters).map(|(p, value)| (p.name, value.exp(), p.unit))
    }
}

/// A surface as files hold it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GemmSurfaceFile {
    weights: DType,
    facts: GemmFacts,
    #[serde(deserialize_with = "crate::units::checked")]
    spread: f64,
    #[serde(
        serialize_with = "crate::files::table::serialize",
        deserialize_with = "crate::files::table::deserialize"
    )]
    parameters: Vec<ParameterRow>,
    #[serde(
        serialize_with = "crate::files::table::serialize",
        deserialize_with = "crate::files::table::deserialize"
    )]
    nodes: Vec<SurfaceNode>,
}

impl From<GemmSurface> for GemmSurfaceFile {
    fn from(surface: GemmSurface) -> Self {
        Self {
            weights: surface.dtype,
            facts: surface.facts,
            spread: surface.spread,
            parameters: parameter::rows(&PARAMETERS, surface.parameters().map(|(_, value, _)| value)),
            nodes: surface.nodes,
        }
    }
}

impl TryFrom<GemmSurfaceFile> for GemmSurface {
    type Error = String;

    fn try_from(file: GemmSurfaceFile) -> Result<Self, String> {
        let parameters = parameter::logarithms(&file.parameters, &PARAMETERS)?;
        if let Some(node) = file.nodes.iter().find(|n| !n.residual.is_finite()) {
            return Err(format!("the node at {},{},{} has no finite residual", node.m, node.n, node.k));
        }
        let mechanism = Mechanism::new(&file.facts, file.weights, parameters);
        Self::new(file.weights, file.facts, mechanism, file.spread, file.nodes).ok_or_else(|| {
            "the nodes do not fill a lattice: one node at every combination of m, n and k".to_owned()
        })
    }
}
