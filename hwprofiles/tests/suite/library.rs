//! The shipped profiles: all of them can be read and composed, fit a terminal, and give the sources
//! of their numbers.

use hwprofiles::{
    AttentionShape, Bytes, BytesPerSec, Composition, DType, DeviceKind, Library, Machine, MemoryKind, Phase,
    Profile, Provenance, Seconds, shipped, yaml,
};
use std::collections::BTreeSet;
use std::sync::OnceLock;

fn profiles() -> impl Iterator<Item = &'static (&'static str, Profile)> {
    static READ: OnceLock<Vec<(&'static str, Profile)>> = OnceLock::new();
    let read = || shipped().map(|(name, text)| (name, Profile::from_yaml(text, name).expect(name))).collect();
    READ.get_or_init(read).iter()
}

/// Whether the profile's name can stand for a machine.
fn is_machine(profile: &Profile) -> bool {
    match profile {
        Profile::Machine(_) | Profile::Composition(_) | Profile::Host(_) => true,
        Profile::Gpu(gpu) => gpu.server.is_some(),
        Profile::Cpu(cpu) => cpu.dram.capacity.is_some(),
        Profile::Link(_) | Profile::Cxl(_) | Profile::Nvme(_) => false,
    }
}

fn machines() -> impl Iterator<Item = &'static Machine> {
    static MADE: OnceLock<Vec<Machine>> = OnceLock::new();
    let names = || profiles().filter(|(_, profile)| is_machine(profile)).map(|(name, _)| *name);
    let make = || names().map(|name| Library::default().machine(name).expect(name)).collect();
    MADE.get_or_init(make).iter()
}

#[test]
fn a_profile_is_named_like_its_file_and_no_two_alike() {
    let mut seen = BTreeSet::new();
    for (name, profile) in profiles() {
        let said = match profile {
            Profile::Machine(machine) => machine.name.clone(),
            Profile::Composition(composition) => composition.name.clone().unwrap_or_default(),
            Profile::Host(host) => host.host.clone(),
            Profile::Gpu(gpu) => gpu.gpu.clone(),
            Profile::Cpu(cpu) => cpu.cpu.clone(),
            Profile::Link(link) => link.link.clone(),
            Profile::Cxl(cxl) => cxl.cxl.clone(),
            Profile::Nvme(nvme) => nvme.nvme.clone(),
        };
        assert_eq!(said, *name);
        assert!(seen.insert(name), "{name} is shipped twice");
        assert_eq!(*name, name.to_lowercase().replace('_', "-"), "its spelling could not be looked up");
    }
    assert!(seen.len() > 80, "only {} profiles are shipped: is the folder right?", seen.len());
}

#[test]
fn every_shipped_machine_is_sound_and_reads_back_as_it_was_written() {
    for machine in machines() {
        assert_eq!(machine.check(), [], "{}", machine.name);
        assert_eq!(Machine::from_yaml(&machine.to_yaml(), &machine.name).as_ref(), Ok(machine));
    }
}

#[test]
fn a_cpu_has_one_gpu_within_it() {
    let cpus: BTreeSet<_> = profiles()
        .filter_map(|(_, profile)| if let Profile::Cpu(cpu) = profile { Some(cpu.cpu.clone()) } else { None })
        .collect();
    let mut within = BTreeSet::new();
    for (name, profile) in profiles() {
        let Profile::Gpu(gpu) = profile else { continue };
        let server = gpu.server.iter().filter(|_| gpu.unified).map(|server| &server.cpu);
        for cpu in server.chain(&gpu.also_in) {
            assert!(cpus.contains(cpu), "{name}: {cpu} is not shipped");
            assert!(within.insert(cpu), "{cpu} has two GPUs, one is {name}");
        }
    }
}

#[test]
fn every_number_of_a_part_says_where_it_came_from() {
    for (name, profile) in profiles() {
        let Some(sheet) = profile.sheet() else { continue };
        assert_eq!(sheet.name, *name);
        assert!(sheet.entries.iter().any(|entry| entry.source.is_some()), "{name} has no number");
        for entry in sheet.entries.iter().filter(|entry| entry.source.is_none()) {
            let key = entry.key.rsplit('.').next().unwrap_or("");
            let words = [
                "architecture",
                "compute_capability",
                "kind",
                "cpu",
                "link",
                "peer",
                "sockets",
                "cores",
                "ranks",
                "unified",
                "also_in",
                "dies",
                "inline_ecc",
                "by_pair",
            ];
            assert!(words.contains(&key), "{name}: {} = {} has no source", entry.key, entry.value);
        }
        let sources = sheet.entries.iter().filter_map(|entry| entry.source.as_ref());
        for source in sources {
            if let Provenance::Datasheet { document, confidence } = source {
                assert!(confidence.is_some(), "{name}: how far is '{document}' to be trusted?");
            }
        }
    }
}

#[test]
fn every_machine_computes_and_stores_at_rates_above_zero() {
    for machine in machines() {
        let name = &machine.name;
        for device in &machine.devices {
            assert!(!device.gemm.is_empty(), "{name}: {} computes nothing", device.name);
            for &dtype in device.gemm.keys() {
                for m in [1, 17, 5000] {
                    let product = device.gemm_time(dtype, m, 4096, 4096).expect("a rate").time;
                    assert!(
                        product > Seconds::ZERO && product < Seconds::new(1e3),
                        "{name} {dtype}: {product}"
                    );
                }
            }
            for &kv in device.attention.keys() {
                let (phase, heads, kv_heads, head_dim) = (Phase::Decode, 8, 4, 64);
                let step = AttentionShape {
                    phase,
                    batch: 1,
                    new_tokens: 1,
                    past_tokens: 999,
                    heads,
                    kv_heads,
                    head_dim,
                };
                let decode = device.attention_time(kv, &step).expect("a rate").time;
                assert!(decode > Seconds::ZERO && decode < Seconds::new(1.0), "{name} {kv}: {decode}");
            }
        }
        for memory in &machine.memories {
            assert!(
                memory.capacity.value > Bytes::ZERO && memory.bandwidth.value > BytesPerSec::ZERO,
                "{name}"
            );
        }
    }
}

#[test]
fn the_machines_that_the_documents_name_are_there() {
    let library = Library::default();
    let names = [
        "a100-sxm",
        "h100-sxm",
        "h200-sxm",
        "b200-sxm",
        "l40s",
        "rtx4090-desktop",
        "spr-a100",
        "spr-h100-cxl",
        "gnr-h200",
        "gh200",
        "t4-flexgen",
    ];
    for name in names {
        let machine = library.machine(name).expect(name);
        let gpus = machine.devices.iter().filter(|device| device.kind == DeviceKind::Gpu).count();
        assert_eq!((machine.name.as_str(), gpus), (name, 1));
    }
}

#[test]
fn a_name_is_found_however_it_is_spelt() {
    let library = Library::default();
    let machine = library.machine("a100-sxm").unwrap();
    for name in ["A100-SXM", "a100_sxm", "A100_Sxm"] {
        assert_eq!(library.machine(name).unwrap(), machine);
    }
}

#[test]
fn a_name_is_found_as_systems_and_people_write_it() {
    let library = Library::default();
    let cases = [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "rtx-4060-laptop"),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16"),
        ("RTX 3060", "rtx-3060-12"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("Tesla T4", "t4"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "i9-13900k"),
        ("Intel(R) Core(TM) Ultra 9 285K", "core-ultra-9-285k"),
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480p"),
        ("Intel(R) Xeon(R) Gold 6138 CPU @ 2.00GHz", "xeon-gold-6138"),
        ("Intel Xeon Gold 6454S", "xeon-gold-6454s"),
        ("EPYC 9355", "epyc-9355"),
        ("AMD EPYC 9355 32-Core Processor", "epyc-9355"),
        ("AMD Ryzen 9 7950X 16-Core Processor", "ryzen-7950x"),
        ("ryzen-5-3500", "ryzen-3500"),
        ("AMD Ryzen Threadripper PRO 7975WX 32-Cores", "threadripper-pro-7975wx"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "ryzen-ai-max-395"),
        ("Apple M1 Max", "apple-m1-max"),
        ("RTX4070", "rtx-4070"),
        ("Core i5-13400F", "i5-13400"),
        ("Core i7-8700K", "i7-8700k"),
        ("Core Ultra 7 265KF", "core-ultra-7-265k"),
        ("AMD EPYC 7402P 24-Core Processor", "epyc-7402"),
        ("AMD Ryzen 7 8845HS w/ Radeon 780M Graphics", "ryzen-8845hs"),
        ("Ryzen Z1 Extreme", "ryzen-z1-extreme"),
        ("Intel(R) N100", "intel-n100"),
        ("Tesla V100", "v100-16-sxm"),
        ("V100 32GB", "v100-32-sxm"),
        ("Tesla V100-SXM2-16GB", "v100-16-sxm"),
        ("Tesla V100-PCIE-32GB", "v100-32-pcie"),
        ("A100 40GB", "a100-40-sxm"),
        ("A100 PCIe", "a100-80-pcie"),
        ("TITAN RTX", "titan-rtx"),
        ("GTX 1060", "gtx-1060-6"),
        ("Apple M5 Pro", "apple-m5-pro"),
        ("Jetson AGX Orin", "jetson-agx-orin-64"),
        ("Jetson Thor", "jetson-agx-thor"),
        ("Ampere Altra", "ampere-altra-q80-30"),
        ("RX 7600", "rx-7600"),
        ("Ryzen 5 7600", "ryzen-7600"),
        ("Ryzen 7 7700", "ryzen-7700"),
        ("Core i7-7700", "i7-7700"),
        ("7700", "ryzen-7700"),
    ];
    for (name, shipped) in cases {
        assert_eq!(library.profile(name).expect(name), library.profile(shipped).unwrap(), "{name}");
    }
}

#[test]
fn every_name_is_found_without_its_hyphens_and_in_capitals() {
    let library = Library::default();
    for (name, profile) in profiles() {
        let loud = name.replace('-', " ").to_uppercase();
        assert_eq!(library.profile(&loud).as_ref().expect(&loud), profile, "{loud}");
    }
}

#[test]
fn an_unknown_name_is_answered_by_the_nearest_and_a_file_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let library = Library { folder: folder.path().to_path_buf(), ..Library::default() };
    let error = |name: &str| library.profile(name).expect_err(name).to_string();
    assert!(error("RTX 4060 Ti").ends_with("did you mean rtx-4060-ti-8, rtx-4060-ti-16?"));
    assert!(error("7975WX").ends_with("did you mean threadripper-pro-7975wx?"));
    assert!(error("i9-13900kk").contains("did you mean i9-13900k"));
    assert!(error("RTX-3061").ends_with("did you mean rtx-3060-12?"));
    assert_eq!(error("rtx4090-desktp").rsplit("; ").next(), Some("did you mean rtx4090-desktop?"));
    assert!(error("a toaster").ends_with("`fulcrum machine list` names those"));
    std::fs::write(folder.path().join("RTX 4090"), "name: own\nparts: {cpu: this}\n").unwrap();
    assert!(matches!(library.profile("RTX 4090").unwrap(), Profile::Composition(_)));
    assert!(matches!(library.profile("rtx-4090").unwrap(), Profile::Gpu(_)));
}

#[test]
fn words_are_a_machine_where_they_are_neither_a_name_nor_a_file() {
    let library = Library::default();
    let called = |name: &str, gpus| library.machine_called(name, gpus).expect(name);
    let server = called("8x H200", 1);
    let gpus = server.identical_gpus();
    assert_eq!((gpus.len(), server.name.as_str()), (8, "8x h200-sxm 141 GB"));
    let one = library.machine("h200-sxm").unwrap();
    assert_eq!(server.device(gpus[0]).gemm, one.device(one.identical_gpus()[0]).gemm);
    let told = server.assumptions();
    assert!(told.starts_with("assumed: CPU xeon-8480p; ") && told.contains("link pcie5-x16"), "{told}");
    assert_eq!(
        (one.assumptions(), server.with_tensor_parallel(8).unwrap().assumptions()),
        (String::new(), told)
    );
    assert_eq!(called("h200-sxm", 1), one, "a name needs no words");
    assert_eq!(called("H200, EPYC 9654, 1 TB", 4).identical_gpus().len(), 4, "as many as a group wants");
    let error = |name: &str| library.machine_called(name, 1).expect_err(name).to_string();
    assert!(error("RTX 4095, i7-14700K").contains("understood: i7-14700k"));
    for unknown in ["toaster", "my machine.yaml"] {
        assert!(error(unknown).contains("is neither a file nor a shipped profile"), "{unknown}");
    }
}

#[test]
fn a_gpus_name_is_a_machine_of_the_server_that_its_part_describes() {
    let library = Library::default();
    for (name, profile) in profiles() {
        let Profile::Gpu(gpu) = profile else { continue };
        let Some(server) = &gpu.server else { continue };
        let machine = library.machine(name).unwrap();
        let Profile::Cpu(cpu) = library.profile(&server.cpu).unwrap() else { panic!("{name}: a CPU") };
        assert_eq!(machine.name, *name);
        assert_eq!(machine.devices[0].cores.len() as u64, cpu.cores.value);
        assert_eq!(machine.devices[1].power, gpu.power);
        assert_eq!(machine.devices[1].price, gpu.price);
        if gpu.unified {
            assert_eq!((machine.memories.len(), machine.links.len()), (1, 0), "{name}: one memory");
            assert!(machine.memories[0].bandwidth.value >= gpu.reached_bandwidth().value);
            continue;
        }
        let hbm = machine.memories.iter().find(|memory| memory.kind == MemoryKind::Hbm).unwrap();
        assert_eq!(hbm.capacity, gpu.allocatable());
        let Profile::Link(link) = library.profile(server.link.as_deref().unwrap()).unwrap() else {
            panic!("{name}: a link")
        };
        let [there, back] = &machine.links[..] else { panic!("{name}: two links") };
        assert_eq!((&there.bandwidth, &back.bandwidth), (&link.to_device, &link.to_host));
    }
}

#[test]
fn a_testbed_keeps_the_numbers_of_its_parts() {
    let library = Library::default();
    let machine = library.machine("spr-a100-cxl").unwrap();
    let memory = |name: &str| machine.memory(machine.memory_named(name).unwrap());
    assert_eq!(memory("dram").capacity.value, Bytes::new(512_000_000_000));
    assert_eq!(memory("dram").bandwidth.value, BytesPerSec::new(260e9));
    // Two expanders hold and read twice as much as one.
    assert_eq!(memory("cxl").capacity.value, Bytes::new(256_000_000_000));
    assert_eq!(memory("cxl").bandwidth.value, BytesPerSec::new(34e9));
    assert_eq!(machine.devices[0].cores.len(), 40);
    let plain = library.machine("spr-a100").unwrap();
    // The expanders change only what its cores read in place.
    let mut devices = machine.devices.clone();
    devices.iter_mut().for_each(|device| device.reads.clear());
    assert_eq!(plain.devices, devices);
    let disk = library.machine("t4-flexgen").unwrap();
    let nvme = disk.memory_named("nvme").unwrap();
    let dram = disk.memory_named("dram").unwrap();
    let rate = |from, to| disk.link(disk.link_between(from, to).unwrap()).bandwidth.value;
    assert_eq!((rate(nvme, dram), rate(dram, nvme)), (BytesPerSec::new(2e9), BytesPerSec::new(1e9)));
}

#[test]
fn no_link_brings_more_than_the_hosts_memory_gives() {
    let library = Library::default();
    let mut limited = 0;
    for (name, count) in machines().flat_map(|machine| [1, 2, 8].map(|count| (machine.name.clone(), count))) {
        let Ok(machine) = library.machine_with(&name, count) else { continue };
        for link in &machine.links {
            let ends = [link.from, link.to].map(|end| machine.memory(end));
            let measured = matches!(link.bandwidth.source, Provenance::Measured { .. });
            for host in ends.into_iter().filter(|memory| memory.kind != MemoryKind::Hbm && !measured) {
                let (rate, most) = (link.bandwidth.value, host.bandwidth.value);
                assert!(rate <= most, "{count} x {name}: {} brings {rate} of {most}", link.name);
                limited += usize::from(rate == most);
            }
        }
    }
    assert!(limited > 0, "some GPUs' slots are faster than desktops' memory");
}

#[test]
fn every_memory_is_read_in_place_or_has_a_link_to_every_devices_memory_and_back() {
    let mut direct = 0;
    for machine in machines() {
        let name = &machine.name;
        let pairs = machine.device_ids().flat_map(|d| machine.memory_ids().map(move |m| (d, m)));
        let far = pairs.filter(|&(device, memory)| {
            // A striped memory needs a link where it is not read in place.
            machine.memory(memory).stripes.is_empty() || !machine.reads_in_place(device, memory)
        });
        for (own, memory) in far.map(|(device, memory)| (machine.device(device).memory, memory)) {
            for (from, to) in [(memory, own), (own, memory)].into_iter().filter(|(from, to)| from != to) {
                let link =
                    machine.link_between(from, to).unwrap_or_else(|| panic!("{name}: {from:?} {to:?}"));
                let wire = machine.wire(link);
                direct += usize::from(wire != link);
                let (link, wire) = (machine.link(link), machine.link(wire));
                assert!(link.bandwidth.value <= wire.bandwidth.value, "{name}: {}", link.name);
                assert!(link.from == wire.from || link.to == wire.to, "{name}: {}", link.name);
            }
        }
        assert_eq!(Machine::from_yaml(&machine.to_yaml(), name).as_ref(), Ok(machine));
    }
    assert!(direct >= 6, "CXL memory and disks reach GPUs over their wires: {direct}");
}

#[test]
fn expanders_reach_the_gpu_over_its_wire_as_fast_as_they_read() {
    let machine = Library::default().machine("spr-h100-cxl").unwrap();
    let link = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| machine.memory_named(name).unwrap());
        machine.link_between(from, to).unwrap()
    };
    for (direct, wire) in [(("cxl", "hbm"), ("dram", "hbm")), (("hbm", "cxl"), ("hbm", "dram"))] {
        assert_eq!(machine.wire(link(direct.0, direct.1)), link(wire.0, wire.1));
    }
    assert_eq!(machine.link(link("cxl", "hbm")).bandwidth.value, BytesPerSec::new(34e9));
    let text = machine.to_yaml();
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        Machine::from_yaml(&text.replacen(from, to, 1), "machine.yaml").unwrap_err().to_string()
    };
    for (wire, why) in [
        ("nvlink", "is not a link of this machine: use one of dram->gpu"),
        ("gpu->cxl", "has no wire of its own"),
        ("dram->cxl", "neither begins at 'cxl' nor ends at 'hbm'"),
    ] {
        let message = refused("wire: dram->gpu", &format!("wire: {wire}"));
        assert!(message.contains(why) && message.starts_with("machine.yaml:"), "{message}");
    }
}

#[test]
fn everything_shown_fits_eighty_columns() {
    let fits = |name: &str, text: &str| {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    };
    for (name, profile) in profiles() {
        fits(name, &format!("  {name:<21} {}", profile.summary()));
        fits(name, &profile.sheet().map(|sheet| sheet.to_string()).unwrap_or_default());
    }
    machines().for_each(|machine| fits(&machine.name, &machine.to_string()));
}

#[test]
fn a_part_is_shown_with_its_sources_and_how_far_to_trust_them() {
    let shown = |name: &str| Library::default().profile(name).unwrap().sheet().unwrap().to_string();
    insta::assert_snapshot!(["pcie3-x16-gcp-t4", "adreno-750", "xeon-gold-6454s"].map(shown).join("\n"));
}

#[test]
fn a_machine_is_shown_with_its_ceilings_and_what_else_is_known() {
    let text = "
name: shown
note: every part at once
parts:
  cpu: xeon-8460h
  dram: {capacity: {value: 512 GB, source: {datasheet: {document: a leaflet, confidence: low}}}}
  gpu: l4
  link: pcie3-x16-gcp-t4
  cxl: {part: samsung-128gb, count: 2, interleave: {dram: 8, cxl: 1}}
  nvme: nvme-gcp-1.5tb
";
    let composition: Composition = yaml::read(text, "inline").unwrap();
    let machine = Library::default().compose(&composition).unwrap();
    let shown = machine.to_string();
    // Another test shows the tables of rates; this one shows the rest.
    let formats = DType::ALL.map(|dtype| format!("  {dtype} "));
    let is_rate = |line: &&str| formats.iter().any(|f| line.starts_with(f.as_str())) && line.contains("(m =");
    let kept: Vec<_> = shown.lines().filter(|line| !is_rate(line)).skip(1).collect();
    insta::assert_snapshot!(kept.join("\n"));
}

#[test]
fn gpus_are_joined_by_their_own_link_or_the_one_that_is_named() {
    let between = |gpu: &str| {
        let text = format!(
            "parts: {{cpu: xeon-8480p, dram: {{capacity: {{value: 512 GB, source: {{datasheet: {{document: a leaflet, \
             confidence: low}}}}}}}}, gpu: {gpu}, link: pcie5-x16}}"
        );
        let composition: Composition = yaml::read(&text, "inline").unwrap();
        let machine = Library::default().compose(&composition).unwrap();
        let gpus: Vec<_> = machine.devices.iter().filter(|it| it.kind == DeviceKind::Gpu).collect();
        let link = machine.link_between(gpus[0].memory, gpus[1].memory).unwrap();
        machine.links[link.0].details.part.clone().unwrap()
    };
    assert_eq!(between("{part: h100-sxm, count: 2}"), "nvlink4");
    assert_eq!(between("{part: h100-sxm, count: 2, link: nvlink3}"), "nvlink3");
    assert_eq!(between("{part: h100-pcie, count: 2}"), "pcie5-x16");
    assert_eq!(between("{part: mi300x, count: 8}"), "infinity-fabric3");
}

/// Two kinds of GPUs: numbered over both, each with its own link, and of one kind where it is said.
#[test]
fn gpus_of_several_kinds_are_a_list() {
    let text = "parts: {cpu: ryzen-5950x, dram: {capacity: 64 GB}, link: pcie4-x16, \
                gpu: [{part: rtx-3090, count: 2}, {part: rtx-3060-12, host_link: pcie3-x4}]}";
    let composition: Composition = yaml::read(text, "inline").unwrap();
    let written = serde_json::to_string(&composition).unwrap();
    assert_eq!(serde_json::from_str::<Composition>(&written).unwrap(), composition);
    let machine = Library::default().compose(&composition).unwrap();
    assert_eq!(machine.check(), vec![]);
    assert_eq!(machine.name, "ryzen-5950x+2x-rtx-3090+rtx-3060-12");
    let gpus: Vec<_> = machine.devices.iter().filter(|it| it.kind == DeviceKind::Gpu).collect();
    assert_eq!(gpus.iter().map(|gpu| &*gpu.name).collect::<Vec<_>>(), ["gpu0", "gpu1", "gpu2"]);
    assert_eq!(machine.identical_gpus().len(), 2, "the 3060 is of another kind");
    let part = |from: usize, to: usize| {
        let link = machine.link_between(gpus[from].memory, gpus[to].memory).unwrap();
        machine.link(link).details.part.clone().unwrap()
    };
    assert_eq!([part(0, 1), part(0, 2), part(2, 1)], ["pcie4-x16", "pcie3-x4", "pcie3-x4"]);
    let host = machine.devices[0].memory;
    let rate =
        |gpu: usize| machine.link(machine.link_between(host, gpus[gpu].memory).unwrap()).bandwidth.value;
    assert!(rate(2) < rate(0) * 0.2, "{} {}", rate(2), rate(0));
}

#[test]
fn a_wrong_gpu_of_a_list_is_refused_at_its_place() {
    let refused = |gpus: &str| {
        let text =
            format!("parts: {{cpu: ryzen-5950x, dram: {{capacity: 64 GB}}, link: pcie4-x16, gpu: {gpus}}}");
        let composition: Composition = yaml::read(&text, "inline").unwrap();
        let error = Library::default().compose(&composition).unwrap_err();
        composition.parts.wrong_key(&error).unwrap()
    };
    for (gpus, key, words) in [
        ("[rtx-3090, rtx-3061]", "gpu.1", "rtx-3060-12"),
        ("[rtx-3090, {part: rtx-4090, host_link: pcie9}]", "gpu.1.host_link", "pcie"),
        ("[rtx-3090, {part: rtx-4090, link: nvlink3}]", "gpu.1.link", "GPUs of one kind, and this is one"),
        ("[rtx-3090, radeon-780m]", "gpu.1", "computes on the host's memory"),
        ("[rtx-3090, {part: rtx-4090, count: 64}]", "gpu.0.count", "65 are more than the 64"),
    ] {
        let (at, message) = refused(gpus);
        assert!(at == key && message.contains(words), "{gpus}: {at}: {message}");
    }
}

/// GPUs of servers are joined by more than the host's link, and their all-reduces do not become
/// slower where more of them divide the same bytes.
#[test]
fn accelerators_of_servers_have_links_of_their_own() {
    for name in ["h100-sxm", "h200-sxm", "b200-sxm", "gb200", "mi300x", "mi355x", "gaudi3", "a100-sxm"] {
        let machine = Library::default().machine_with(name, 8).unwrap();
        let rank = |count| {
            let grouped = machine.with_tensor_parallel(count).unwrap();
            let gpu = grouped.device(grouped.identical_gpus()[0]).clone();
            let ranks = gpu.ranks.unwrap();
            let host = grouped.link(grouped.link_between(grouped.devices[0].memory, gpu.memory).unwrap());
            let of_one = host.bandwidth.value.get() / count as f64;
            assert!(ranks.all_reduce.bandwidth.value.get() > of_one * 0.7, "{name}");
            assert_ne!(ranks.link, host.details.part, "{name}");
            ranks.all_reduce.time(Bytes::new(64 << 20), count).get()
        };
        let [two, eight] = [2, 8].map(rank);
        assert!(eight < two * 2.0, "{name}: {two} {eight}");
    }
}
