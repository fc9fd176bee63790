//! This machine by its parts, as advice takes it.

use crate::advise::AdvisedMachine;
use crate::error::{OrError, Result};
use crate::pipeline::{machine_library, this_host_file};
use hwprofiles::{Host, Profile};
use microbench::{InstalledDevice, InstalledParts, installed_parts};

/// Shipped CPUs that stand for those that nobody knows, by what the instruction set tells: the
/// maker, a feature of the CPU, the part. The first that applies counts.
const STAND_INS: [(&str, &str, &str); 5] = [
    ("amd", "avx512f", "epyc-9354"),
    ("amd", "", "epyc-7543"),
    ("", "amx_tile", "xeon-8480p"),
    ("", "avx512f", "xeon-8380"),
    ("", "", "xeon-gold-6148"),
];

/// This machine: as `fulcrum bench` measured it where it did, and otherwise of the shipped parts
/// whose names the system tells.
///
/// # Errors
/// The system does not tell the processor, or there is no shipped GPU of a name.
pub fn this_machine() -> Result<AdvisedMachine> {
    if this_host_file().is_file() {
        let library = machine_library();
        let machine = library.machine("this").or_input()?;
        let mut advised = AdvisedMachine::from_machine(machine);
        if let Ok(Profile::Host(host)) = library.profile("this") {
            advised.parts = measured_parts(&host);
        }
        return Ok(advised);
    }
    from_installed(&installed_parts().or_failed()?)
}

fn measured_parts(host: &Host) -> Vec<String> {
    let cores = format!("{} cores, as measured", host.cpu.cores.len());
    let gpu = host.gpu.as_option().map(|gpu| gpu.part.gpu.clone());
    let memory = host.dram.capacity.value.to_string();
    gpu.into_iter().chain([host.cpu.model.trim().to_owned(), cores, memory]).collect()
}

/// The machine of these parts. The line of words that a person would write is made and read.
fn from_installed(parts: &InstalledParts) -> Result<AdvisedMachine> {
    let processor = &parts.processor;
    let (cpu, stand_in) = match hwprofiles::shipped_called(&processor.model) {
        Some((name, _)) => (name, None),
        None => {
            let stand_in = stand_in(&processor.model, &processor.features);
            (stand_in, Some(format!("'{}' taken as {stand_in}", processor.model.trim())))
        }
    };
    let sockets = if parts.sockets > 1 { format!("{}x ", parts.sockets) } else { String::new() };
    let cores = format!("{} cores", processor.cores.len());
    let modules = parts.modules.as_ref();
    let modules = modules.map(|it| format!("{}-{}, {} channels", it.kind, it.rate, it.count));
    let memory = format!("{:.0} GB RAM", parts.memory.gigabytes());
    let others = [format!("{sockets}{cpu}"), cores, memory].into_iter().chain(modules);
    let words: Vec<_> = parts.gpus.iter().map(gpu_words).chain(others).collect();
    let mut machine = AdvisedMachine::from_words(&words.join(", "))?;
    machine.assumed.extend(stand_in);
    if let Some(why) = parts.no_gpus.as_ref().filter(|_| parts.gpus.is_empty()) {
        machine.assumed.push(format!("no GPU ({why}); name one with --machine"));
    }
    Ok(machine)
}

/// A GPU and its slot in words. With a size in its name one is found whose memory comes in several.
fn gpu_words(gpu: &InstalledDevice) -> String {
    let size = format!("{} {:.0} GB", gpu.name, gpu.capacity.gibibytes());
    let name = hwprofiles::shipped_called(&size).map_or(&*gpu.name, |(name, _)| name);
    let link = gpu.link.map(|link| format!(" PCIe {} x{}", link.generation, link.width));
    format!("{name}{}", link.unwrap_or_default())
}

fn stand_in(model: &str, features: &[String]) -> &'static str {
    let model = model.to_lowercase();
    let has = |feature: &str| feature.is_empty() || features.iter().any(|known| known == feature);
    let found = STAND_INS.iter().find(|(maker, feature, _)| model.contains(maker) && has(feature));
    found.map_or("xeon-gold-6148", |(.., part)| part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::{Bytes, Processor};
    use microbench::{InstalledModules, PciLink};

    fn parts(model: &str, gpus: &[(&str, u64, u64)]) -> InstalledParts {
        let features = ["avx2", "avx512f"].map(str::to_owned).to_vec();
        let gpu = |(name, size, width): &(&str, u64, u64)| InstalledDevice {
            name: (*name).to_owned(),
            capacity: Bytes::new(size << 30),
            link: Some(PciLink { generation: 4, width: *width }),
        };
        InstalledParts {
            processor: Processor { model: model.to_owned(), cores: (0..8).collect(), features },
            sockets: 1,
            memory: "64 GB".parse().expect("a size"),
            modules: Some(InstalledModules { count: 2, kind: "DDR5", rate: 5200 }),
            gpus: gpus.iter().map(gpu).collect(),
            no_gpus: gpus.is_empty().then(|| "no driver".to_owned()),
        }
    }

    #[test]
    fn parts_are_found_by_the_names_that_systems_give_them() {
        let (small, large) = ("NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4090");
        for (gpus, told) in [
            (
                &[(small, 16, 8), (small, 16, 8)][..],
                "2x rtx-4060-ti-16, i7-14700k, 8 cores, 64 GB DDR5-5200, pcie4-x8",
            ),
            (
                &[(small, 16, 4), (large, 24, 16)],
                "rtx-4090 24 GB pcie4-x16, rtx-4060-ti-16 pcie4-x4, i7-14700k, 8 cores, 64 GB DDR5-5200",
            ),
        ] {
            let found = from_installed(&parts("Intel(R) Core(TM) i7-14700K", gpus)).expect("a machine");
            assert_eq!(found.parts.join(", "), told);
            assert_eq!(found.assumed, Vec::<String>::new());
        }
    }

    #[test]
    fn a_processor_that_nobody_knows_has_a_stand_in_and_is_told() {
        let found = from_installed(&parts("Intel(R) Xeon(R) Processor", &[])).expect("a machine");
        let told = found.assumed.join("; ");
        assert!(told.contains("taken as xeon-8380") && told.contains("no driver"), "{told}");
        assert_eq!(stand_in("AMD EPYC Virtual", &[]), "epyc-7543");
    }
}
