//! The GPUs that the driver names, without using any of them.

use crate::cuda::driver::context::initialise;
use crate::cuda::driver::result::gpu_result;
use crate::cuda::driver::unavailable::GpuUnavailable;
use crate::runtime::KernelError;
use cudarc::driver::result::device;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use hwprofiles::Bytes;

/// A GPU as its driver names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledGpuFacts {
    /// Its name: "NVIDIA GeForce RTX 4090".
    pub name: String,
    /// The size of its memory.
    pub capacity: Bytes,
    /// Its place on the PCI bus, as /sys names it: "0000:17:00.0".
    pub bus: String,
}

/// The GPUs that the driver names. Nothing is allocated on them, and no context is made.
///
/// # Errors
/// There is no driver, or it does not answer.
pub fn installed_gpus() -> Result<Vec<InstalledGpuFacts>, GpuUnavailable> {
    let count = initialise()?;
    let all = (0..count).map(facts).collect::<Result<_, _>>();
    all.map_err(|error: KernelError| GpuUnavailable { reason: error.to_string(), has_driver: true })
}

fn facts(index: usize) -> Result<InstalledGpuFacts, KernelError> {
    let device = gpu_result("a GPU", device::get(i32::try_from(index).unwrap_or(i32::MAX)))?;
    let attribute = |which| {
        // SAFETY: the device is one that the driver named.
        let value = gpu_result("an attribute", unsafe { device::get_attribute(device, which) })?;
        Ok::<_, KernelError>(value.max(0))
    };
    // SAFETY: as above.
    let capacity = gpu_result("the size of its memory", unsafe { device::total_mem(device) })?;
    let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let domain = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let slot = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    Ok(InstalledGpuFacts {
        name: gpu_result("its name", device::get_name(device))?,
        capacity: Bytes::new(capacity as u64),
        bus: format!("{domain:04x}:{bus:02x}:{slot:02x}.0"),
    })
}
