//! Fitting a surface to measured attention.
//!
//! For each kernel, the mechanism's parameters come first, by least squares with priors
//! ([`least_squares`]). What the mechanism leaves unexplained is smoothed over the points
//! ([`Kriging`]) and tabulated. The width of the band follows from how far each point lies from the
//! surface through all others.

use crate::rates::attention::facts::AttentionFacts;
use crate::rates::attention::mechanism::{DECODE, Decode, PREFILL, Prefill};
use crate::rates::attention::mixed::MixedPoint;
use crate::rates::attention::point::AttentionPoint;
use crate::rates::attention::shape::AttentionShape;
use crate::rates::attention::surface::{
    AttentionSurface, AttentionSurfaceFile, DecodeNode, HeadShapes, KernelFit, MixedNode, PrefillNode,
    decode_place, mixed_place, prefill_place,
};
use crate::rates::fit::band::{half_width, rounded};
use crate::rates::fit::kriging::{Covariance, Kriging};
use crate::rates::fit::parameter::{Parameter, priors, rows, six_digits};
use crate::statistics::least_squares;
use crate::units::DType;
use std::collections::BTreeSet;
use std::f64::consts::LN_2;

/// Why points cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AttentionFitError(String);

impl From<String> for AttentionFitError {
    fn from(wrong: String) -> Self {
        Self(wrong)
    }
}

/// Standard deviation of ln(mechanism ÷ measured) that the least squares assume.
const DEVIATION: f64 = 0.06;

/// Distances, as logarithms, over which the unexplained part of decode is alike: a bit more than a
/// doubling in sequences and in length. These lengths are priors.
const DECODE_LENGTHS: [f64; 2] = [1.2 * LN_2, 1.2 * LN_2];

const PREFILL_LENGTHS: [f64; 4] = [1.5 * LN_2, 1.2 * LN_2, 2.5 * LN_2, 1.5 * LN_2];

const MIXED_LENGTHS: [f64; 4] = [1.5 * LN_2, 2.0 * LN_2, 1.5 * LN_2, 1.5 * LN_2];

/// The variance of what the mechanisms leave unexplained. Distances are divided by the lengths
/// above.
const UNEXPLAINED: Covariance = Covariance { variance: 0.0225, length: 1.0, noise: 0.0012 };

/// The most nodes of a table.
const NODES: usize = 5000;

/// The most points that the unexplained part is smoothed over.
const MOST_POINTS: usize = 700;

impl AttentionSurface {
    /// The surface that fits `points` best: attention over a cache in `kv` on a device with these
    /// `facts`.
    ///
    /// # Errors
    /// There are no points, or times of one shape contradict each other.
    pub fn fit(
        kv: DType,
        facts: AttentionFacts,
        points: &[AttentionPoint],
    ) -> Result<Self, AttentionFitError> {
        let points = AttentionPoint::merged(points).map_err(AttentionFitError)?;
        let (single, several): (Vec<_>, Vec<_>) = points.into_iter().partition(|p| p.shape.new_tokens == 1);
        let decode = (!single.is_empty()).then(|| decode(kv, &facts, &single));
        let prefill = (!several.is_empty()).then(|| prefill(kv, &facts, &several));
        Self::try_from(AttentionSurfaceFile { kv, facts, decode, prefill, mixed: None })
            .map_err(AttentionFitError)
    }
}

impl AttentionSurface {
    /// The same surface, fitted to `points` of mixed steps too. There is at least one.
    pub(super) fn fit_mixed(self, points: &[MixedPoint]) -> Result<Self, AttentionFitError> {
        if points.is_empty() {
            return Err(AttentionFitError("there are no mixed steps to fit: give at least one".to_owned()));
        }
        let (kv, facts) = self.kv_and_facts();
        let fitted = mixed(kv, facts, points);
        self.with_mixed(fitted).map_err(AttentionFitError)
    }
}

fn decode(kv: DType, facts: &AttentionFacts, points: &[AttentionPoint]) -> KernelFit<DecodeNode> {
    let new = |logarithms: &[f64]| Decode::new(facts, kv, logarithms);
    let logarithms = parameters(points, &DECODE, |logarithms| {
        let mechanism = new(logarithms);
        move |p: &AttentionPoint| mechanism.time(&p.shape).time / p.time.get()
    });
    let mechanism = new(&logarithms);
    let split: Vec<_> = points.iter().filter(|p| !mechanism.is_unsplit(&p.shape)).copied().collect();
    // If all points are of the unsplit kernel, the table holds zeros.
    let (tabulated, known) = if split.is_empty() { (points, false) } else { (split.as_slice(), true) };
    let residual = |p: &AttentionPoint| {
        if known { (p.time.get() / mechanism.time(&p.shape).time).ln() } else { 0.0 }
    };
    let (nodes, spread) = table(tabulated, |p| decode_place(&p.shape), DECODE_LENGTHS, residual);
    let node = |([units, tokens], residual): ([f64; 2], f64)| DecodeNode { units, tokens, residual };
    let nodes = nodes.into_iter().map(node).collect();
    KernelFit {
        spread,
        heads: heads(points.iter().map(|p| &p.shape)),
        parameters: rows(&DECODE, mechanism.parameters().iter().copied()),
        nodes,
    }
}

fn prefill(kv: DType, facts: &AttentionFacts, points: &[AttentionPoint]) -> KernelFit<PrefillNode> {
    let new = |logarithms: &[f64]| Prefill::new(facts, kv, logarithms);
    let logarithms = parameters(points, &PREFILL, |logarithms| {
        let mechanism = new(logarithms);
        move |p: &AttentionPoint| mechanism.time(&p.shape).time / p.time.get()
    });
    let mechanism = new(&logarithms);
    let residual = |p: &AttentionPoint| (p.time.get() / mechanism.time(&p.shape).time).ln();
    let (nodes, spread) = table(points, |p| prefill_place(&p.shape), PREFILL_LENGTHS, residual);
    let node = |([units, new_tokens, group, reach], residual): ([f64; 4], f64)| PrefillNode {
        units,
        new_tokens,
        group,
        reach,
        residual,
    };
    let nodes = nodes.into_iter().map(node).collect();
    KernelFit {
        spread,
        heads: heads(points.iter().map(|p| &p.shape)),
        parameters: rows(&PREFILL, mechanism.parameters().iter().copied()),
        nodes,
    }
}

/// The fit of mixed steps.
fn mixed(kv: DType, facts: &AttentionFacts, points: &[MixedPoint]) -> KernelFit<MixedNode> {
    let new = |logarithms: &[f64]| Prefill::new(facts, kv, logarithms);
    let logarithms = parameters(points, &PREFILL, |logarithms| {
        let mechanism = new(logarithms);
        move |p: &MixedPoint| mechanism.together(&p.prefill, Some(&p.decode)).time / p.time.get()
    });
    let mechanism = new(&logarithms);
    let residual =
        |p: &MixedPoint| (p.time.get() / mechanism.together(&p.prefill, Some(&p.decode)).time).ln();
    let (nodes, spread) = table(points, |p| mixed_place(&p.prefill, &p.decode), MIXED_LENGTHS, residual);
    let node = |([new_tokens, tokens, sequences, keys], residual): ([f64; 4], f64)| MixedNode {
        new_tokens,
        tokens,
        sequences,
        keys,
        residual,
    };
    let heads = heads(points.iter().map(|p| &p.prefill));
    let nodes = nodes.into_iter().map(node).collect();
    KernelFit { spread, heads, parameters: rows(&PREFILL, mechanism.parameters().iter().copied()), nodes }
}

/// The logarithms of the parameters that fit best. `mechanism` turns logarithms into a function
/// that gives the ratio of the mechanism's time to a point's time.
fn parameters<P, F: Fn(&P) -> f64>(
    points: &[P],
    parameters: &[Parameter],
    mechanism: impl Fn(&[f64]) -> F,
) -> Vec<f64> {
    let residuals = |logarithms: &[f64]| {
        let ratio = mechanism(logarithms);
        points.iter().map(|p| ratio(p).ln() / DEVIATION).collect()
    };
    let found = least_squares(&priors(parameters), residuals);
    // Rounded as in the file, so that a surface reads back unchanged.
    found.into_iter().map(|logarithm| six_digits(logarithm.exp()).ln()).collect()
}

/// The nodes of a table of `residual` with their coordinates, and half the width of the band.
///
/// Of very many points only every second, third, … is used, because the cost grows with the cube of
/// their number.
fn table<P, const N: usize>(
    points: &[P],
    place: impl Fn(&P) -> [f64; N],
    lengths: [f64; N],
    residual: impl Fn(&P) -> f64,
) -> (Vec<([f64; N], f64)>, f64) {
    let scaled = |place: [f64; N]| -> [f64; N] { std::array::from_fn(|i| place[i] / lengths[i]) };
    let stride = points.len().div_ceil(MOST_POINTS);
    let places: Vec<_> = points.iter().map(place).collect();
    let axes = axes(&places);
    let places: Vec<_> = places.into_iter().step_by(stride).collect();
    let values: Vec<_> = points.iter().step_by(stride).map(residual).collect();
    let surface = Kriging::new(UNEXPLAINED, places.iter().map(|&place| scaled(place)).collect(), &values);
    let mut nodes = vec![[0.0; N]];
    for (i, axis) in axes.iter().enumerate() {
        let extended = |node: &[f64; N]| {
            let node = *node;
            axis.iter().map(move |&x| std::array::from_fn(|j| if j == i { x } else { node[j] }))
        };
        nodes = nodes.iter().flat_map(extended).collect();
    }
    let value = |node: [f64; N]| (node, rounded(surface.at(&scaled(node.map(f64::ln)))));
    (nodes.into_iter().map(value).collect(), half_width(surface.left_out().iter()))
}

/// Along each coordinate, doublings from the smallest to the largest value, or fewer steps where
/// there would be too many nodes.
fn axes<const N: usize>(places: &[[f64; N]]) -> [Vec<f64>; N] {
    let range = |i: usize| {
        let along = places.iter().map(|place| place[i]);
        (along.clone().fold(f64::INFINITY, f64::min), along.fold(f64::NEG_INFINITY, f64::max))
    };
    let mut steps: [usize; N] = std::array::from_fn(|i| {
        let (low, high) = range(i);
        ((high - low) / LN_2 - 1e-6).ceil().max(0.0) as usize
    });
    while steps.iter().map(|n| n + 1).product::<usize>() > NODES {
        let most = (0..N).max_by_key(|&i| steps[i]).unwrap_or(0);
        steps[most] = steps[most].div_ceil(2);
    }
    std::array::from_fn(|i| {
        let (low, high) = range(i);
        let at = |step: usize| six_digits((low + (high - low) * step as f64 / steps[i].max(1) as f64).exp());
        (0..=steps[i]).map(at).collect()
    })
}

fn heads<'a>(shapes: impl Iterator<Item = &'a AttentionShape> + Clone) -> HeadShapes {
    let distinct = |value: fn(&AttentionShape) -> u64| {
        shapes.clone().map(value).collect::<BTreeSet<_>>().into_iter().collect()
    };
    HeadShapes {
        kv_heads: distinct(|s| s.kv_heads),
        groups: distinct(|s| s.heads / s.kv_heads),
        head_dims: distinct(|s| s.head_dim),
    }
}
