//! Host files with everything that can be measured: what is written is read back, and errors are
//! refused.

use hwprofiles::{
    Bytes, BytesPerSec, CoreTeam, Crossover, Curve, CurvePoint, DType, Dram, FlopPerSec, Hertz, Host,
    HostChanges, LoadedLatency, LoadedPoint, MeasuredCeilings, Numa, NumaNode, NumaPath, PageMode, PageSize,
    PathRates, Presence, Processor, Provenance, ReadWriteMix, ReadWriteMixes, Seconds, Sourced, StoreKind,
    StreamCurve, StreamKind,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn source(spread: f64) -> Provenance {
    Provenance::Measured { date: "2026-11-21".to_owned(), command: "fulcrum bench".to_owned(), spread }
}

fn at<T>(value: T) -> CurvePoint<T> {
    CurvePoint { size: Bytes::new(1 << 20), value }
}

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: source(0.01) }
}

fn presence<T: std::fmt::Debug + Clone>(
    part: impl Strategy<Value = T>,
) -> impl Strategy<Value = Presence<T>> {
    proptest::option::of(part).prop_map(Presence::from)
}

/// A positive number of any magnitude that a measurement can have.
fn number() -> impl Strategy<Value = f64> {
    (1.0f64..10.0, 0i32..12).prop_map(|(digits, power)| digits * 10f64.powi(power))
}

prop_compose! {
    fn rates()(threads in 1usize..64, read in number(), write in number(), latency in number()) -> PathRates {
        PathRates {
            threads,
            read: sourced(BytesPerSec::new(read)),
            write: sourced(BytesPerSec::new(write)),
            latency: sourced(Seconds::new(latency)),
        }
    }
}

prop_compose! {
    /// One node with cores and one without.
    fn numa()(gap in 1usize..9, capacity: u32, own in presence(rates()), far in presence(rates())) -> Numa {
        let node = |node, cores| NumaNode { node, capacity: Bytes::new(u64::from(capacity)), cores };
        let path = |to, distance: Presence<u64>, measured| NumaPath { from: 0, to, distance, measured };
        Numa { nodes: vec![node(0, vec![0, 1]), node(gap, vec![])], paths: vec![path(0, Presence::Present(10), own), path(gap, Presence::Absent, far)] }
    }
}

prop_compose! {
    fn dram()(
        read in number(),
        latency in number(),
        loaded in presence((1usize..8, number(), number())),
        mixes in presence((1usize..8, number(), number())),
        pages in presence((any::<u32>(), number(), number())),
    ) -> Dram {
        let curve = Curve { source: source(0.0), points: vec![at(BytesPerSec::new(read))] };
        let loaded = loaded.map(|(threads, rate, time)| LoadedLatency { source: source(0.5), threads, points: vec![
            LoadedPoint { percent: 0, bandwidth: BytesPerSec::ZERO, latency: Seconds::new(time) },
            LoadedPoint { percent: 100, bandwidth: BytesPerSec::new(rate), latency: Seconds::new(2.0 * time) },
        ]});
        let mix = |reads, writes, stores, rate| ReadWriteMix { reads, writes, stores, rate: BytesPerSec::new(rate) };
        let mixes = mixes.map(|(threads, a, b)| ReadWriteMixes { source: source(0.03), threads, points: vec![
            mix(1, 0, StoreKind::None, a), mix(3, 1, StoreKind::Ordinary, b), mix(3, 1, StoreKind::NonTemporal, a),
        ]});
        let pages = pages.map(|(huge, rate, time)| [PageSize::Base, PageSize::Huge].map(|asked| PageMode {
            asked,
            size: Bytes::new(1 << 32),
            huge: sourced(Bytes::new(u64::from(huge))),
            read: sourced(BytesPerSec::new(rate)),
            latency: sourced(Seconds::new(time)),
        }).to_vec());
        Dram {
            bandwidth: vec![StreamCurve { stream: StreamKind::Read, threads: 2, curve }],
            latency: Some(Curve { source: source(0.1), points: vec![at(Seconds::new(latency))] }),
            loaded_latency: loaded,
            mixes,
            pages,
            ..Dram::new(sourced(Bytes::new(1 << 34)))
        }
    }
}

prop_compose! {
    fn host()(
        dram in dram(),
        numa in presence(numa()),
        hertz in presence(number()),
        ceilings in proptest::collection::btree_map("[a-z][a-z0-9]{0,6}", presence(number()), 0..3),
        rows in presence(1u64..512),
    ) -> Host {
        let flop = |rate: &Presence<f64>, factor| rate.clone().map(|rate| FlopPerSec::new(rate * factor));
        let ceilings: BTreeMap<_, _> = ceilings.iter().map(|(name, rate)| (name.clone(), MeasuredCeilings {
            source: source(0.02), resident: flop(rate, 4.0), cached: flop(rate, 3.0), streamed: flop(rate, 1.0),
        })).collect();
        let crossover =
            Crossover { source: source(0.02), below: "avx512".to_owned(), above: "amx".to_owned(), rows };
        Host {
            host: "bench-host".to_owned(),
            cpu: Processor { model: "Some CPU".to_owned(), cores: vec![0, 1], features: vec![] },
            dram,
            numa,
            teams: vec![CoreTeam {
                threads: 2,
                frequency: hertz.map(|hertz| sourced(Hertz::new(hertz))),
                kernels: None,
                launch: sourced(Seconds::new(1e-6)),
                gemm: BTreeMap::new(),
                ceilings: [(DType::Bf16, ceilings)].into(),
                crossover: [(DType::Bf16, crossover)].into(),
                attention: BTreeMap::new(),
                elementwise: sourced(BytesPerSec::new(8e9)),
            }],
            loopback: Presence::Absent,
            gpu: Presence::Absent,
            cxl: Presence::Absent,
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn a_host_reads_back_as_it_was_written(host in host()) {
        let text = host.to_yaml();
        prop_assert_eq!(Host::from_yaml(&text, "host.yaml"), Ok(host), "{}", text);
    }
}

const FULL: &str = "\
host: full
cpu: {model: Some CPU, cores: [0, 1]}
dram:
  capacity: {value: 8 GB, source: {estimated: {reason: for a test}}}
  bandwidth:
    - stream: read
      threads: 2
      curve: {source: {estimated: {reason: for a test}}, points: [{size: 1 GiB, value: 20 GB/s}]}
  loaded_latency:
    source: {estimated: {reason: for a test}}
    threads: 1
    points:
      - {percent: 0, bandwidth: 0 B/s, latency: 90 ns}
      - {percent: 50, bandwidth: 11 GB/s, latency: 100 ns}
  mixes:
    source: {estimated: {reason: for a test}}
    threads: 2
    points:
      - {reads: 1, writes: 0, stores: none, rate: 21 GB/s}
      - {reads: 3, writes: 1, stores: ordinary, rate: 15 GB/s}
  pages:
    - asked: huge
      size: 1 GiB
      huge: {value: 512 MiB, source: {estimated: {reason: for a test}}}
      read: {value: 22 GB/s, source: {estimated: {reason: for a test}}}
      latency: {value: 91 ns, source: {estimated: {reason: for a test}}}
numa:
  nodes:
    - {node: 0, capacity: 6 GB, cores: [0, 1]}
    - {node: 3, capacity: 2 GB, cores: []}
  paths:
    - {from: 0, to: 0, distance: 10}
    - {from: 0, to: 3, distance: 17, measured: absent}
teams:
  - threads: 2
    frequency: {value: 3.1 GHz, source: {estimated: {reason: for a test}}}
    launch: {value: 1 us, source: {estimated: {reason: for a test}}}
    elementwise: {value: 8 GB/s, source: {estimated: {reason: for a test}}}
    gemm:
      bf16:
        source: {estimated: {reason: for a test}}
        points: |
          m,n,k,time_us
          1,1024,1024,50
          16,1024,1024,70.5
    ceilings:
      bf16:
        amx: {source: {estimated: {reason: for a test}}, resident: 3 TFLOP/s, cached: 1 TFLOP/s}
    crossover:
      bf16: {source: {estimated: {reason: for a test}}, below: avx512, above: amx, rows: 9}
";

#[test]
fn what_cannot_be_is_refused_with_its_line_and_key() {
    Host::from_yaml(FULL, "host.yaml").expect("it is right as it stands");
    let cases = [
        ("pace beyond all", "percent: 50", "percent: 150"),
        ("pace twice", "percent: 50", "percent: 0"),
        ("load without rate", "bandwidth: 11 GB/s", "bandwidth: 0 B/s"),
        ("no latency", "latency: 90 ns", "latency: 0 ns"),
        ("negative latency", "latency: 90 ns", "latency: -90 ns"),
        ("no bytes", "{reads: 1, writes: 0", "{reads: 0, writes: 0"),
        ("stores of nothing", "stores: none", "stores: ordinary"),
        ("stores without a word", "stores: ordinary", "stores: none"),
        ("mix without rate", "rate: 15 GB/s", "rate: 0 GB/s"),
        ("rate that is no number", "rate: 15 GB/s", "rate: NaN GB/s"),
        ("unknown pages", "asked: huge", "asked: large"),
        ("more huge pages than pages", "value: 512 MiB", "value: 2 GiB"),
        ("pages without rate", "22 GB/s", "0 GB/s"),
        ("node twice", "node: 3", "node: 0"),
        ("path to nowhere", "to: 3", "to: 2"),
        ("path from memory alone", "{from: 0, to: 3", "{from: 3, to: 3"),
        ("path twice", "to: 3", "to: 0"),
        ("no distance at all", "distance: 17", "distance: 0"),
        ("clock at rest", "3.1 GHz", "0 GHz"),
        ("clock without unit", "3.1 GHz", "3.1"),
        ("ceiling of zero", "3 TFLOP/s", "0 TFLOP/s"),
        ("crossover at no row", "rows: 9", "rows: 0"),
    ];
    let mut lines = Vec::new();
    for (name, right, wrong) in cases {
        assert!(FULL.contains(right), "{name}");
        let error = Host::from_yaml(&FULL.replace(right, wrong), "host.yaml").expect_err(name);
        lines.push(format!("{name}\n    {error}"));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_host_of_before_these_keys_is_still_read_and_what_it_lacks_is_absent() {
    let mut old = FULL.to_owned();
    for (from, to) in [("  loaded_latency:", "numa:"), ("numa:", "teams:"), ("    frequency", "    launch")] {
        let (start, end) = (old.find(from).expect("there"), old.find(to).expect("there"));
        old.replace_range(start..end, "");
    }
    old.truncate(old.find("    gemm").expect("there"));
    let host = Host::from_yaml(&old, "old.yaml").expect("it is read");
    assert_eq!((&host.numa, &host.teams[0].frequency), (&Presence::Absent, &Presence::Absent));
    assert_eq!((&host.dram.loaded_latency, &host.dram.mixes), (&Presence::Absent, &Presence::Absent));
    assert!(host.to_yaml().contains("numa: absent"), "{}", host.to_yaml());
}

#[test]
fn a_shared_host_has_every_rate_and_no_name_or_path() {
    let secret = "/home/ada/secret-project/fulcrum bench --gpu -o /home/ada/this.yaml";
    let measured = format!("{{measured: {{date: 2026-11-21, command: {secret}, spread: 0.01}}}}");
    let own = FULL.replace("{estimated: {reason: for a test}}", &measured).replace("host: ", "host: adas-");
    let host = Host::from_yaml(&own, "host.yaml").expect("a host");
    let shared = host.shared(&host.part_name());
    let text = shared.to_yaml();
    assert!(!text.contains("ada") && !text.contains("secret") && text.contains("fulcrum bench"), "{text}");
    assert_eq!(shared.shared(&shared.host), shared, "nothing is left to take away");
    let changes = HostChanges::between(&host, &shared);
    assert!(changes.numbers.iter().all(|number| number.ratio == Some(1.0)) && changes.numbers.len() > 10);
    assert_eq!((&changes.only_a, &changes.only_b), (&vec![], &vec![]));
    let simple = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    assert!(simple(&host.part_name()) && host.part_name().ends_with("-cores"), "{}", host.part_name());
}

#[test]
fn a_host_is_shown_in_eighty_columns_with_what_is_absent() {
    let full = Host::from_yaml(FULL, "host.yaml").expect("a host");
    let bare = Host {
        numa: Presence::Absent,
        dram: Dram { bandwidth: vec![], latency: None, ..Dram::new(full.dram.capacity.clone()) },
        ..full.clone()
    };
    insta::assert_snapshot!(format!("{full}\n----\n\n{bare}"));
    assert!(full.to_string().lines().all(|line| line.chars().count() <= 80), "{full}");
}

fn changed(changes: &[(&str, &str)]) -> Host {
    let mut text = FULL.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    Host::from_yaml(&text, "host.yaml").expect("a host")
}

#[test]
fn two_hosts_are_compared_number_by_number_the_largest_change_first() {
    let measured = "{measured: {date: \"2026-11-21\", command: fulcrum bench, spread: 0.04}}";
    let (a, b) = (
        changed(&[]),
        [
            ("host: full", "host: later"),
            ("16,1024,1024,70.5", "16,1024,1024,35.25"),
            ("latency: 90 ns", "latency: 180 ns"),
            ("rate: 15 GB/s", "rate: 5 GB/s"),
            ("percent: 50", "percent: 60"),
            ("bandwidth: 0 B/s", "bandwidth: 7 B/s"),
            (
                "{value: 3.1 GHz, source: {estimated: {reason: for a test}}}",
                &format!("{{value: 3.2 GHz, source: {measured}}}"),
            ),
            ("cores: [0, 1]}\ndram", "cores: [0]}\ndram"),
            ("    - {from: 0, to: 3, distance: 17, measured: absent}\n", ""),
        ],
    );
    let changes = HostChanges::between(&a, &changed(&b));
    insta::assert_snapshot!(changes.to_string());
    assert!(changes.to_string().lines().all(|line| line.chars().count() <= 80));
    insta::assert_snapshot!("changes_as_json", serde_json::to_string_pretty(&changes).expect("JSON"));
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn a_host_beside_itself_has_not_changed_and_beside_another_changes_back(a in host(), b in host()) {
        let same = HostChanges::between(&a, &a);
        prop_assert!(same.numbers.iter().all(|change| change.ratio == Some(1.0) && change.a == change.b));
        prop_assert!(same.only_a.is_empty() && same.only_b.is_empty());
        let (there, back) = (HostChanges::between(&a, &b), HostChanges::between(&b, &a));
        prop_assert_eq!(&there.only_a, &back.only_b);
        prop_assert_eq!(there.numbers.len(), back.numbers.len());
        let sizes: Vec<_> = there.numbers.iter().map(|c| c.ratio.map_or(f64::INFINITY, |r| r.ln().abs())).collect();
        prop_assert!(sizes.is_sorted_by(|a, b| a >= b));
        for change in &there.numbers {
            let other = back.numbers.iter().find(|other| other.name == change.name).expect("both ways");
            let (Some(x), Some(y)) = (change.ratio, other.ratio) else { continue };
            prop_assert!((x * y - 1.0).abs() < 1e-9, "{} {x} {y}", change.name);
        }
    }
}
