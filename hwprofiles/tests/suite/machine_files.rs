//! Machine files: what is read, what is written, what is refused.

use hwprofiles::{DType, Machine};
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../data/example-loopback.yaml");

/// A machine that is so small that line numbers in messages can be counted.
const SMALL: &str = "machine: small
devices:
  cpu:
    kind: cpu
    memory: dram
    cores: [0]
    launch: {value: 2 us, source: {estimated: {reason: test}}}
    sync: {value: 2 us, source: {estimated: {reason: test}}}
    elementwise: {value: 8 GB/s, source: {estimated: {reason: test}}}
    gemm:
      bf16:
        source: {measured: {date: 2026-11-21, command: fulcrum bench, spread: 0.02}}
        points: |
          m,n,k,time_us
          1,64,64,3
          2,64,64,4
  second:
    kind: loopback
    memory: share
    cores: [1]
    launch: {value: 2 us, source: {estimated: {reason: test}}}
    sync: {value: 2 us, source: {estimated: {reason: test}}}
    elementwise: {value: 8 GB/s, source: {estimated: {reason: test}}}
memories:
  dram:
    kind: dram
    capacity: {value: 8 GB, source: {estimated: {reason: test}}}
    bandwidth: {value: 20 GB/s, source: {estimated: {reason: test}}}
  share:
    kind: loopback
    capacity:
      value: 200 MB
      source: {estimated: {reason: test}}
    bandwidth: {value: 20 GB/s, source: {estimated: {reason: test}}}
    within: dram
links:
  up: {from: dram, to: share, latency: {value: 1 us, source: {estimated: {reason: test}}}, bandwidth: {value: 4 GB/s, source: {estimated: {reason: test}}}}
  down: {from: share, to: dram, latency: {value: 1 us, source: {estimated: {reason: test}}}, bandwidth: {value: 4 GB/s, source: {estimated: {reason: test}}}}
";

#[test]
fn the_example_machine_reads_and_keeps_the_order_of_its_file() {
    let machine = Machine::from_yaml(EXAMPLE, "example").unwrap();
    assert_eq!(machine.devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["cpu", "loopback"]);
    assert_eq!(machine.memories[1].within, machine.memory_named("dram"));
    assert!(machine.devices[1].gemm_time(DType::Int4, 3, 1000, 1000).is_ok());
    let swapped = SMALL.replace("  cpu:", "  zeta:");
    assert_eq!(Machine::from_yaml(&swapped, "zeta").unwrap().devices[0].name, "zeta");
}

#[test]
fn a_machine_reads_back_as_it_was_written() {
    for text in [EXAMPLE, SMALL] {
        let machine = Machine::from_yaml(text, "first").unwrap();
        let written = machine.to_yaml();
        assert_eq!(Machine::from_yaml(&written, "second").unwrap(), machine, "{written}");
    }
}

#[test]
fn a_machine_is_written_in_lines_that_a_person_can_read() {
    insta::assert_snapshot!(Machine::from_yaml(SMALL, "small.yaml").unwrap().to_yaml());
}

#[test]
fn a_bad_machine_file_gets_one_message_with_its_line_and_what_would_be_right() {
    let cases = [
        ("unknown key", "    memory: dram", "    memmory: dram"),
        ("unknown top key", "machine: small", "machine: small\nprice: 3"),
        ("missing unit", "value: 200 MB", "value: 200"),
        ("unknown unit", "value: 200 MB", "value: 200 Mb"),
        ("negative", "value: 200 MB", "value: -200 MB"),
        ("not a quantity", "value: 200 MB", "value: lots"),
        ("zero capacity", "value: 200 MB", "value: 0 B"),
        ("zero bandwidth", "bandwidth: {value: 20 GB/s", "bandwidth: {value: 0 GB/s"),
        ("nan", "spread: 0.02", "spread: .nan"),
        ("infinity", "spread: 0.02", "spread: .inf"),
        ("negative spread", "spread: 0.02", "spread: -1"),
        ("not a number", "spread: 0.02", "spread: small"),
        ("zero rows", "1,64,64,3", "0,64,64,3"),
        ("negative rows", "1,64,64,3", "-1,64,64,3"),
        ("zero time", "1,64,64,3", "1,64,64,0"),
        ("negative time", "1,64,64,3", "1,64,64,-3"),
        ("no time", "1,64,64,3", "1,64,64,NaN"),
        ("a value too few", "1,64,64,3", "1,64,3"),
        ("no column of times", "m,n,k,time_us", "m,n,k,time"),
        ("repeated point", "2,64,64,4", "1,64,64,4"),
        (
            "no points",
            "points: |\n          m,n,k,time_us\n          1,64,64,3\n          2,64,64,4",
            "points: []",
        ),
        ("unknown dtype", "bf16:", "bf17:"),
        ("unknown kind", "kind: loopback\n    memory", "kind: tpu\n    memory"),
        ("value over two lines", "kind: loopback\n    capacity:", "kind: loopback\n     capacity"),
        ("duplicate key", "    kind: dram", "    kind: dram\n    kind: dram"),
        ("duplicate device", "  second:", "  cpu:"),
        ("missing key", "    kind: dram\n", ""),
        ("device without memory", "    memory: dram\n", ""),
        ("device on unknown memory", "memory: share", "memory: shared"),
        ("link from unknown memory", "up: {from: dram", "up: {from: hbm"),
        ("link to itself", "up: {from: dram, to: share", "up: {from: dram, to: dram"),
        ("link twice", "down: {from: share, to: dram", "down: {from: dram, to: share"),
        ("within unknown", "within: dram", "within: hbm"),
        ("within itself", "within: dram", "within: share"),
        ("core twice", "cores: [1]", "cores: [0]"),
        ("bad name", "  second:", "  \"second device\":"),
        ("number without provenance", "{value: 8 GB/s, source: {estimated: {reason: test}}}", "8 GB/s"),
        ("unknown provenance", "{estimated: {reason: test}}", "{guessed: {reason: test}}"),
        ("not a map", "  cpu:\n    kind: cpu", "  cpu: 3\n  other:\n    kind: cpu"),
        ("not a list", "cores: [1]", "cores: 1"),
        ("broken YAML", "cores: [1]", "cores: [1"),
        ("tab", "    cores: [1]", "\tcores: [1]"),
    ];
    let mut lines = Vec::new();
    for (name, right, wrong) in cases {
        assert!(SMALL.contains(right), "{name}");
        match Machine::from_yaml(&SMALL.replacen(right, wrong, 1), "small.yaml") {
            Ok(_) => panic!("{name} was accepted"),
            Err(error) => lines.push(format!("{name}\n    {error}")),
        }
    }
    for (name, text) in [
        ("empty file", ""),
        ("no machine", "just words"),
        ("a list", "- a\n- b\n"),
        ("no devices", "machine: m\ndevices: {}\nmemories: {}\n"),
        ("two documents", "machine: m\n---\nmachine: n\n"),
    ] {
        let error = Machine::from_yaml(text, "small.yaml").expect_err(name);
        lines.push(format!("{name}\n    {error}"));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.+>/-]{1,12}"
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn any_names_and_reasons_survive_writing(
        machine_name in name(), device in name(), memory in name(), reason in "\\PC*|[\\x00-\\x7f]*", zeros in 0u32..9, digits in 1u64..10_000,
    ) {
        let mut machine = Machine::from_yaml(SMALL, "small").unwrap();
        prop_assume!(device != "second" && memory != "share");
        machine.name = machine_name;
        machine.devices[0].name = device;
        machine.memories[0].name = memory;
        machine.devices[0].launch = hwprofiles::Sourced::estimated(
            hwprofiles::Seconds::new(digits as f64 / 10f64.powi(zeros as i32)), &reason,
        );
        machine.memories[0].capacity.value = hwprofiles::Bytes::new(digits * 10u64.pow(zeros));
        let written = machine.to_yaml();
        prop_assert_eq!(Machine::from_yaml(&written, "again"), Ok(machine), "{}", written);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*|[\\x00-\\x7f]{0,200}") {
        let _ = Machine::from_yaml(&text, "fuzz");
    }

    #[test]
    fn no_damage_to_a_file_makes_the_reader_panic(
        cut in 0..SMALL.len(), at in 0..SMALL.len(), length in 0usize..20, put in "[-{}:,\\[\\]#&*!|>%@`\"' \\n\\t0-9a-z.]{0,6}",
    ) {
        let end = (at + length).min(SMALL.len());
        let damaged = format!("{}{put}{}", &SMALL[..at], &SMALL[end..]);
        let errors = [Machine::from_yaml(&SMALL[..cut], "cut").err(), Machine::from_yaml(&damaged, "fuzz").err()];
        for error in errors.into_iter().flatten() {
            prop_assert!(!error.message.is_empty() && !error.to_string().contains('\n'), "{}", error);
        }
    }
}
