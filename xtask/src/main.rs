//! `cargo xtask tidy`: checks of the workspace's structure and words.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use std::path::Path;
use xtask::{Workspace, tidy};

const USAGE: &str = "usage: cargo xtask tidy [ROOT]    check rooms, circles, names, words and sizes";

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
        _ => bail!("{USAGE}"),
    }
}
