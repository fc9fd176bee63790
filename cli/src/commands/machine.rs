//! `fulcrum machine list | show | check | fit`

use super::machine_fit;
use crate::exit::{Failure, Outcome, Sort};
use crate::inputs;
use crate::terminal::outln;
use clap::{Args, Subcommand};
use hwprofiles::Profile;
use serde_json::json;

/// Machines and their parts: list the shipped profiles, show one, check a file, fit a GPU to points.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the shipped profiles, and `this` where this machine was measured.
    List,
    /// Show a machine or a part: devices, memories, links and where their numbers come from.
    Show {
        /// `this`, a shipped name, or a file.
        machine: String,
    },
    /// Check the file of a machine or a part: what is wrong is an error, what is suspicious is listed.
    Check {
        /// `this`, a shipped name, or a file.
        machine: String,
    },
    Fit(machine_fit::Arguments),
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    match arguments.action {
        Action::List => list(json),
        Action::Show { machine } => show(&machine, json),
        Action::Check { machine } => check(&machine, json),
        Action::Fit(arguments) => machine_fit::run(arguments, json),
    }
}

/// The kinds in the order of the list, and what is said of each.
const KINDS: [(&str, &str); 8] = [
    ("a machine", "machines"),
    ("a composition", "machines made of parts"),
    ("a GPU", "GPUs; each name also stands for a machine, the GPU in its default server"),
    ("a CPU", "CPUs"),
    ("a link", "links"),
    ("CXL memory", "CXL memory"),
    ("a disk", "disks"),
    ("a host", "measured hosts"),
];

fn list(json: bool) -> Outcome {
    let mut profiles = Vec::new();
    for (name, text) in hwprofiles::shipped() {
        profiles.push((name, Profile::from_yaml(text, name).or_failed()?));
    }
    if inputs::this_host().is_file() {
        profiles.push(("this", inputs::library().profile("this").or_input()?));
    }
    if json {
        let row = |(name, profile): &(&str, Profile)| json!({"name": name, "kind": profile.kind(), "summary": profile.summary()});
        let rows: Vec<_> = profiles.iter().map(row).collect();
        outln!("{}", serde_json::to_string_pretty(&rows).or_failed()?);
        return Ok(());
    }
    let mut between = "";
    for (kind, heading) in KINDS {
        let mut group = profiles.iter().filter(|(_, profile)| profile.kind() == kind).peekable();
        if group.peek().is_some() {
            outln!("{between}{heading}");
            between = "\n";
        }
        group.for_each(|(name, profile)| outln!("  {name:<21} {}", profile.summary()));
    }
    Ok(())
}

fn show(name: &str, json: bool) -> Outcome {
    let library = inputs::library();
    let profile = library.profile(name).or_input()?;
    let sheet = profile.sheet();
    // A part is shown as its file says; a GPU or a CPU that makes a machine by itself, as that too.
    let machine = match (&sheet, &profile) {
        (None, _) => Some(library.machine(name).or_input()?),
        (Some(_), Profile::Gpu(_) | Profile::Cpu(_)) => library.machine(name).ok(),
        (Some(_), _) => None,
    };
    if json {
        let mut shown = serde_json::Map::new();
        if let Some(sheet) = &sheet {
            shown.insert("part".to_owned(), json!(sheet));
        }
        if let Some(machine) = &machine {
            shown.insert("name".to_owned(), json!(machine.name));
            shown.insert("fingerprint".to_owned(), json!(machine.fingerprint()));
            shown.insert("facts".to_owned(), json!(reports::machine_facts(machine)));
        }
        outln!("{}", serde_json::to_string_pretty(&shown).or_failed()?);
        return Ok(());
    }
    if let Some(sheet) = &sheet {
        outln!("{sheet}");
    }
    if let Some(machine) = &machine {
        if sheet.is_some() {
            outln!("As a machine:\n");
        }
        outln!("{machine}");
    }
    Ok(())
}

fn check(name: &str, json: bool) -> Outcome {
    let library = inputs::library();
    // To read a part is to check it; what is suspicious shows where the numbers meet, in a machine.
    let findings = match library.profile(name).or_input()? {
        Profile::Link(_) | Profile::Cxl(_) | Profile::Nvme(_) => Vec::new(),
        Profile::Gpu(gpu) if gpu.server.is_none() => Vec::new(),
        Profile::Cpu(cpu) if cpu.dram.capacity.is_none() => Vec::new(),
        _ => library.machine(name).or_input()?.check(),
    };
    if json {
        let findings: Vec<_> =
            findings.iter().map(|finding| json!({"key": finding.key, "message": finding.message})).collect();
        outln!("{}", serde_json::to_string_pretty(&findings).or_failed()?);
    } else if findings.is_empty() {
        outln!("{name}: nothing to complain about");
    } else {
        findings.iter().for_each(|finding| outln!("{name}: {finding}"));
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(anyhow::anyhow!("{name}: {count} findings"))),
    }
}
