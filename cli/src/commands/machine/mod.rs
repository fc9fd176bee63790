//! `fulcrum machine list | show | check | fit`

mod fit;

use crate::text::terminal::{out_json, outln};
use clap::{Args, Subcommand};
use fit::MachineFitArguments;
use fulcrum::{Error, OrError, Result, machine_library, this_host_file};
use hwprofiles::{Machine, PartSheet, Profile, ProfileError};
use serde_json::json;

/// Machines and their parts: list the shipped profiles, show one, check a file, fit a GPU to
/// points.
#[derive(Debug, Args)]
pub struct MachineArguments {
    #[command(subcommand)]
    action: MachineAction,
}

#[derive(Debug, Subcommand)]
enum MachineAction {
    /// List the shipped profiles, and `this` where this machine was measured.
    List,
    /// Show a machine or a part: devices, memories, links and where their numbers come from.
    Show {
        /// `this`, a shipped name, a file, or words: "8x H200".
        machine: String,
    },
    /// Check the file of a machine or a part: what is wrong is an error, what is suspicious is
    /// listed.
    Check {
        /// `this`, a shipped name, or a file.
        machine: String,
    },
    Fit(MachineFitArguments),
}

impl MachineArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        match self.action {
            MachineAction::List => list(json),
            MachineAction::Show { machine } => show(&machine, json),
            MachineAction::Check { machine } => check(&machine, json),
            MachineAction::Fit(arguments) => arguments.run(json),
        }
    }
}

/// The kinds in the order of the list, each with its heading.
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

fn list(json: bool) -> Result {
    let mut profiles = Vec::new();
    for (name, text) in hwprofiles::shipped() {
        profiles.push((name, Profile::from_yaml(text, name).or_failed()?));
    }
    if this_host_file().is_file() {
        profiles.push(("this", machine_library().profile("this").or_input()?));
    }
    if json {
        let row = |(name, profile): &(&str, Profile)| json!({"name": name, "kind": profile.kind(), "summary": profile.summary()});
        out_json!(&profiles.iter().map(row).collect::<Vec<_>>());
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

fn show(name: &str, json: bool) -> Result {
    let (sheet, machine) = shown(name)?;
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
        out_json!(&shown);
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

/// A part as in its file, and the machine of that name: a GPU or a CPU that makes a machine by
/// itself is both. Words are a machine alone.
fn shown(name: &str) -> Result<(Option<PartSheet>, Option<Machine>)> {
    let library = machine_library();
    let profile = match library.profile(name) {
        Err(ProfileError::Unknown { .. }) => return Ok((None, Some(fulcrum::machine(name)?))),
        profile => profile.or_input()?,
    };
    let sheet = profile.sheet();
    let machine = match (&sheet, &profile) {
        (None, _) => Some(library.machine(name).or_input()?),
        (Some(_), Profile::Gpu(_) | Profile::Cpu(_)) => library.machine(name).ok(),
        (Some(_), _) => None,
    };
    Ok((sheet, machine))
}

fn check(name: &str, json: bool) -> Result {
    let library = machine_library();
    // Reading a part checks it. Suspicious numbers show where parts meet, in a machine.
    let findings = match library.profile(name).or_input()? {
        Profile::Link(_) | Profile::Cxl(_) | Profile::Nvme(_) => Vec::new(),
        Profile::Gpu(gpu) if gpu.server.is_none() => Vec::new(),
        Profile::Cpu(cpu) if cpu.dram.capacity.is_none() => Vec::new(),
        _ => library.machine(name).or_input()?.check(),
    };
    if json {
        let findings: Vec<_> =
            findings.iter().map(|finding| json!({"key": finding.key, "message": finding.message})).collect();
        out_json!(&findings);
    } else if findings.is_empty() {
        outln!("{name}: nothing to complain about");
    } else {
        findings.iter().for_each(|finding| outln!("{name}: {finding}"));
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Error::failed(format!("{name}: {count} findings"))),
    }
}
