//! Sockets as devices.

use hwprofiles::{Bytes, Library, Machine, yaml};

fn composed(text: &str) -> Result<Machine, String> {
    let composition = yaml::read(text, "inline").map_err(|error| error.to_string())?;
    Library::default().compose(&composition).map_err(|error| error.to_string())
}

fn with(sockets: &str, others: &str) -> String {
    let dram = "dram: {capacity: {value: 512 GB, source: {estimated: {reason: test}}}}";
    format!("parts: {{cpu: xeon-8460h, sockets: {sockets}, {dram}{others}}}")
}

#[test]
fn sockets_with_a_link_between_them_are_devices_that_share_nothing() {
    let whole = composed(&with("2", "")).unwrap();
    let separate = composed(&with("{count: 2, link: upi2}", "")).unwrap();
    let names = |machine: &Machine| machine.devices.iter().map(|d| d.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&whole), names(&separate)),
        (vec!["cpu".to_owned()], vec!["cpu0".into(), "cpu1".into()])
    );
    let memories: Vec<_> = separate.memories.iter().map(|m| (m.name.as_str(), m.capacity.value)).collect();
    assert_eq!(memories, [("dram0", Bytes::new(256_000_000_000)), ("dram1", Bytes::new(256_000_000_000))]);
    let rate = |machine: &Machine| machine.memories.iter().map(|m| m.bandwidth.value.get()).sum::<f64>();
    assert!((rate(&separate) / rate(&whole) - 1.0).abs() < 1e-12);
    let cores = |machine: &Machine| {
        machine.devices.iter().flat_map(|device| device.cores.clone()).collect::<Vec<_>>()
    };
    assert_eq!(cores(&separate), cores(&whole));
    let links: Vec<_> = separate.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(links, ["dram0->dram1", "dram1->dram0"]);
    assert_eq!(separate.check(), []);
    assert_eq!(Machine::from_yaml(&separate.to_yaml(), "again"), Ok(separate));
}

#[test]
fn everything_else_hangs_on_the_first_socket() {
    let others = ", gpu: h100-pcie, link: pcie5-x16, cxl: samsung-128gb, nvme: nvme-gcp-1.5tb";
    let machine = composed(&with("{count: 2, link: upi2}", others)).unwrap();
    let named = |name: &str| machine.memory_named(name).unwrap();
    let [near, far] = ["dram0", "dram1"].map(|name| machine.link_between(named(name), named("hbm")).unwrap());
    assert_eq!(machine.wire(far), near);
    let [near, far] = [near, far].map(|link| machine.link(link));
    assert!(far.latency.value > near.latency.value && far.bandwidth.value <= near.bandwidth.value);
    let [first, second] = ["cpu0", "cpu1"].map(|name| machine.device_named(name).unwrap());
    for name in ["cxl", "dram0+cxl"] {
        assert!(machine.reads_in_place(first, named(name)) && !machine.reads_in_place(second, named(name)));
    }
    assert_eq!(machine.check(), []);
    assert_eq!(Machine::from_yaml(&machine.to_yaml(), "again"), Ok(machine));
}

#[test]
fn sockets_that_cannot_be_say_why() {
    let loopback = ", loopback: {memory: 200 MB, bandwidth: 4 GB/s}";
    let lines = [
        with("0", ""),
        with("17", ""),
        with("{count: 1, link: upi2}", ""),
        with("{count: 2}", ""),
        with("{count: 2, link: samsung-128gb}", ""),
        with("two", ""),
        with("{count: 2, link: upi2}", ", cores: 45"),
        with("{count: 2, link: upi2}", loopback),
    ]
    .map(|text| composed(&text).expect_err(&text));
    insta::assert_snapshot!(lines.join("\n"));
}
