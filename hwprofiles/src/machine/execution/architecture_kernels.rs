//! An engine's kernels for GPUs of one architecture, and the products that it leaves to a library.

use crate::machine::device::{Device, WidenedProducts};
use crate::rates::GemmRates;
use crate::units::{DType, FlopPerSec, Joules, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An engine's kernels for GPUs of one architecture. What is absent is as on other GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchitectureKernels {
    /// The share of the rate of long 16-bit products that those with quantised weights reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product: Option<Sourced<Ratio>>,
    /// The same as a share of the rate of long products of 8-bit integers, on GPUs that have one:
    /// kernels that multiply blocks as integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integer_product: Option<Sourced<Ratio>>,
    /// The energy that one operation of those products takes. They reach at most what the GPU's
    /// power pays for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub product_energy: Option<Sourced<Joules>>,
    /// The rows with which half of that is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_rate_rows: Option<Sourced<u64>>,
    /// The most rows of a tile of those products. A step of fewer tokens has smaller tiles; the
    /// tokens of an expert are filled up to whole ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tile_rows: Option<Sourced<u64>>,
    /// What each launch costs beyond the part's own, also where all layers are with GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<Sourced<Seconds>>,
    /// The share of a GPU's bandwidth at which its kernels read quantised weights, dequantisation
    /// included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_read: Option<Sourced<Ratio>>,
    /// The share of the GPU's bandwidth at which its kernels read other weights, in the place of
    /// [`float_read`](super::EngineExecution::float_read).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub float_read: Option<Sourced<Ratio>>,
    /// What is left of `product` with weights of a format, where they differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub formats: BTreeMap<DType, Sourced<Ratio>>,
    /// Products of more rows that a library computes in 16 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub widened: Option<LibraryProducts>,
    /// What each matrix of each expert of a prompt takes, where they are computed one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert: Option<Sourced<Seconds>>,
    /// The share of a GPU's bandwidth at which the state of a recurrence is read and written for
    /// each token of a prompt, where tokens are computed one after the other and not in chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<Sourced<Ratio>>,
    /// The share of a GPU's attention rate where it computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<Sourced<Ratio>>,
    /// The energy that one operation of the attention of prompts takes where all layers are with
    /// GPUs. On those whose attention was not measured it reaches what their power pays for,
    /// whatever share it has in decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_energy: Option<Sourced<Joules>>,
    /// The same where the attention of prompts is not one kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfused_attention: Option<Sourced<Ratio>>,
    /// Its kernels for another interface, in place of all of these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, ArchitectureKernels>,
}

/// Products that an engine leaves to a library, which computes in 16 bits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryProducts {
    /// The rows from which it does.
    #[serde(deserialize_with = "crate::units::checked")]
    pub from_rows: Sourced<u64>,
    /// The share of the rate of long 16-bit products that the library reaches.
    pub share: Sourced<Ratio>,
}

/// The rate of operations that take `each` of the power of one GPU of the device.
fn rate_within_power(device: &Device, each: Option<&Sourced<Joules>>) -> Option<Sourced<FlopPerSec>> {
    let (power, each) = (device.power.as_ref()?.value * (1.0 / device.ranks() as f64), each?);
    let reason = format!("{power} at {} for each operation ({})", each.value, each.source);
    Some(Sourced::estimated(power.rate_of(each.value) * device.reached_compute(), &reason))
}

/// Attention of prompts at the rate that the GPU's power pays for, in the place of `share` of the
/// rate of long products. Measured attention was within the power when it was measured.
pub(super) fn attend_within_power(
    device: &mut Device,
    each: Option<&Sourced<Joules>>,
    share: Option<&Sourced<Ratio>>,
) {
    let wide = device.fastest_product(DType::Bf16).or_else(|| device.fastest_product(DType::F16));
    let paid = rate_within_power(device, each);
    let (Some(wide), Some(paid)) = (wide, paid) else { return };
    let reached = paid.value.min(wide.value * MOST_OF_PRODUCTS);
    let share = share.map_or(1.0, |share| share.value.get());
    let Some(factor) = Ratio::new(reached / (wide.value * share)) else { return };
    for rates in device.attention.values_mut().filter(|rates| rates.is_estimated()) {
        *rates = rates.with_faster_prefill(factor);
    }
}

/// The most that attention reaches, as a share of the rate that is assumed for long products: one
/// of its two products has sums of 16 bits, which are twice as fast on consumers' GPUs.
const MOST_OF_PRODUCTS: f64 = 1.5;

/// Products of a GPU with quantised weights by the engine's own kernels, or by a library.
pub(super) fn change_products(device: &mut Device, own: &ArchitectureKernels) {
    let wide = device.fastest_product(DType::Bf16).or_else(|| device.fastest_product(DType::F16));
    let integers = device.table(DType::Int8).and_then(GemmRates::fastest);
    let paid = rate_within_power(device, own.product_energy.as_ref());
    let details = &mut device.details;
    let part = |share: Option<&Sourced<Ratio>>, of: &Option<Sourced<FlopPerSec>>| {
        let (share, of) = (share?, of.as_ref()?);
        let reason = format!("{} of {} ({})", share.value, of.value, share.source);
        Some(Sourced::estimated(of.value * share.value.get(), &reason))
    };
    let integer_product = part(own.integer_product.as_ref(), &integers);
    let product = integer_product.or_else(|| part(own.product.as_ref(), &wide));
    if let Some(product) = product {
        details.quantised_product = Some(match paid {
            Some(paid) if paid.value < product.value => paid,
            _ => product,
        });
        details.quantised_formats.clone_from(&own.formats);
        details.half_rate_rows.clone_from(&own.half_rate_rows);
        details.tile_rows.clone_from(&own.tile_rows);
    }
    if let Some(LibraryProducts { from_rows, share }) = &own.widened {
        let rate = part(Some(share), &wide);
        details.widened = rate.map(|rate| WidenedProducts { from_rows: from_rows.clone(), rate });
    }
}
