//! Hosts, and machines made of parts.

use hwprofiles::{
    AttentionRates, AttentionShape, Basis, Bytes, BytesPerSec, CeilingRates, Composition, CoreTeam,
    Crossover, Curve, CurvePoint, DType, Dequantisation, DeviceKind, Dram, Elements, FlopPerSec, GemmPoint,
    GemmRates, Host, Library, Loopback, LoopbackLimit, Machine, MachineParts, MeasuredCeilings, Phase,
    Presence, Processor, Profile, Provenance, Seconds, Sourced, StreamCurve, StreamKind, yaml,
};
use proptest::prelude::*;

fn measured<T>(value: T) -> Sourced<T> {
    Sourced::measured(value, "2026-11-21", "fulcrum bench", 0.02)
}

fn source() -> Provenance {
    measured(()).source
}

fn curve(points: &[(u64, f64)]) -> Curve<BytesPerSec> {
    let point = |&(size, rate)| CurvePoint { size: Bytes::new(size), value: BytesPerSec::new(rate) };
    Curve { source: source(), points: points.iter().map(point).collect() }
}

fn team(threads: usize) -> CoreTeam {
    let time = Seconds::new(1e-4 / threads as f64);
    let gemm = GemmRates::new(source(), vec![GemmPoint { m: 1, n: 512, k: 512, time }]);
    let (rate, bandwidth) = (FlopPerSec::new(2e10), BytesPerSec::new(9e9));
    let attention = AttentionRates::roofline(DType::Bf16, rate, bandwidth, source());
    CoreTeam {
        threads,
        frequency: Presence::Absent,
        kernels: None,
        launch: measured(Seconds::new(1e-6 * threads as f64)),
        gemm: [(DType::Bf16, gemm)].into(),
        ceilings: Default::default(),
        crossover: Default::default(),
        attention: [(DType::Bf16, attention)].into(),
        elementwise: measured(BytesPerSec::new(8e9)),
    }
}

fn host(cores: usize) -> Host {
    let stream = |threads, points: &[(u64, f64)]| StreamCurve {
        stream: StreamKind::Read,
        threads,
        curve: curve(points),
    };
    Host {
        host: "bench-host".to_owned(),
        cpu: Processor {
            model: "Some CPU @ 2 GHz".to_owned(),
            cores: (0..cores).collect(),
            features: vec!["avx2".to_owned()],
        },
        dram: Dram {
            bandwidth: (1..=cores)
                .map(|n| {
                    stream(n, &[(1 << 16, 9e10 * n as f64), (1 << 28, if n == 1 { 1.2e10 } else { 2e10 })])
                })
                .collect(),
            latency: Some(Curve {
                source: source(),
                points: vec![
                    CurvePoint { size: Bytes::new(1 << 15), value: Seconds::new(1.5e-9) },
                    CurvePoint { size: Bytes::new(1 << 28), value: Seconds::new(1e-7) },
                ],
            }),
            ..Dram::new(measured(Bytes::new(8_000_000_000)))
        },
        numa: Presence::Absent,
        teams: (1..=cores).map(team).collect(),
        loopback: match cores {
            1 => Presence::Absent,
            _ => Presence::Present(Loopback {
                sync: measured(Seconds::new(5e-6)),
                latency: measured(Seconds::new(2e-6)),
                bandwidth: measured(BytesPerSec::new(8e9)),
            }),
        },
        gpu: Presence::Absent,
        cxl: Presence::Absent,
    }
}

fn limit(memory: u64, bandwidth: f64) -> LoopbackLimit {
    LoopbackLimit { memory: Bytes::new(memory), bandwidth: BytesPerSec::new(bandwidth) }
}

#[test]
fn a_host_reads_back_as_it_was_written_and_says_what_is_absent() {
    for cores in [1, 2, 4] {
        let host = host(cores);
        assert_eq!(Host::from_yaml(&host.to_yaml(), "host.yaml"), Ok(host.clone()), "{}", host.to_yaml());
    }
    insta::assert_snapshot!(host(1).to_yaml());
}

#[test]
fn a_bad_host_gets_one_message_with_its_line() {
    let text = host(2).to_yaml();
    let cases = [
        ("no cores", "cores: [0, 1]", "cores: []"),
        ("core twice", "cores: [0, 1]", "cores: [1, 1]"),
        ("team twice", "- threads: 2", "- threads: 1"),
        ("team of none", "- threads: 1", "- threads: 0"),
        ("stream twice", "threads: 2\n      curve", "threads: 1\n      curve"),
        ("no read stream", "stream: read", "stream: copy"),
        ("not absent", "gpu: absent", "gpu: none"),
        ("unknown key of a part", "gpu: absent", "gpu: {gpus: 1}"),
        ("mistyped key", "elementwise:", "elementwize:"),
        ("zero latency", "value: 1.5 ns", "value: 0 ns"),
    ];
    let mut lines = Vec::new();
    for (name, right, wrong) in cases {
        assert!(text.contains(right), "{name}: {text}");
        let error = Host::from_yaml(&text.replace(right, wrong), "host.yaml").expect_err(name);
        lines.push(format!("{name}\n    {error}"));
    }
    let measured = include_str!("../../data/measured/h100_host.yaml");
    let share = "grouped_product:\n        value: 0.237907365866525";
    let wrong = measured.replacen(share, "grouped_product:\n        value: 1.7", 1);
    assert!(wrong != measured && Host::from_yaml(measured, "h100.yaml").is_ok());
    let error = Host::from_yaml(&wrong, "h100.yaml").expect_err("more than the whole");
    lines.push(format!("a share of its GPU above the whole\n    {error}"));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_host_alone_is_a_machine_with_all_its_cores() {
    let machine = MachineParts::from_host(host(2)).machine("alone").unwrap();
    assert_eq!(machine.devices.len(), 1);
    assert_eq!(machine.devices[0].cores, [0, 1]);
    assert_eq!(machine.devices[0].launch.value, Seconds::new(2e-6));
    assert_eq!(machine.memories[0].bandwidth.value, BytesPerSec::new(2e10));
    assert_eq!(machine.memories[0].capacity.value, Bytes::new(8_000_000_000));
    assert!(machine.links.is_empty());
    assert_eq!(machine.check(), []);
}

#[test]
fn what_was_measured_of_a_hosts_arithmetic_comes_with_its_device() {
    let mut host = host(2);
    let rate = |tera: f64| Presence::Present(FlopPerSec::new(tera * 1e12));
    let (resident, cached) = (rate(2.0), rate(1.0));
    let ceilings = MeasuredCeilings { source: source(), resident, cached, streamed: Presence::Absent };
    host.teams[1].ceilings = [(DType::Bf16, [("amx".to_owned(), ceilings)].into())].into();
    let rows = Presence::Present(5);
    let crossover = Crossover { source: source(), below: "avx512".to_owned(), above: "amx".to_owned(), rows };
    host.teams[1].crossover = [(DType::Bf16, crossover)].into();
    let machine = MachineParts::from_host(host).machine("host").unwrap();
    let details = &machine.devices[0].details;
    let CeilingRates { resident, cached, streamed } = &details.ceilings[&DType::Bf16]["amx"];
    assert_eq!(resident.as_ref(), Some(&measured(FlopPerSec::new(2e12))));
    assert_eq!(cached.as_ref(), Some(&measured(FlopPerSec::new(1e12))));
    assert_eq!(streamed.as_ref(), None);
    assert_eq!(details.crossover[&DType::Bf16], measured(5));
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "again"), Ok(machine));
}

#[test]
fn a_loopback_takes_the_last_core_and_its_memory_from_the_host() {
    let machine =
        MachineParts::from_host(host(4)).with_loopback(limit(200_000_000, 4e9)).machine("split").unwrap();
    let [cpu, loopback] = &machine.devices[..] else { panic!("two devices") };
    assert_eq!((cpu.kind, cpu.cores.as_slice()), (DeviceKind::Cpu, [0, 1, 2].as_slice()));
    assert_eq!((loopback.kind, loopback.cores.as_slice()), (DeviceKind::Loopback, [3].as_slice()));
    // Each device has the rates of the team of its size.
    assert_eq!((cpu.launch.value, loopback.launch.value), (Seconds::new(3e-6), Seconds::new(1e-6)));
    assert_eq!((cpu.sync.value, loopback.sync.value), (Seconds::new(5e-6), Seconds::new(5e-6)));
    let total: Bytes = machine.memories.iter().map(|m| m.capacity.value).sum();
    assert_eq!(total, Bytes::new(8_000_000_000));
    assert_eq!(machine.bandwidth_owner(loopback.memory), cpu.memory);
    for (from, to) in [(cpu.memory, loopback.memory), (loopback.memory, cpu.memory)] {
        let link = machine.link(machine.link_between(from, to).expect("both ways"));
        assert_eq!((link.latency.value, link.bandwidth.value), (Seconds::new(2e-6), BytesPerSec::new(4e9)));
    }
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "again"), Ok(machine));
}

#[test]
fn two_devices_that_multiply_share_what_all_cores_drew_when_they_multiplied() {
    let bandwidth = |time| {
        let mut host = host(2);
        let rates =
            GemmRates::new(source(), vec![GemmPoint { m: 1, n: 1000, k: 1000, time: Seconds::new(time) }]);
        host.teams[1].gemm = [(DType::Bf16, rates)].into();
        let shared = MachineParts::from_host(host.clone())
            .with_loopback(limit(1_000_000, 4e9))
            .machine("split")
            .unwrap();
        let alone = MachineParts::from_host(host).machine("whole").unwrap();
        assert_eq!(alone.memories[0].bandwidth.value, BytesPerSec::new(2e10));
        shared.memories[0].bandwidth.value
    };
    assert_eq!(bandwidth(125e-6), BytesPerSec::new(1.6e10));
    assert_eq!(bandwidth(50e-6), BytesPerSec::new(2e10), "a product from a cache says nothing of memory");
}

#[test]
fn a_loopback_link_is_never_faster_than_what_was_measured() {
    let machine =
        MachineParts::from_host(host(2)).with_loopback(limit(1_000_000, 1e12)).machine("fast").unwrap();
    assert_eq!(machine.links[0].bandwidth, measured(BytesPerSec::new(8e9)));
}

#[test]
fn parts_that_do_not_fit_say_why() {
    let mut missing = host(4);
    missing.teams.retain(|t| t.threads != 3);
    let lines = [
        MachineParts::from_host(host(1)).with_loopback(limit(1_000_000, 4e9)),
        MachineParts::from_host(host(2)).with_loopback(limit(8_000_000_000, 4e9)),
        MachineParts::from_host(missing).with_loopback(limit(1_000_000, 4e9)),
        MachineParts::from_host(Host { loopback: Presence::Absent, ..host(2) })
            .with_loopback(limit(1_000_000, 4e9)),
    ]
    .map(|parts| parts.machine("unfit").expect_err("must be refused").to_string());
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_link_that_nobody_says_is_that_of_the_gpus_usual_server_in_the_cpus_slots() {
    let machine = |parts: &str| {
        let composition = Profile::from_yaml(&format!("parts: {parts}"), "parts.yaml").unwrap();
        let Profile::Composition(composition) = composition else { panic!("a composition") };
        Library::default().compose(&composition).unwrap()
    };
    let dram = "dram: {capacity: 64 GB, modules: 2x DDR5-4800}";
    for (cpu, gpu, link) in [
        ("ryzen-7950x", "rtx-4090", "pcie4-x16"),
        ("xeon-8480p", "h100-pcie", "pcie5-x16"),
        ("ryzen-2700x", "rtx-4090", "pcie3-x16"),
    ] {
        let own = machine(&format!("{{cpu: {cpu}, {dram}, gpu: {gpu}}}"));
        let said = machine(&format!("{{cpu: {cpu}, {dram}, gpu: {gpu}, link: {link}}}"));
        assert_eq!(own.assumed, [format!("link {link}")]);
        assert_eq!(Machine { assumed: vec![], ..own }, said, "{cpu} and {gpu}");
    }
    let two = machine(&format!(
        "{{cpu: ryzen-7950x, {dram}, gpu: [rtx-4090, {{part: rtx-3060-12, host_link: pcie3-x4}}]}}"
    ));
    assert_eq!(two.assumed, ["rtx-4090 on pcie4-x16"]);
}

#[test]
fn names_are_looked_up_as_this_shipped_or_file() {
    let folder = tempfile::tempdir().unwrap();
    let this = folder.path().join("this.yaml");
    let library = Library { this: Some(this.clone()), folder: folder.path().to_path_buf() };
    let error = |name: &str| {
        library.machine(name).expect_err(name).to_string().replace(&folder.path().display().to_string(), "")
    };
    let unmeasured = error("this");
    std::fs::write(&this, host(2).to_yaml()).unwrap();
    assert_eq!(library.machine("this").unwrap().devices.len(), 1);
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("host.yaml"), host(2).to_yaml()).unwrap();
    let split = "parts: {cpu: host.yaml, loopback: {memory: 200 MB, bandwidth: 4 GB/s}}";
    std::fs::write(inner.join("split.yaml"), split).unwrap();
    // File names in a composition are relative to its own folder.
    let machine = library.machine("inner/split.yaml").unwrap();
    assert_eq!((machine.name.as_str(), machine.devices.len()), ("bench-host+loopback", 2));
    std::fs::write(folder.path().join("odd.yaml"), "price: 3\n").unwrap();
    std::fs::write(folder.path().join("lonely.yaml"), "parts: {cpu: this, gpu: sn40l}").unwrap();
    std::fs::write(folder.path().join("wrong.yaml"), "parts: {cpu: t4}").unwrap();
    std::fs::write(folder.path().join("slip.yaml"), "gpuu: mine\nnote: a slip\n").unwrap();
    let absent = "parts:\n  cpu: this\n  gpu: t4\n  link: pcie3-x17\n";
    std::fs::write(folder.path().join("absent.yaml"), absent).unwrap();
    std::fs::write(
        folder.path().join("zero.yaml"),
        "parts:\n  cpu: this\n  loopback: {memory: 0 B, bandwidth: 4 GB/s}\n",
    )
    .unwrap();
    let lines = [
        unmeasured,
        error("nowhere"),
        error("odd.yaml"),
        error("lonely.yaml"),
        error("wrong.yaml"),
        error("slip.yaml"),
        error("absent.yaml"),
        error("zero.yaml"),
        error("pcie4-x16"),
        error("sn40l"),
        error("rtx-4060-ti"),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_persons_word_is_enough_for_memory() {
    let library = Library::default();
    let machine = |dram: &str, sockets: u64| {
        let text = format!("parts: {{cpu: xeon-8480p, sockets: {sockets}, dram: {dram}}}");
        library
            .compose(&yaml::read::<Composition>(&text, "inline").map_err(|e| e.to_string())?)
            .map_err(|e| e.to_string())
    };
    let memory = |dram: &str, sockets: u64| machine(dram, sockets).expect(dram).memories.remove(0);
    let sourced = "{capacity: {value: 64 GB, source: {estimated: {reason: as stated by the person asking}}}}";
    assert_eq!(memory("{capacity: 64 GB}", 1), memory(sourced, 1));
    // Eight channels: modules beyond them share one, and fewer leave some empty.
    let rate =
        |said: &str, sockets: u64| memory(&format!("{{capacity: 64 GB, {said}}}"), sockets).bandwidth.value;
    let peak = rate("bandwidth: 358.4 GB/s", 1);
    for modules in ["8x DDR5-5600", "16 x DDR5-5600", "8×DDR5-5600"] {
        assert_eq!(rate(&format!("modules: {modules}"), 1), peak, "{modules}");
    }
    let ratio = |of: BytesPerSec| of.get() / peak.get();
    assert!((ratio(rate("modules: 4x DDR5-5600", 1)) - 0.5).abs() < 1e-9);
    assert!((ratio(rate("modules: 16x DDR5-5600", 2)) - 2.0).abs() < 1e-9);
    let lines = [
        "{capacity: 64}",
        "{capacity: 0 GB}",
        "{capacity: 64 GB, bandwidth: 3 apples}",
        "{capacity: 64 GB, modules: DDR5-5600}",
        "{capacity: 64 GB, modules: 0x DDR5-5600}",
        "{capacity: 64 GB, modules: 8x DDR5-5600, bandwidth: 80 GB/s}",
        "{capacity: {value: 64 GB}}",
    ]
    .map(|dram| machine(dram, 1).expect_err(dram));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_gpu_on_the_hosts_memory_has_no_link_and_no_twin() {
    let error = |parts: &str| {
        let composition =
            yaml::read::<Composition>(&format!("parts: {{cpu: ryzen-ai-max-395, {parts}}}"), "inline");
        Library::default().compose(&composition.unwrap()).expect_err(parts).to_string()
    };
    let lines = [
        error("gpu: radeon-8060s, link: pcie4-x16"),
        error("gpu: {part: radeon-8060s, count: 2}"),
        error("gpu: sn40l"),
        Library::default().machine_with("apple-m2-ultra", 2).expect_err("two").to_string(),
    ];
    insta::assert_snapshot!(lines.join("\n"));
    let machine = Library::default().machine("ryzen-ai-max-395-128gb").unwrap();
    assert_eq!(machine.check(), []);
    assert_eq!(machine.devices[1].memory, machine.devices[0].memory);
}

#[test]
fn a_datasheet_gpu_follows_its_roofline_and_says_estimated() {
    let folder = tempfile::tempdir().unwrap();
    let this = folder.path().join("this.yaml");
    std::fs::write(&this, host(2).to_yaml()).unwrap();
    let library = Library { this: Some(this), ..Library::default() };
    let composition: Composition =
        yaml::read("parts: {cpu: this, gpu: H100_PCIe, link: pcie3-x16}", "inline").unwrap();
    let machine = library.compose(&composition).unwrap();
    assert_eq!(machine.name, "bench-host+h100-pcie");
    assert_eq!(machine.check(), []);
    let gpu = &machine.devices[1];
    for dtype in DType::OWN.into_iter().filter(|dtype| dtype.holds_weights()) {
        let rate = match dtype {
            DType::F32 => 0.6 * 51e12,
            DType::Fp8 | DType::Int8 => 0.463 * 1513e12,
            // Four-bit weights are widened to 16 bits.
            _ => 0.53 * 756e12,
        };
        for m in [1u64, 7, 100, 300, 2000, 100_000] {
            let estimate = gpu.gemm_time(dtype, m, 8192, 8192).unwrap();
            let compute = 2.0 * m as f64 * 8192.0 * 8192.0 / rate;
            let read = dtype.matrix_bytes(8192, 8192).as_f64() / (0.88 * 2e12);
            let cost = gpu.details.dequantisation.as_ref().expect("114 multiprocessors");
            let values = Elements::product(&[8192, 8192]);
            let weight = if dtype.is_quantised() { Dequantisation::weight(dtype) } else { 0.0 };
            let ratio = estimate.time.get() / (compute.max(read) + cost.time(weight, values).get());
            assert!((ratio - 1.0).abs() < 0.02, "{dtype} m = {m}: {ratio}");
            assert_eq!(estimate.basis, Basis::Estimated);
        }
    }
    let (phase, heads, kv_heads, head_dim) = (Phase::Prefill, 32, 8, 128);
    let prompt =
        AttentionShape { phase, batch: 2, new_tokens: 3000, past_tokens: 0, heads, kv_heads, head_dim };
    // Two-bit caches are widened too, and read at the bandwidth of memory.
    let decode =
        AttentionShape { phase: Phase::Decode, new_tokens: 1, past_tokens: 8191, batch: 64, ..prompt };
    let estimate = gpu.attention_time(DType::Int2, &decode).unwrap();
    let read = 64.0 * 8192.0 * 2.0 * 8.0 * 128.0 * 0.375 / (0.88 * 2e12);
    assert!((estimate.time.get() / read - 1.0).abs() < 1e-9, "{}", estimate.time);
    assert_eq!(estimate.basis, Basis::Estimated);
    assert!(gpu.gemm_time(DType::Int2, 1, 8192, 8192).is_err(), "nobody has such weights");
    let time = gpu.attention_time(DType::Bf16, &prompt).unwrap().time.get();
    let compute = 4.0 * 2.0 * 32.0 * 128.0 * (3000.0 * 3001.0 / 2.0) / (0.53 * 756e12);
    assert!((time / compute - 1.0).abs() < 1e-9, "{time} {compute}");
}

#[test]
fn the_fingerprint_changes_with_any_number_and_with_nothing_else() {
    let parts = MachineParts::from_host(host(2)).with_loopback(limit(200_000_000, 4e9));
    let machine = parts.machine("one").unwrap();
    let fingerprint = machine.fingerprint();
    assert_eq!(fingerprint, Machine::from_yaml(&machine.to_yaml(), "again").unwrap().fingerprint());
    assert_eq!((fingerprint.len(), fingerprint.chars().all(|c| c.is_ascii_hexdigit())), (16, true));
    let mut other = machine.clone();
    other.links[1].latency.value = other.links[1].latency.value * 1.000_000_1;
    assert_ne!(fingerprint, other.fingerprint());
}

#[test]
fn a_suspicious_machine_is_told_what_is_suspicious() {
    let mut machine =
        MachineParts::from_host(host(2)).with_loopback(limit(200_000_000, 4e9)).machine("odd").unwrap();
    machine.links.pop();
    machine.links[0].bandwidth.value = BytesPerSec::new(1e11);
    machine.memories[1].bandwidth =
        Sourced::measured(BytesPerSec::new(3e10), "2026-11-21", "fulcrum bench", 0.25);
    machine.devices[1].attention.clear();
    let gemm = machine.devices[0].gemm.get_mut(&DType::Bf16).unwrap();
    let slow = gemm.points()[0];
    let quick = GemmPoint { m: 2, time: Seconds::new(1e-6), ..slow };
    *gemm = GemmRates::new(gemm.source.clone(), vec![slow, quick]);
    let lines: Vec<_> = machine.check().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_machine_is_shown_in_eighty_columns() {
    let mut machine = Library::default().machine("example-loopback").unwrap();
    let shown = machine.to_string();
    insta::assert_snapshot!(shown);
    let long = "a-name-that-is-much-longer-than-any-column-of-the-table-could-ever-be-made";
    machine.name = "m".to_owned();
    machine.devices[0].name = long.to_owned();
    machine.memories[0].name = long.to_owned();
    machine.links[0].name = long.to_owned();
    for line in machine.to_string().lines().chain(shown.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn a_curve_is_exact_on_points_between_its_neighbours_and_admits_extrapolation(
        points in prop::collection::btree_map(1u64..1 << 40, 1.0..1e12f64, 1..6), size in 1u64..1 << 41,
    ) {
        let points: Vec<_> = points.into_iter().collect();
        let curve = curve(&points);
        for &(size, rate) in &points {
            let reading = curve.at(Bytes::new(size)).unwrap();
            prop_assert_eq!((reading.value.get(), reading.basis), (rate, Basis::Measured));
        }
        let reading = curve.at(Bytes::new(size)).unwrap();
        let (first, last) = (points[0].0, points[points.len() - 1].0);
        prop_assert_eq!(reading.basis == Basis::Extrapolated, size < first || size > last);
        let rates = points.iter().map(|p| p.1);
        let (low, high) = (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max));
        prop_assert!(reading.value.get() >= low * (1.0 - 1e-12) && reading.value.get() <= high * (1.0 + 1e-12));
    }

    #[test]
    fn no_damage_to_any_profile_makes_the_reader_panic(
        which in 0usize..2, at in 0.0..1.0f64, length in 0usize..30, put in "[-{}:,\\[\\]#&*!|>%@`\"' \\n0-9a-z.]{0,6}",
    ) {
        let text = [host(2).to_yaml(), "parts: {cpu: this, loopback: {memory: 200 MB, bandwidth: 4 GB/s}}".to_owned()][which].clone();
        let start = (at * text.len() as f64) as usize;
        let end = (start + length).min(text.len());
        let _ = Profile::from_yaml(&format!("{}{put}{}", &text[..start], &text[end..]), "fuzz");
        let _ = Profile::from_yaml(&text[..start], "cut");
    }
}
