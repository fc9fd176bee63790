//! The link of a device on the PCI bus.

use std::fs;
use std::path::Path;

/// A link: the generation and the lanes that device and slot have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciLink {
    /// PCI Express's generation.
    pub generation: u64,
    /// Lanes.
    pub width: u64,
}

/// Rates of one lane in GT/s, by generation.
const RATES: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];

/// The link of the device at `bus` (`0000:17:00.0`); `None` where the system does not say. A link
/// rests at a low rate, so the rate is the highest of device and slot; lanes do not rest.
pub(crate) fn pci_link(root: &Path, bus: &str) -> Option<PciLink> {
    let device = fs::canonicalize(root.join("sys/bus/pci/devices").join(bus)).ok()?;
    let read = |folder: &Path, file: &str| fs::read_to_string(folder.join(file)).ok();
    let generation = |folder: &Path| {
        let text = read(folder, "max_link_speed")?;
        let rate: f64 = text.split_whitespace().next()?.parse().ok()?;
        RATES.iter().position(|known| (known - rate).abs() < 0.1).map(|at| at as u64 + 1)
    };
    let own = generation(&device)?;
    let slot = device.parent().and_then(generation).unwrap_or(own);
    let width = read(&device, "current_link_width")?.trim().parse().ok().filter(|width| *width > 0)?;
    Some(PciLink { generation: own.min(slot), width })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_device_and_slot_counts() {
        let folder = tempfile::tempdir().unwrap();
        let slot = folder.path().join("sys/bus/pci/devices/slot");
        let device = slot.join("0000:01:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("max_link_speed"), "32.0 GT/s PCIe\n").unwrap();
        fs::write(device.join("current_link_width"), "8\n").unwrap();
        let link = || pci_link(folder.path(), "slot/0000:01:00.0");
        assert_eq!(link(), Some(PciLink { generation: 5, width: 8 }));
        fs::write(slot.join("max_link_speed"), "16.0 GT/s PCIe\n").unwrap();
        assert_eq!(link(), Some(PciLink { generation: 4, width: 8 }));
        assert_eq!(pci_link(folder.path(), "0000:99:00.0"), None);
    }
}
