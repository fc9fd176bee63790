//! The band of a fitted surface, by what it says of points that were left out.

/// Half the width of the band, as a logarithm, where there are too few points to tell. A prior.
const UNKNOWN: f64 = 0.4;

/// With fewer points the width is not known.
const FEWEST: usize = 12;

/// The share of points inside the band.
const INSIDE: f64 = 0.8;

/// New shapes lie a quarter further from the surface than a left-out point, because a regular grid
/// does not show everything between its points.
const UNSEEN: f64 = 1.25;

/// Half the width of the band, as a logarithm. `left_out` are the logarithms of measured ÷ fitted
/// time of points that the surface was made without.
pub(crate) fn half_width<'a>(left_out: impl Iterator<Item = &'a f64>) -> f64 {
    let mut distances: Vec<f64> = left_out.map(|distance| distance.abs()).collect();
    if distances.len() < FEWEST {
        return UNKNOWN;
    }
    distances.sort_by(f64::total_cmp);
    rounded(UNSEEN * distances[((distances.len() - 1) as f64 * INSIDE).round() as usize])
}

/// Rounded to four decimals of a logarithm, a hundredth of a per cent.
pub(crate) fn rounded(logarithm: f64) -> f64 {
    (logarithm * 1e4).round() / 1e4
}
