//! How points are sampled, summarised and recorded.

pub(crate) mod clock;
pub(crate) mod experiment;
pub(crate) mod extent;
pub(crate) mod late_points;
pub(crate) mod options;
pub(crate) mod record;
pub(crate) mod rig;
pub(crate) mod sample_summary;
pub(crate) mod series;
