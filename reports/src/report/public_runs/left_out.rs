//! Public runs of CPUs that were left out in turn when constants were chosen.

use super::{PublicGroup, PublicRows};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The runs of every CPU, predicted with constants that were chosen without them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOut {
    /// The constants.
    pub constants: Vec<ChosenConstant>,
    /// The rows.
    pub rows: PublicRows,
}

/// A constant with the values that were chosen, each with its unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChosenConstant {
    /// What it is.
    pub name: String,
    /// The ends of its prior.
    pub prior: [String; 2],
    /// Its value on all runs.
    pub of_all: String,
    /// Its value without the runs of a CPU.
    pub without: BTreeMap<String, String>,
}

impl ChosenConstant {
    /// The other values that it has, with the CPUs that were left out.
    pub(super) fn others(&self) -> String {
        let mut others: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (cpu, value) in self.without.iter().filter(|(_, value)| **value != self.of_all) {
            others.entry(value).or_default().push(cpu);
        }
        let texts = others.iter().map(|(value, cpus)| format!("{value} without {}", cpus.join(", ")));
        texts.collect::<Vec<_>>().join("; ")
    }
}

impl LeftOut {
    /// Errors by set and by machine.
    pub fn groups(&self) -> Vec<PublicGroup> {
        let groups = self.rows.summary().groups.into_iter();
        groups.filter(|group| group.answered > 0 && matches!(group.by.as_str(), "set" | "machine")).collect()
    }

    /// The groups and the constants as text for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = "each CPU's runs with constants that were chosen without them\n".to_owned();
        for group in self.groups() {
            let name = format!("{}, {}", group.name, group.phase);
            let _ = writeln!(text, "  {name:<42} {}", super::text::columns(&group));
        }
        super::text::write_orders(&mut text, &self.rows.orders());
        for constant in &self.constants {
            let [low, high] = &constant.prior;
            let _ = writeln!(text, "{}: {} of {low} to {high}", constant.name, constant.of_all);
            let others = constant.others();
            if !others.is_empty() {
                let _ = writeln!(text, "  {others}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;
    use super::*;

    #[test]
    fn values_that_differ_are_told_with_the_cpus_they_are_without() {
        let without =
            [("a", "2"), ("b", "1"), ("c", "2")].map(|(cpu, value)| (cpu.to_owned(), value.to_owned()));
        let constant = ChosenConstant {
            name: "launch".to_owned(),
            prior: ["1".to_owned(), "4".to_owned()],
            of_all: "1".to_owned(),
            without: without.into(),
        };
        let left_out = LeftOut { constants: vec![constant], rows: rows() };
        let page = rows().page(Some(&left_out));
        assert!(page.contains("| launch | 1 to 4 | 1 | 2 without a, c |"), "{page}");
        let section = &page[page.find("## Each CPU left out").expect("the section")..];
        assert!(section.contains("| cpu+gpu | decode | 8 | 7 |"), "{section}");
        assert!(left_out.to_text().contains("launch: 1 of 1 to 4\n  2 without a, c"));
    }
}
