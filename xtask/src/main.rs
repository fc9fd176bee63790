//! `cargo xtask tidy` checks the workspace, `cargo xtask reference` writes its reference pages.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use xtask::{Workspace, reference, root, tidy};

const USAGE: &str = "usage:
  cargo xtask tidy [ROOT]   check rooms, circles, names, words and sizes
  cargo xtask reference     write the pages of docs/reference";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy", ref root @ ..] if root.len() < 2 => {
            let workspace = match root {
                [root] => Workspace::read_from(Path::new(root))?,
                _ => Workspace::read()?,
            };
            let mut complaints = 0;
            for check in tidy::CHECKS {
                let found = (check.run)(&workspace);
                println!("{}: {}", check.name, if found.is_empty() { "in order" } else { "not in order" });
                found.iter().for_each(|complaint| println!("  {complaint}"));
                complaints += found.len();
            }
            if complaints > 0 {
                bail!("{complaints} complaints");
            }
            Ok(())
        }
        ["reference"] => {
            for page in reference::refresh(&Workspace::read()?, &root(), true)? {
                println!("written: {page}");
            }
            let test = ["test", "-p", "fulcrum-cli", "--test", "suite", "reference"];
            let status = Command::new(env!("CARGO")).args(test).env("UPDATE_REFERENCE", "1").status()?;
            if !status.success() {
                bail!("the page of commands could not be written");
            }
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}
