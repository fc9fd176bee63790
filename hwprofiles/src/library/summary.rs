//! A profile in a few words, for lists.

use crate::library::profile::Profile;
use crate::parts::{CpuPart, GpuChoice, GpuPart, PartNames};

impl Profile {
    /// The profile in a few words, without its name: at most 58 columns.
    pub fn summary(&self) -> String {
        let text = match self {
            Profile::Machine(machine) => {
                let devices: Vec<_> = machine.devices.iter().map(|device| device.name.as_str()).collect();
                format!("{} with {} memories", devices.join(" and "), machine.memories.len())
            }
            Profile::Host(host) => format!("{}, {} cores, measured", host.cpu.model, host.cpu.cores.len()),
            Profile::Composition(composition) => names(&composition.parts),
            Profile::Gpu(gpu) => of_gpu(gpu),
            Profile::Cpu(cpu) => of_cpu(cpu),
            Profile::Link(link) => {
                format!("{} to the device, {} to the host", link.to_device.value, link.to_host.value)
            }
            Profile::Cxl(cxl) => {
                format!("{} read at {}, {}", cxl.capacity.value, cxl.read.value, cxl.latency.value)
            }
            Profile::Nvme(disk) => {
                format!(
                    "{} read at {}, written at {}",
                    disk.capacity.value, disk.read.value, disk.write.value
                )
            }
        };
        match text.char_indices().nth(58) {
            Some(_) => text.chars().take(57).chain(['…']).collect(),
            None => text,
        }
    }
}

fn names(parts: &PartNames) -> String {
    let sockets = parts.sockets.as_ref().map(|sockets| sockets.count).filter(|&count| count > 1);
    let cpu = sockets.map_or_else(|| parts.cpu.clone(), |sockets| format!("{sockets}× {}", parts.cpu));
    let cores = parts.cores.map(|cores| format!("{cores} cores"));
    let capacity = parts.dram.as_ref().and_then(|dram| dram.capacity.as_ref());
    let cxl = parts.cxl.as_ref().map(|cxl| match cxl.count {
        1 => cxl.part.clone(),
        count => format!("{count}× {}", cxl.part),
    });
    let mut all = vec![cpu];
    all.extend(cores);
    all.extend(capacity.map(|capacity| capacity.value.to_string()));
    all.extend(parts.gpus.iter().map(GpuChoice::in_words));
    all.extend(cxl);
    all.extend(parts.nvme.clone());
    all.join(", ")
}

fn of_gpu(gpu: &GpuPart) -> String {
    let fastest = gpu.peak.iter().filter(|(dtype, _)| dtype.name().contains("16"));
    let fastest = fastest.max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    let rate = fastest.map(|(dtype, peak)| format!("{dtype} {}", peak.value));
    let measured = (!gpu.gemm.is_empty()).then(|| "fitted".to_owned());
    let power = gpu.power.as_ref().map(|power| power.value.to_string());
    let memory = format!("{} GB at {}", gpu.gigabytes_as_sold(), gpu.bandwidth.value);
    std::iter::once(memory)
        .chain([rate, power, measured].into_iter().flatten())
        .collect::<Vec<_>>()
        .join(", ")
}

fn of_cpu(cpu: &CpuPart) -> String {
    let rates = cpu.rates.iter().flat_map(|(set, by_format)| by_format.iter().map(move |r| (set, r.0, r.1)));
    let best = rates
        .filter(|(_, dtype, _)| !dtype.name().starts_with("int"))
        .max_by(|a, b| a.2.resident.value.total_cmp(&b.2.resident.value));
    let best = best.map(|(set, dtype, rates)| format!(", {set} {dtype} {}", rates.resident.value));
    format!("{} cores, {}{}", cpu.cores.value, cpu.dram.bandwidth.value, best.unwrap_or_default())
}
