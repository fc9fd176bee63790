//! Memories that are striped over two others: composed, written, read and refused.

use hwprofiles::{Bytes, BytesPerSec, Composition, Library, Machine, MemoryId, MemoryKind, Profile, yaml};
use proptest::prelude::*;

fn composed(cxl: &str) -> Result<Machine, String> {
    let text = format!(
        "parts:\n  cpu: xeon-8460h\n  dram: {{capacity: {{value: 512 GB, source: {{estimated: {{reason: test}}}}}}}}\n  \
         gpu: h100-pcie\n  link: pcie5-x16\n  cxl: {cxl}\n  nvme: nvme-gcp-1.5tb\n"
    );
    let composition: Composition = yaml::read(&text, "inline").map_err(|error| error.to_string())?;
    Library::default().compose(&composition).map_err(|error| error.to_string())
}

fn rate(machine: &Machine, name: &str) -> f64 {
    machine.memory(machine.memory_named(name).unwrap()).bandwidth.value.get()
}

#[test]
fn a_machine_with_cxl_memory_has_it_and_dram_as_one_that_its_cores_read_in_place() {
    let machine = composed("{part: samsung-128gb, count: 2, interleave: {dram: 6, cxl: 1}}").unwrap();
    let [cpu, gpu] = ["cpu", "gpu"].map(|name| machine.device_named(name).unwrap());
    let [dram, cxl, both] = ["dram", "cxl", "dram+cxl"].map(|name| machine.memory_named(name).unwrap());
    let memory = machine.memory(both);
    assert_eq!((memory.kind, memory.stripes.len()), (MemoryKind::Striped, 2));
    // 256 GB of CXL memory would be full after six times as much DRAM, and there is less DRAM.
    assert_eq!(memory.capacity.value, Bytes::new(512_000_000_000 * 7 / 6));
    let expected = (rate(&machine, "dram") * 7.0 / 6.0).min(rate(&machine, "cxl") * 7.0);
    assert!((memory.bandwidth.value.get() / expected - 1.0).abs() < 1e-12);
    for home in [dram, cxl, both] {
        assert!(machine.reads_in_place(cpu, home) && !machine.reads_in_place(gpu, home));
    }
    // The GPU's wire is slower than both memories, and faster than the cards alone.
    let hbm = machine.device(gpu).memory;
    let [up, direct, striped] = [dram, cxl, both]
        .map(|from| machine.link(machine.link_between(from, hbm).unwrap()).bandwidth.value.get());
    assert!(direct < up && striped == up, "{direct} {striped} {up}");
    let link = machine.link_between(both, hbm).unwrap();
    assert_eq!(machine.wire(link), machine.link_between(dram, hbm).unwrap());
    assert_eq!(machine.check(), []);
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "again"), Ok(machine));
}

#[test]
fn pages_that_nobody_chose_suit_the_rates() {
    for name in ["spr-h100-cxl", "spr-a100-cxl", "gnr-cxl"] {
        let machine = Library::default().machine(name).unwrap();
        let both = machine.memory(machine.memory_named("dram+cxl").unwrap());
        let (dram, cxl) = (rate(&machine, "dram"), rate(&machine, "cxl"));
        let reached = both.bandwidth.value.get();
        assert!(reached > 0.97 * (dram + cxl) && reached > dram, "{name}: {reached} of {dram} + {cxl}");
        assert!(both.stripes.iter().all(|stripe| (1..=32).contains(&stripe.pages)), "{name}");
    }
}

#[test]
fn one_card_more_suits_pages_and_links_again() {
    let Ok(Profile::Cxl(card)) = Library::default().profile("samsung-128gb") else { panic!("a card") };
    let machine = Library::default().machine("spr-h100-cxl").unwrap();
    let larger = machine.with_expander(&card).unwrap();
    assert_eq!(larger.memories.len(), machine.memories.len());
    assert!(rate(&larger, "dram+cxl") > rate(&machine, "dram+cxl") + 0.5 * 17e9);
    assert_eq!(larger.check(), []);
    let plain = Library::default().machine("spr-h100").unwrap();
    let first = plain.with_expander(&card).unwrap();
    let named = |machine: &Machine| machine.memories.iter().map(|m| m.name.clone()).collect::<Vec<_>>();
    assert_eq!(named(&first), ["dram", "hbm", "cxl", "dram+cxl"]);
    assert_eq!(first.check(), []);
}

#[test]
fn a_bad_stripe_gets_one_message_with_its_line() {
    let text = composed("samsung-128gb").unwrap().to_yaml();
    let at = text.find("stripes: {").unwrap();
    let stripes = text[at..=at + text[at..].find('}').unwrap()].to_owned();
    let cases = [
        ("no pages", stripes.clone(), "stripes: {dram: 0, cxl: 1}"),
        ("too many pages", stripes.clone(), "stripes: {dram: 256, cxl: 1}"),
        ("one memory", stripes.clone(), "stripes: {dram: 2}"),
        ("three memories", stripes.clone(), "stripes: {dram: 2, cxl: 1, nvme: 1}"),
        ("unknown memory", stripes.clone(), "stripes: {dram: 2, pmem: 1}"),
        ("over itself", stripes.clone(), "stripes: {dram: 2, dram+cxl: 1}"),
        ("a number", stripes.clone(), "stripes: 3"),
        ("over nothing", stripes.clone(), "details: {}"),
        ("a rate of its own", stripes.clone(), "stripes: {dram: 2, cxl: 1}, within: dram"),
        ("of another kind", "kind: striped".to_owned(), "kind: dram"),
        ("no capacity", "kind: nvme".to_owned(), "kind: striped"),
        ("reads unknown", "reads: [cxl, \"dram+cxl\"]".to_owned(), "reads: [cxl, pmem]"),
        ("reads its own", "reads: [cxl, \"dram+cxl\"]".to_owned(), "reads: [dram]"),
        ("buffers in stripes", "memory: dram\n".to_owned(), "memory: dram+cxl\n"),
    ];
    let mut lines = Vec::new();
    for (name, right, wrong) in cases {
        assert!(text.contains(&right), "{name}: {text}");
        let error = Machine::from_yaml(&text.replacen(&right, wrong, 1), "machine.yaml").expect_err(name);
        lines.push(format!("{name}\n    {error}"));
    }
    lines.push(composed("{part: samsung-128gb, interleave: {dram: 300, cxl: 1}}").unwrap_err());
    insta::assert_snapshot!(lines.join("\n"));
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn no_byte_is_lost_and_no_memory_overfilled_by_what_fits_the_stripes(
        pages in [1u64..256, 1u64..256], capacity in [1u64..1 << 50, 1u64..1 << 50], share in 0.0..=1.0f64,
        rates in [1e9..1e12f64, 1e9..1e12f64],
    ) {
        let mut machine = composed("samsung-128gb").unwrap();
        let both = machine.memory_named("dram+cxl").unwrap();
        let parts: Vec<MemoryId> = machine.memory(both).stripes.iter().map(|stripe| stripe.memory).collect();
        for (index, &id) in parts.iter().enumerate() {
            machine.memories[id.0].capacity.value = Bytes::new(capacity[index]);
            machine.memories[id.0].bandwidth.value = BytesPerSec::new(rates[index]);
            machine.memories[both.0].stripes[index].pages = pages[index];
        }
        machine.restripe();
        let whole = machine.memory(both);
        let bytes = Bytes::new((whole.capacity.value.as_f64() * share) as u64).min(whole.capacity.value);
        let spread: Vec<_> = machine.bytes_by_memory(both, bytes).collect();
        prop_assert_eq!(spread.iter().map(|(_, part)| *part).sum::<Bytes>(), bytes);
        for (index, (id, part)) in spread.into_iter().enumerate() {
            prop_assert_eq!(id, parts[index]);
            prop_assert!(part.get() <= capacity[index] + 1);
            // Both are done when the slower one is.
            let time = part.as_f64() / rates[index];
            prop_assert!(time <= (bytes.as_f64() / whole.bandwidth.value.get()) * (1.0 + 1e-9) + 1.0 / rates[index]);
        }
    }
}

#[test]
fn a_machine_without_cxl_memory_has_no_stripes() {
    let machine = Library::default().machine("spr-h100").unwrap();
    assert!(machine.memories.iter().all(|memory| memory.stripes.is_empty()));
}
