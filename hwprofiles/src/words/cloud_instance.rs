//! Machines that clouds let, by their names: `g5.xlarge`, `a3-highgpu-8g`,
//! `Standard_NC24ads_A100_v4`.

/// Names with the machine in words, as Amazon's, Google's and Microsoft's pages of their instance
/// types describe them. Where a page names no CPU, the usual one of the GPU's servers is assumed.
const INSTANCES: &str = include_str!("cloud_instances.csv");

/// The machine in words that a cloud calls `name`. `None` for other names.
pub(super) fn instance_words(name: &str) -> Option<&'static str> {
    let plain = name.trim().to_lowercase().replace(['_', ' '], "-");
    let plain = plain.strip_prefix("standard-").unwrap_or(&plain);
    rows().find(|(known, _)| *known == plain).map(|(_, words)| words)
}

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    INSTANCES.lines().skip(1).filter_map(|row| row.split_once(';'))
}

#[cfg(test)]
mod tests {
    use super::rows;
    use crate::words::UnderstoodMachine;

    #[test]
    fn every_instance_is_a_machine_with_the_memory_and_gpus_of_its_row() {
        for (name, words) in rows() {
            let [by_name, by_words] = [name, words]
                .map(|line| UnderstoodMachine::read(line).unwrap_or_else(|wrong| panic!("{name}: {wrong}")));
            assert_eq!(by_name, by_words, "{name}");
            let machine = by_name.machine(1).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            assert!(!by_name.parts.is_empty() && machine.devices.len() <= 9, "{name}");
        }
    }
}
