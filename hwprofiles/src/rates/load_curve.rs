//! How the latency of a memory rises with its load.

use crate::files::{Refusal, refuse_if};
use crate::units::{Provenance, Ratio, Seconds};
use serde::{Deserialize, Serialize};

/// The latency of a memory against the share of its bandwidth that is in use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadCurve {
    /// Where the points came from.
    pub source: Provenance,
    /// The points, by rising utilisation; at least one. Latency never falls with load.
    pub points: Vec<LoadPoint>,
}

/// One point of a [`LoadCurve`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Share of the bandwidth that is in use.
    pub utilisation: Ratio,
    /// Load-to-use latency at that share.
    #[serde(deserialize_with = "crate::units::checked")]
    pub latency: Seconds,
}

impl LoadCurve {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        refuse_if(
            self.points.is_empty(),
            &["points"],
            "the list is empty: give at least one point".to_owned(),
        )?;
        for (index, pair) in self.points.windows(2).enumerate() {
            let index = (index + 1).to_string();
            let path = ["points", index.as_str()];
            let (a, b) = (pair[0], pair[1]);
            let message =
                format!("utilisation {} follows {}: list rising ones", b.utilisation, a.utilisation);
            refuse_if(b.utilisation <= a.utilisation, &path, message)?;
            let message = format!("{} follows {}: latency never falls with load", b.latency, a.latency);
            refuse_if(b.latency < a.latency, &path, message)?;
        }
        Ok(())
    }

    /// The latency at `utilisation`: linear between points, and the nearest point's outside them.
    pub fn at(&self, utilisation: Ratio) -> Seconds {
        let above = self.points.partition_point(|p| p.utilisation < utilisation);
        match (above.checked_sub(1).map(|below| self.points[below]), self.points.get(above)) {
            (Some(a), Some(b)) => {
                let span = b.utilisation.get() - a.utilisation.get();
                let weight = (utilisation.get() - a.utilisation.get()) / span;
                a.latency * (1.0 - weight) + b.latency * weight
            }
            (Some(a), None) => a.latency,
            (None, Some(b)) => b.latency,
            (None, None) => Seconds::ZERO,
        }
    }
}
