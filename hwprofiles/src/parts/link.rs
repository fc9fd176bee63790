//! A link between host memory and a device's memory.

use crate::files::{Refusal, refuse_if};
use crate::machine::LinkDetails;
use crate::rates::{AllReduce, Curve, check_times};
use crate::units::{BytesPerSec, Ratio, Seconds, Sourced};
use serde::{Deserialize, Serialize};

/// A link. A transfer of B bytes takes α + B / β, or the time of its measured curve.
///
/// α and β are for page-locked host memory on the socket that the link is attached to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    /// Its name, the first key of the file.
    pub link: String,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The rate on the wire, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::checked_option")]
    pub raw: Option<Sourced<BytesPerSec>>,
    /// α of a transfer, either way.
    pub latency: Sourced<Seconds>,
    /// β from host to device.
    #[serde(deserialize_with = "crate::units::checked")]
    pub to_device: Sourced<BytesPerSec>,
    /// β from device to host.
    #[serde(deserialize_with = "crate::units::checked")]
    pub to_host: Sourced<BytesPerSec>,
    /// Measured times from host to device against bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_device_times: Option<Curve<Seconds>>,
    /// Measured times from device to host against bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_host_times: Option<Curve<Seconds>>,
    /// β of host memory that is not page-locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pageable: Option<DirectionRates>,
    /// β of page-locked memory on the other socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<DirectionRates>,
    /// Each direction's rate under opposing traffic divided by its rate alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<Sourced<Ratio>>,
    /// Bytes of host memory traffic per byte moved, which a DMA takes from the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_traffic: Option<Sourced<Ratio>>,
    /// For a link between GPUs: what all-reduces over them take. Where absent, a step takes
    /// `latency` and runs at `to_device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_reduce: Option<AllReduce>,
}

/// α of a link of which only the rate was said: that of the shipped PCIe links.
const USUAL_LATENCY: Seconds = Seconds::new(6e-6);

/// A rate each way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionRates {
    /// From host to device.
    #[serde(deserialize_with = "crate::units::checked")]
    pub to_device: Sourced<BytesPerSec>,
    /// From device to host.
    #[serde(deserialize_with = "crate::units::checked")]
    pub to_host: Sourced<BytesPerSec>,
}

impl LinkPart {
    /// A link of which only α and β are known.
    pub fn new(
        link: &str,
        latency: Sourced<Seconds>,
        to_device: Sourced<BytesPerSec>,
        to_host: Sourced<BytesPerSec>,
    ) -> Self {
        Self {
            link: link.to_owned(),
            note: None,
            raw: None,
            latency,
            to_device,
            to_host,
            to_device_times: None,
            to_host_times: None,
            pageable: None,
            far: None,
            duplex: None,
            dram_traffic: None,
            all_reduce: None,
        }
    }

    /// The link that is said by what copies reach each way, and its latency where that is known:
    /// `120 GB/s` or `120 GB/s, 1 us`. `None` for a name.
    pub(crate) fn stated(text: &str) -> Option<Self> {
        let (rate, latency) = text.split_once(',').map_or((text, None), |(rate, rest)| (rate, Some(rest)));
        let rate: BytesPerSec = rate.trim().parse().ok().filter(|rate| *rate > BytesPerSec::new(0.0))?;
        let said = "as stated by the person asking";
        let latency = match latency {
            Some(latency) => Sourced::estimated(latency.trim().parse().ok()?, said),
            None => Sourced::estimated(USUAL_LATENCY, "α of an asynchronous copy over PCIe"),
        };
        let rate = Sourced::estimated(rate, said);
        Some(Self::new(text, latency, rate.clone(), rate))
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let ways = [("to_device", &self.to_device), ("to_host", &self.to_host)];
        for (way, near) in ways {
            let (near, raw) = (near.value, self.raw.as_ref().map(|raw| raw.value));
            if let Some(raw) = raw {
                refuse_if(near > raw, &[way, "value"], format!("{near} is more than the {raw} on the wire"))?;
            }
            for (kind, rates) in [("far", &self.far), ("pageable", &self.pageable)] {
                let Some(rates) = rates else { continue };
                let rate = if way == "to_device" { rates.to_device.value } else { rates.to_host.value };
                let message =
                    format!("{rate} is more than the {near} of page-locked memory on the near socket");
                refuse_if(rate > near, &[kind, way, "value"], message)?;
            }
        }
        if let Some(duplex) = &self.duplex {
            let message = format!("{} is above 1: opposing traffic never makes a link faster", duplex.value);
            refuse_if(duplex.value > Ratio::ONE, &["duplex", "value"], message)?;
        }
        for (key, times) in
            [("to_device_times", &self.to_device_times), ("to_host_times", &self.to_host_times)]
        {
            if let Some(times) = times {
                check_times(times).map_err(|refusal| refusal.under(key))?;
            }
        }
        Ok(())
    }

    /// Facts of the link from host to device beyond α and β.
    pub(crate) fn details_to_device(&self) -> LinkDetails {
        LinkDetails {
            times: self.to_device_times.clone(),
            pageable: self.pageable.as_ref().map(|rates| rates.to_device.clone()),
            far: self.far.as_ref().map(|rates| rates.to_device.clone()),
            ..self.both_ways()
        }
    }

    /// Facts of the link from device to host beyond α and β.
    pub(crate) fn details_to_host(&self) -> LinkDetails {
        LinkDetails {
            times: self.to_host_times.clone(),
            pageable: self.pageable.as_ref().map(|rates| rates.to_host.clone()),
            far: self.far.as_ref().map(|rates| rates.to_host.clone()),
            ..self.both_ways()
        }
    }

    fn both_ways(&self) -> LinkDetails {
        LinkDetails {
            raw: self.raw.clone(),
            duplex: self.duplex.clone(),
            dram_traffic: self.dram_traffic.clone(),
            ..LinkDetails::default()
        }
    }
}
