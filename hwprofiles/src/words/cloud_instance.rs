//! Machines that clouds let, by their names: `g5.xlarge`, `a3-highgpu-8g`,
//! `Standard_NC24ads_A100_v4`.

use crate::units::nearest_name;

/// Names with the machine in words, as Amazon's, Google's and Microsoft's pages of their instance
/// types describe them. Where a page names no CPU, the usual one of the GPU's servers is assumed.
const INSTANCES: &str = include_str!("cloud_instances.csv");

/// The machine in words that a cloud calls `name`. `None` for other names.
pub(super) fn instance_words(name: &str) -> Option<&'static str> {
    let plain = name.trim().to_lowercase().replace(['_', ' '], "-");
    let plain = plain.strip_prefix("standard-").unwrap_or(&plain);
    rows().find(|(known, _)| *known == plain).map(|(_, words)| words)
}

/// The name of a cloud's machine that is nearest to `name`.
pub(super) fn nearest_instance(name: &str) -> Option<&'static str> {
    nearest_name(name, rows().map(|(known, _)| known))
}

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    INSTANCES.lines().skip(1).filter_map(|row| row.split_once(';'))
}

#[cfg(test)]
mod tests {
    use super::{nearest_instance, rows};
    use crate::words::UnderstoodMachine;

    #[test]
    fn a_name_that_is_nearly_an_instances_is_told_it() {
        assert_eq!(nearest_instance("p5.48xlarg"), Some("p5.48xlarge"));
        let error = UnderstoodMachine::read("p5.48xlarg").unwrap_err().to_string();
        assert!(error.contains("not known: 'p5.48xlarg'; did you mean p5.48xlarge?"), "{error}");
    }

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
