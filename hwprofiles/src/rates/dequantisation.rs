//! What it costs to turn quantised weights into numbers that a device multiplies.
//!
//! The cost is a rate of values of a 4-bit format. Other formats take a multiple of it
//! ([`Dequantisation::weight`]). On a GPU the cost comes on top of reading and multiplying: the
//! rate is what published runs take beyond reading the same bytes as fast as 16-bit weights. On a
//! CPU it is the rate of dot products over blocks that lie in the caches, which go on while the
//! next blocks arrive, so the slower of the two counts.
//!
//! A format's multiple follows from llama.cpp's table of Llama-3.1-8B
//! (`tools/quantize/README.md`): the time of a token less its bytes at the rate of F16. That is 3.3
//! ms for 4 bits, 1.4 ms for Q8_0, 2.4 and 3.0 ms for Q5_K_S and Q6_K, 5.7 to 6.1 ms for Q2_K and
//! Q3_K_S, 6.6 ms for IQ3_S and 7.4 to 8.3 ms for IQ2_XXS and IQ1_S.

use crate::units::{DType, Elements, ElementsPerSec, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// The cost of dequantisation on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dequantisation {
    /// Values of a 4-bit format per second, all cores or multiprocessors together.
    #[serde(deserialize_with = "crate::units::checked")]
    pub rate: Sourced<ElementsPerSec>,
    /// Whether it goes on while other weights are read, so that the slower of the two counts;
    /// otherwise both times add up.
    pub overlaps: bool,
}

/// The share of a 4-bit value's time that a value of 8 bits takes: 1.4 of 3.3 ms in llama.cpp's
/// table, 1.5 of 1.9 ms in gpt-fast's.
const EIGHT_BITS: f64 = 0.6;

/// The multiple of a 4-bit value's time that a value of fewer bits takes.
const BELOW_FOUR_BITS: f64 = 2.0;

impl Dequantisation {
    /// The time of one value of `dtype` relative to one of a 4-bit format. Zero for formats that
    /// are numbers as they lie.
    pub fn weight(dtype: DType) -> f64 {
        match dtype {
            DType::F32 | DType::F16 | DType::Bf16 => 0.0,
            dtype if dtype.bits() >= 8.0 => EIGHT_BITS,
            dtype if dtype.bits() >= 4.0 => 1.0,
            _ => BELOW_FOUR_BITS,
        }
    }

    /// The time of `values` values of a format with this [`Dequantisation::weight`].
    pub fn time(&self, weight: f64, values: Elements) -> Seconds {
        values / self.rate.value * weight
    }

    /// The same, faster by `factor`.
    pub(crate) fn faster(&self, factor: Ratio) -> Self {
        let Sourced { value, source } = self.rate.clone();
        Self { rate: Sourced { value: value * factor.get(), source }, ..self.clone() }
    }
}
