//! A machine's own numbers, for rows that are what a part is said to do.

use super::whole::as_name;
use hwprofiles::Machine;

/// What a machine's description says of its memories, devices and links: `dram.bandwidth`, `gpu.price`, `dram_to_hbm.latency`; in
/// bytes, bytes/s, seconds, W and USD.
pub fn described(machine: &Machine) -> Vec<(String, f64)> {
    let mut numbers = Vec::new();
    let mut say = |part: &str, what: &str, number: Option<f64>| {
        numbers.extend(number.map(|number| (format!("{}.{what}", as_name(part)), number)));
    };
    for memory in &machine.memories {
        say(&memory.name, "capacity", Some(memory.capacity.value.as_f64()));
        say(&memory.name, "bandwidth", Some(memory.bandwidth.value.get()));
        say(&memory.name, "latency", memory.latency.as_ref().map(|latency| latency.value.get()));
    }
    for device in &machine.devices {
        say(&device.name, "sync", Some(device.sync.value.get()));
        say(&device.name, "power", device.power.as_ref().map(|power| power.value.get()));
        say(&device.name, "price", device.price.as_ref().map(|price| price.value.get()));
    }
    for link in &machine.links {
        say(&link.name, "bandwidth", Some(link.bandwidth.value.get()));
        say(&link.name, "latency", Some(link.latency.value.get()));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwprofiles::Library;

    #[test]
    fn parts_say_what_they_are_by_names_that_expressions_know() {
        let machine = Library::default().machine("spr-a100").expect("shipped");
        let numbers = described(&machine);
        let named = |name: &str| numbers.iter().find(|(path, _)| path == name).expect(name).1;
        let memory = machine.memory(machine.memory_named("hbm").expect("a memory"));
        assert_eq!(named("hbm.bandwidth").to_bits(), memory.bandwidth.value.get().to_bits());
        assert_eq!(named("hbm.capacity").to_bits(), memory.capacity.value.as_f64().to_bits());
        for (name, _) in &numbers {
            assert!(scenarios::published::Expression::parse(name).is_ok(), "{name}");
        }
    }
}
