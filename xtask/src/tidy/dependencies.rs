//! Which crate may use which, and what only one crate may hold.

use crate::workspace::{MAY_USE, Workspace};

pub fn downwards(workspace: &Workspace) -> Vec<String> {
    let mut complaints = Vec::new();
    for (member, (_, allowed)) in workspace.crates.iter().zip(MAY_USE) {
        let normal = member.manifest.split("[dev-dependencies]").next().unwrap_or("");
        for (other, _) in MAY_USE.iter().filter(|(other, _)| !allowed.contains(other)) {
            let uses =
                |line: &str| line.strip_prefix(other).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
            if normal.lines().any(uses) {
                complaints.push(format!("{} must not depend on {other}", member.name));
            }
        }
    }
    complaints
}

pub fn declared_once(workspace: &Workspace) -> Vec<String> {
    let mut complaints = Vec::new();
    for member in &workspace.crates {
        let sections = member.manifest.split("dependencies]\n").skip(1);
        let lines = sections.flat_map(|section| {
            section.lines().take_while(|line| !line.starts_with('[')).filter(|line| line.contains('='))
        });
        for line in lines.filter(|line| !line.contains("workspace")) {
            let name = &member.name;
            complaints
                .push(format!("{name}/Cargo.toml: `{line}` belongs in the root's [workspace.dependencies]"));
        }
    }
    complaints
}

pub fn unsafe_in_kernels(workspace: &Workspace) -> Vec<String> {
    let roots =
        workspace.sources().filter(|file| file.module.is_empty() && !file.path.starts_with("kernels"));
    roots
        .filter(|file| !file.text.contains("#![forbid(unsafe_code)]"))
        .map(|file| format!("{} must say #![forbid(unsafe_code)]", file.path))
        .collect()
}

/// In these crates a bare power of ten or two is a unit that lost its name.
pub fn powers_of_units(workspace: &Workspace) -> Vec<String> {
    const LITERALS: [&str; 7] = ["1e9", "1e6", "1e12", "1_000_000_000", "1073741824", "1 << 30", "1024.0"];
    let mut complaints = Vec::new();
    let guarded = ["planner/", "sim/", "scenarios/"];
    let sources = workspace.sources().filter(|file| guarded.iter().any(|name| file.path.starts_with(name)));
    for file in sources.filter(|file| !file.module.iter().any(|name| name == "laws")) {
        let product = file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or("");
        for (index, line) in product.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            for literal in LITERALS.iter().filter(|literal| code.contains(**literal)) {
                complaints.push(format!(
                    "{}:{}: {literal} belongs to hwprofiles::units",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    complaints
}
