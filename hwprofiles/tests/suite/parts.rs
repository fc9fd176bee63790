//! Parts: what their files may contain, and the laws of the machines made of them.

use hwprofiles::{
    Bytes, BytesPerSec, Composition, Curve, CurvePoint, DType, FlopPerSec, Interleave, Library, Link,
    LinkDetails, LoadCurve, LoadPoint, Machine, MemoryId, Profile, Provenance, Ratio, Seconds, Sourced,
    shipped, yaml,
};
use proptest::prelude::*;
use std::sync::OnceLock;

fn estimated<T>(value: T) -> Sourced<T> {
    Sourced::estimated(value, "test")
}

fn text_of(name: &str) -> String {
    shipped().find(|(shipped, _)| *shipped == name).expect("shipped").1.to_owned()
}

#[test]
fn a_bad_part_gets_one_message_with_its_line_and_what_would_be_right() {
    let cases = [
        ("h100-sxm", "a bare number", "value: 80 GiB", "value: 80"),
        ("h100-sxm", "no capacity", "capacity: {value: 80 GiB", "capacity: {value: 0 GB"),
        ("h100-sxm", "a peak of nothing", "f16: {value: 989 TFLOP/s", "f16: {value: 0 TFLOP/s"),
        ("h100-sxm", "an unknown confidence", "confidence: high", "confidence: total"),
        ("h100-sxm", "more than the peak", "{value: 0.87,", "{value: 1.87,"),
        ("h100-sxm", "a product beyond its peak", "bf16: {value: 0.81,", "bf16: {value: 1.1,"),
        ("h100-sxm", "a negative share", "{value: 0.87,", "{value: -0.87,"),
        ("h100-sxm", "a share that is no number", "{value: 0.87,", "{value: 87 %,"),
        ("h100-sxm", "no power", "{value: 700 W", "{value: 0 W"),
        (
            "h100-sxm",
            "more power idle than busy",
            "launch:",
            "idle_power: {value: 800 W, source: {estimated: {reason: t}}}\nlaunch:",
        ),
        ("h100-sxm", "a server with a GPU", "  link: pcie5-x16", "  link: pcie5-x16\n  gpu: t4"),
        ("h100-sxm", "a server without a link", "  link: pcie5-x16", ""),
        ("h100-sxm", "an unknown key", "launch:", "lunch:"),
        ("xeon-8460h", "no cores", "{value: 40,", "{value: 0,"),
        ("xeon-8460h", "an unknown instruction set", "  avx512:", "  avx1024:"),
        ("xeon-8460h", "streamed above resident", "{value: 20 TFLOP/s", "{value: 200 TFLOP/s"),
        ("xeon-8460h", "rows out of order", "{m: 2, share: 0.0181}", "{m: 1, share: 0.0181}"),
        ("xeon-8460h", "more rows, less time", "{m: 2, share: 0.0181}", "{m: 2, share: 0.5}"),
        ("xeon-8460h", "a share above the whole", "share: 1.0}", "share: 1.5}"),
        ("xeon-8460h", "reached above the peak", "{value: 260 GB/s", "{value: 400 GB/s"),
        ("xeon-8460h", "a clock without its unit", "{value: 2.2 GHz", "{value: 2.2"),
        ("pcie3-x16", "more than the wire", "{value: 12.15 GB/s", "{value: 22.15 GB/s"),
        ("pcie3-x16", "far faster than near", "{value: 3.8 GB/s", "{value: 12.8 GB/s"),
        ("pcie4-x16", "faster against traffic", "{value: 0.71,", "{value: 1.71,"),
        ("micron-cz120", "no latency", "{value: 275 ns", "{value: 0 ns"),
        ("nvme-gcp-1.5tb", "no writes", "write:", "written:"),
    ];
    let mut lines = Vec::new();
    for (part, name, right, wrong) in cases {
        let text = text_of(part);
        assert!(text.contains(right), "{part}: {right}");
        let error = Profile::from_yaml(&text.replacen(right, wrong, 1), part).expect_err(name);
        lines.push(format!("{name}\n    {error}"));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn curves_that_break_a_law_are_refused_at_their_line() {
    let times = |second: &str| {
        let points = format!("[{{size: 1 MB, value: 90 us}}, {{size: 2 MB, value: {second}}}]");
        text_of("pcie4-x16")
            + &format!("to_host_times: {{source: {{estimated: {{reason: t}}}}, points: {points}}}\n")
    };
    let loaded = |points: &str| {
        text_of("samsung-128gb")
            + &format!("loaded: {{source: {{estimated: {{reason: t}}}}, points: {points}}}\n")
    };
    let by_cores = |points: &str| {
        let curve =
            format!("dram:\n  by_cores: {{source: {{estimated: {{reason: t}}}}, points: {points}}}\n");
        text_of("xeon-8460h").replace("dram:\n", &curve)
    };
    assert!(Profile::from_yaml(&times("95 us"), "link").is_ok());
    assert!(Profile::from_yaml(&loaded("[{utilisation: 0.1, latency: 300 ns}]"), "cxl").is_ok());
    assert!(Profile::from_yaml(&by_cores("[{cores: 8, bandwidth: 100 GB/s}]"), "cpu").is_ok());
    let lines = [
        times("80 us"),
        loaded("[]"),
        loaded("[{utilisation: 0.5, latency: 300 ns}, {utilisation: 0.5, latency: 400 ns}]"),
        loaded("[{utilisation: 0.5, latency: 300 ns}, {utilisation: 0.9, latency: 200 ns}]"),
        by_cores("[]"),
        by_cores("[{cores: 8, bandwidth: 100 GB/s}, {cores: 8, bandwidth: 120 GB/s}]"),
        by_cores("[{cores: 41, bandwidth: 100 GB/s}]"),
    ]
    .map(|text| Profile::from_yaml(&text, "curve.yaml").expect_err("must be refused").to_string());
    insta::assert_snapshot!(lines.join("\n"));
}

fn compose(text: &str) -> Result<Machine, String> {
    let composition: Composition = yaml::read(text, "inline").map_err(|error| error.to_string())?;
    Library::default().compose(&composition).map_err(|error| error.to_string())
}

#[test]
fn a_composition_that_cannot_be_says_why() {
    let dram = "dram: {capacity: {value: 64 GB, source: {estimated: {reason: t}}}}";
    let lines = [
        "parts: {cpu: xeon-8480p}".to_owned(),
        format!("parts: {{cpu: xeon-8480p, cores: 57, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, cores: 0, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, sockets: 0, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, loopback: {{memory: 1 GB, bandwidth: 1 GB/s}}, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, cxl: {{part: samsung-128gb, count: 0}}, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, cxl: {{part: samsung-128gb, interleave: {{dram: 0, cxl: 1}}}}, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, cxl: 3, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, cxl: pcie4-x16, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, nvme: samsung-128gb, {dram}}}"),
        format!("parts: {{cpu: xeon-8480p, gpus: 8, {dram}}}"),
    ]
    .map(|text| compose(&text).expect_err(&text));
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_gpu_whose_host_issues_kernels_says_so_in_a_composition_and_in_the_machine_made_of_it() {
    let dram = "dram: {capacity: {value: 64 GB, source: {estimated: {reason: t}}}}";
    let with_gpu = |gpu: &str| format!("parts: {{cpu: xeon-8480p, {dram}, gpu: {gpu}, link: pcie5-x16}}");
    let composed = |text: &str| {
        let composition: Composition = yaml::read(text, "inline").unwrap();
        let again: Composition = yaml::read(&yaml::write(&composition), "again").unwrap();
        assert_eq!(again, composition);
        Library::default().compose(&composition).unwrap()
    };
    let machine = composed(&with_gpu("{part: h100-pcie, count: 2, issue: 10 us}"));
    let issues = machine.devices.iter().map(|device| device.issue.as_ref().map(|issue| issue.value));
    let ten = Some(Seconds::from_nanos(10_000));
    assert_eq!(issues.collect::<Vec<_>>(), [None, ten, ten]);
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "m.yaml").unwrap(), machine);
    let shown: Vec<_> = machine.to_string().split_whitespace().map(str::to_owned).collect();
    assert!(shown.join(" ").contains("issue of a kernel 10 us"), "{machine}");
    assert!(composed(&with_gpu("h100-pcie")).devices.iter().all(|device| device.issue.is_none()));
    let refused = yaml::read::<Composition>(&with_gpu("{part: h100-pcie, issue: 10}"), "inline").unwrap_err();
    assert!(refused.to_string().contains("issue"), "{refused}");
    let negative = with_gpu("{part: h100-pcie, issue: -1 us}");
    assert!(yaml::read::<Composition>(&negative, "inline").is_err());
}

#[test]
fn a_machine_whose_details_contradict_its_rates_is_told_so() {
    let mut machine = Library::default().machine("rtx2080ti-desktop").unwrap();
    assert_eq!(machine.check(), []);
    let link = &mut machine.links[0];
    link.details.far = Some(estimated(BytesPerSec::new(20e9)));
    link.details.pageable = Some(estimated(BytesPerSec::new(15e9)));
    link.details.raw = Some(estimated(BytesPerSec::new(12e9)));
    link.details.duplex = Some(estimated(Ratio::new(1.5).unwrap()));
    link.details.times = curved_link(&[(1000, 5e-6), (2000, 4e-6)]).details.times;
    let ceilings = machine.devices[0].details.ceilings.get_mut(&DType::F32).unwrap();
    let ceilings = ceilings.get_mut("avx2").unwrap();
    ceilings.cached = Some(estimated(FlopPerSec::new(2e12)));
    let lines: Vec<_> = machine.check().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn two_sockets_are_twice_one_and_half_the_cores_half_the_rate() {
    let machine = |keys: &str| {
        let dram = "dram: {capacity: {value: 64 GB, source: {estimated: {reason: t}}}}";
        compose(&format!("parts: {{cpu: xeon-8490h, {keys}{dram}}}")).unwrap()
    };
    let (one, two, half) = (machine(""), machine("sockets: 2, "), machine("cores: 30, "));
    let time = |machine: &Machine, m| machine.devices[0].gemm_time(DType::Bf16, m, 8192, 8192).unwrap().time;
    for m in [1, 5, 100, 5000] {
        assert!((time(&one, m) / time(&two, m) - 2.0).abs() < 1e-9, "m = {m}");
    }
    assert!((time(&half, 5000) / time(&one, 5000) - 2.0).abs() < 1e-9);
    // Half of the cores read as fast as all, because nobody measured otherwise.
    assert!((time(&half, 1) / time(&one, 1) - 1.0).abs() < 1e-9);
    assert_eq!(two.devices[0].cores.len(), 120);
    assert_eq!(two.devices[0].power.as_ref().unwrap().value.get(), 700.0);
    // The part does not give its power while it waits.
    let idle = two.devices[0].idle_power.as_ref().unwrap();
    assert_eq!(idle.value.get(), 700.0 * 0.3);
    assert!(matches!(idle.source, Provenance::Estimated { .. }));
}

#[test]
fn a_fork_join_takes_longer_with_more_cores_unless_the_part_states_its_own() {
    let text = |cpu: &str, cores: u64| {
        let dram = "dram: {capacity: {value: 64 GB, source: {estimated: {reason: t}}}}";
        format!("parts: {{cpu: {cpu}, cores: {cores}, {dram}}}")
    };
    let launch = |machine: &Machine| machine.devices[0].launch.value.get();
    let all = [1, 2, 8, 16, 29, 30, 64].map(|cores| launch(&compose(&text("xeon-8592p", cores)).unwrap()));
    assert!((all[0] - 1.3e-6).abs() < 1e-12 && (all[2] - 3.4e-6).abs() < 1e-12, "{all:?}");
    assert!(all.is_sorted() && all[5] == 10e-6 && all[6] == 10e-6, "{all:?}");
    let own = "\nlaunch: {value: 7 us, source: {estimated: {reason: t}}}\nsync:";
    let folder = tempfile::tempdir().unwrap();
    let part = text_of("xeon-8592p").replacen("\nsync:", own, 1);
    std::fs::write(folder.path().join("cpu.yaml"), part).unwrap();
    let library = Library { folder: folder.path().to_path_buf(), ..Library::default() };
    let machine = library.compose(&yaml::read(&text("cpu.yaml", 2), "inline").unwrap()).unwrap();
    assert_eq!(launch(&machine), 7e-6);
}

#[test]
fn what_a_device_costs_and_how_long_it_serves_comes_with_it() {
    let years = |text: &str| {
        text.replacen("\nsync:", "\nlifetime: {value: 5 y, source: {estimated: {reason: t}}}\nsync:", 1)
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gpu.yaml"), years(&text_of("h100-sxm"))).unwrap();
    std::fs::write(folder.path().join("cpu.yaml"), years(&text_of("xeon-8592p"))).unwrap();
    let library = Library { folder: folder.path().to_path_buf(), ..Library::default() };
    let dram = "dram: {capacity: {value: 64 GB, source: {estimated: {reason: t}}}}";
    let text = format!("parts: {{cpu: cpu.yaml, sockets: 2, {dram}, gpu: gpu.yaml, link: pcie5-x16}}");
    let machine = library.compose(&yaml::read(&text, "inline").unwrap()).unwrap();
    let prices: Vec<_> = machine.devices.iter().map(|d| d.price.as_ref().unwrap().value.get()).collect();
    assert_eq!(prices, [23_200.0, 30_000.0]);
    for device in &machine.devices {
        assert_eq!(device.details.lifetime.as_ref().unwrap().value.get(), 5.0);
    }
    assert!(machine.to_string().contains("lifetime 5 y"));
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "again"), Ok(machine));
}

#[test]
fn fewer_cores_read_what_the_curve_by_cores_says() {
    let curve = "dram:\n  by_cores: {source: {estimated: {reason: t}}, points: [{cores: 10, bandwidth: 100 GB/s}, {cores: 40, bandwidth: 250 GB/s}]}\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cpu.yaml"), text_of("xeon-8460h").replace("dram:\n", curve)).unwrap();
    let library = Library { folder: folder.path().to_path_buf(), ..Library::default() };
    for (cores, gigabytes) in [(5, 50.0), (10, 100.0), (25, 175.0), (40, 250.0)] {
        let text = format!(
            "parts: {{cpu: cpu.yaml, cores: {cores}, dram: {{capacity: {{value: 64 GB, source: {{estimated: {{reason: t}}}}}}}}}}"
        );
        let machine = library.compose(&yaml::read(&text, "inline").unwrap()).unwrap();
        let expected = BytesPerSec::new(gigabytes * 1e9);
        assert!((machine.memories[0].bandwidth.value / expected - 1.0).abs() < 1e-12, "{cores} cores");
    }
}

#[test]
fn a_datasheet_cpu_is_bound_by_memory_at_few_rows_and_follows_its_curve_at_many() {
    let machine = Library::default().machine("spr-a100").unwrap();
    let rate = |m: u64| {
        let time = machine.devices[0].gemm_time(DType::Bf16, m, 8192, 8192).unwrap().time;
        2.0 * m as f64 * 8192.0 * 8192.0 / time.get()
    };
    // One row takes two FLOP per two bytes of weights, at 260 GB/s.
    assert!((rate(1) / 260e9 - 1.0).abs() < 1e-3, "{}", rate(1));
    assert!((rate(64) / (0.433 * 20e12) - 1.0).abs() < 1e-3, "{}", rate(64));
    assert!((rate(1024) / 20e12 - 1.0).abs() < 1e-3, "{}", rate(1024));
    assert!((rate(100_000) / 20e12 - 1.0).abs() < 1e-3, "{}", rate(100_000));
}

fn curved_link(points: &[(u64, f64)]) -> Link {
    let point = |&(size, value)| CurvePoint { size: Bytes::new(size), value: Seconds::new(value) };
    let times = Curve { source: estimated(()).source, points: points.iter().map(point).collect() };
    Link {
        name: "up".to_owned(),
        from: MemoryId(0),
        to: MemoryId(1),
        latency: estimated(Seconds::new(1e-6)),
        bandwidth: estimated(BytesPerSec::new(1e9)),
        wire: None,
        details: LinkDetails { times: Some(times), ..LinkDetails::default() },
    }
}

/// Machines of every kind of datasheet CPU.
fn hosts() -> &'static [Machine] {
    static MADE: OnceLock<Vec<Machine>> = OnceLock::new();
    let names = ["spr-a100", "gnr-h200", "gh200", "rtx4090-desktop", "kt-4090", "xeon-8480p-32c", "mi210"];
    MADE.get_or_init(|| names.map(|name| Library::default().machine(name).expect(name)).into())
}

/// Points whose sizes and times both rise.
fn rising() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((1u64..1 << 30, 1e-9..1e-3f64), 1..8).prop_map(|steps| {
        let mut last = (0, 0.0);
        let add = |(size, time)| {
            last = (last.0 + size, last.1 + time);
            last
        };
        steps.into_iter().map(add).collect()
    })
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn more_bytes_never_take_less_time_by_a_curve(points in rising(), a in 0u64..1 << 33, b in 0u64..1 << 33) {
        let link = curved_link(&points);
        let times = link.details.times.expect("a curve");
        let time = |bytes| times.time_of(Bytes::new(bytes)).unwrap();
        prop_assert!(time(a.min(b)) <= time(a.max(b)) * (1.0 + 1e-12));
        for &(size, seconds) in &points {
            prop_assert_eq!(time(size).get(), seconds);
        }
    }

    #[test]
    fn more_rows_never_take_less_time_on_any_shipped_cpu(m in 1u64..3000, more in 1u64..3000) {
        for machine in hosts() {
            let name = &machine.name;
            for dtype in DType::OWN.into_iter().filter(|dtype| dtype.holds_weights()) {
                let time = |m| machine.devices[0].gemm_time(dtype, m, 8192, 8192).unwrap().time;
                prop_assert!(time(m) <= time(m + more) * (1.0 + 1e-12), "{name} {dtype} {m} {}", m + more);
                // Never faster than reading the weights.
                let read = dtype.matrix_bytes(8192, 8192) / machine.memories[0].bandwidth.value;
                prop_assert!(time(m) >= read * (1.0 - 1e-12));
            }
        }
    }

    #[test]
    fn a_far_or_pageable_rate_is_accepted_exactly_where_it_is_no_faster(near in 1u64..60, other in 1u64..60) {
        for kind in ["far", "pageable"] {
            let rate = |value: u64| format!("{{value: {value} GB/s, source: {{estimated: {{reason: t}}}}}}");
            let text = format!(
                "link: x\nlatency: {{value: 1 us, source: {{estimated: {{reason: t}}}}}}\nto_device: {0}\nto_host: {0}\n\
                 {kind}: {{to_device: {1}, to_host: {0}}}\n",
                rate(near), rate(other)
            );
            prop_assert_eq!(Profile::from_yaml(&text, "link").is_ok(), other <= near);
        }
    }

    #[test]
    fn interleaving_is_never_faster_than_both_memories_and_best_in_their_ratio(
        dram in 1u64..100, cxl in 1u64..100, pages in (1u64..20, 1u64..20),
    ) {
        let (fast, slow) = (BytesPerSec::new(dram as f64), BytesPerSec::new(cxl as f64));
        let any = Interleave { dram: pages.0, cxl: pages.1 }.bandwidth(fast, slow);
        let best = Interleave { dram, cxl }.bandwidth(fast, slow);
        prop_assert!((best / (fast + slow) - 1.0).abs() < 1e-12);
        prop_assert!(any <= (fast + slow) * (1.0 + 1e-12));
        prop_assert!(any >= fast.min(slow) * (1.0 - 1e-12));
    }

    #[test]
    fn latency_never_falls_with_load(
        steps in prop::collection::vec((0.01..0.2f64, 0.0..1e-6f64), 1..5), a in 0.001..1.0f64, b in 0.001..1.0f64,
    ) {
        let (mut utilisation, mut latency) = (0.0, 1e-7);
        let points = steps.into_iter().map(|(more, slower)| {
            utilisation += more;
            latency += slower;
            LoadPoint { utilisation: Ratio::new(utilisation).unwrap(), latency: Seconds::new(latency) }
        });
        let curve = LoadCurve { source: estimated(()).source, points: points.collect() };
        let at = |utilisation: f64| curve.at(Ratio::new(utilisation).unwrap());
        prop_assert!(at(a.min(b)) <= at(a.max(b)) * (1.0 + 1e-12));
        prop_assert!(at(a) >= curve.points[0].latency * (1.0 - 1e-12));
    }

    #[test]
    fn no_damage_to_any_part_makes_the_reader_panic(
        which in 0usize..1000, at in 0.0..1.0f64, length in 0usize..30, put in "[-{}:,\\[\\]#&*!|>%@`\"' \\n0-9a-z.]{0,6}",
    ) {
        let (name, text) = shipped().filter(|(_, text)| text.len() < 10_000).nth(which % 80).unwrap();
        let floor = |i: usize| (0..=i.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        let (start, end) = (floor((at * text.len() as f64) as usize), floor((at * text.len() as f64) as usize + length));
        let _ = Profile::from_yaml(&format!("{}{put}{}", &text[..start], &text[end..]), name);
    }
}

#[test]
fn a_link_is_its_rate_and_a_memory_its_size() {
    let machine = |link: &str, dram: &str| {
        compose(&format!("parts: {{cpu: i7-13700k, gpu: rtx-4090, link: '{link}', dram: {dram}}}"))
    };
    let plain = machine("60 GB/s", "{capacity: 64 GB}").unwrap();
    for (link, latency) in [("60 GB/s", 6e-6), ("60 GB/s, 250 ns", 250e-9)] {
        let machine = machine(link, "64 GB").unwrap();
        assert_eq!(machine.memories, plain.memories, "{link}");
        for way in &machine.links {
            assert_eq!(way.bandwidth.value, "60 GB/s".parse().unwrap(), "{link}: {}", way.name);
            assert!((way.latency.value.get() - latency).abs() < 1e-15, "{link}: {}", way.name);
        }
    }
    // A disk's or a core's memory may be slower than what carries its bytes.
    let fast = machine("120 GB/s", "64 GB").unwrap();
    for way in &fast.links {
        assert_eq!(
            way.bandwidth.value,
            fast.memory(fast.memory_named("dram").unwrap()).bandwidth.value,
            "{}",
            way.name
        );
    }
    let pool = |cxl: &str| compose(&format!("parts: {{cpu: xeon-8480p, dram: 64 GB, cxl: '{cxl}'}}"));
    for (cxl, latency) in [("1 TB, 200 GB/s", 275e-9), ("1 TB, 200 GB/s, 300 ns", 300e-9)] {
        let machine = pool(cxl).expect(cxl);
        let memory = machine.memory(machine.memory_named("cxl").expect("the pool"));
        assert_eq!(
            (memory.capacity.value.gigabytes(), memory.bandwidth.value),
            (1000.0, "200 GB/s".parse().unwrap())
        );
        assert!((memory.latency.as_ref().unwrap().value.get() - latency).abs() < 1e-15, "{cxl}");
    }
    for cxl in ["1 TB", "0 GB, 200 GB/s", "1 TB, 200 GB/s, 300 ns, 2"] {
        let told = pool(cxl).expect_err(cxl);
        assert!(told.contains("is no CXL memory: `1 TB, 200 GB/s` is some"), "{told}");
    }
    for link in ["0 GB/s", "120 GB", "120 GBps", "120 GB/s, soon"] {
        let told = machine(link, "64 GB").expect_err(link);
        assert!(told.contains(&format!("'{link}' is no link's rate: `120 GB/s` is one")), "{told}");
    }
    assert!(machine("120 GB/s", "64").expect_err("no unit").contains("64"));
}
