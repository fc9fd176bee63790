//! `fulcrum machine list | show | check`

use crate::exit::{Failure, Outcome, Sort};
use crate::inputs;
use crate::terminal::outln;
use clap::{Args, Subcommand};
use hwprofiles::Profile;
use serde_json::json;

/// Machines: list the shipped profiles, show one, check a file.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the shipped profiles, and `this` where this machine was measured.
    List,
    /// Show a machine: devices, memories, links and where their numbers come from.
    Show {
        /// `this`, a shipped name, or a file.
        machine: String,
    },
    /// Check a machine's file: what is wrong is an error, what is suspicious is listed.
    Check {
        /// `this`, a shipped name, or a file.
        machine: String,
    },
}

/// Runs it.
pub fn run(arguments: Arguments, json: bool) -> Outcome {
    match arguments.action {
        Action::List => list(json),
        Action::Show { machine } => show(&machine, json),
        Action::Check { machine } => check(&machine, json),
    }
}

fn list(json: bool) -> Outcome {
    let mut rows = Vec::new();
    for (name, text) in hwprofiles::shipped() {
        rows.push((name, Profile::from_yaml(text, name).or_failed()?.kind()));
    }
    if inputs::this_host().is_file() {
        rows.push(("this", "a host"));
    }
    for (name, kind) in &rows {
        if !json {
            outln!("{name:<20} {kind}");
        }
    }
    if json {
        let rows: Vec<_> = rows.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        outln!("{}", serde_json::to_string_pretty(&rows).or_failed()?);
    }
    Ok(())
}

fn show(name: &str, json: bool) -> Outcome {
    let machine = inputs::library().machine(name).or_input()?;
    if json {
        let facts = reports::machine_facts(&machine);
        let facts = json!({"name": machine.name, "fingerprint": machine.fingerprint(), "facts": facts});
        outln!("{}", serde_json::to_string_pretty(&facts).or_failed()?);
    } else {
        outln!("{machine}");
    }
    Ok(())
}

fn check(name: &str, json: bool) -> Outcome {
    let machine = inputs::library().machine(name).or_input()?;
    let findings = machine.check();
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
