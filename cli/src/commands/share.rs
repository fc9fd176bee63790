//! `fulcrum share`

use crate::text::terminal::{out, out_json, outln};
use crate::written::{WRITTEN_FOLDER, refuse_inputs};
use fulcrum::{Result, share};
use serde_json::json;
use std::path::PathBuf;

/// Write what was measured on this machine as a part that others can add: without names and paths.
///
/// It is what `fulcrum bench` measured, and a table of what validations predicted and measured; a
/// model that is no preset has no name in it. Look at the files before you give them away. Others
/// name the part as a machine's `cpu`; a pull request that adds it to `hwprofiles/data/machines`
/// ships it with Fulcrum.
#[derive(Debug, clap::Args)]
pub struct ShareArguments {
    /// Results of `fulcrum validate -o` on this machine.
    #[arg(value_name = "VALIDATION")]
    validations: Vec<PathBuf>,
    /// The part's name; one made of the processor, its cores and the GPU where it is left out.
    #[arg(long)]
    name: Option<String>,
    /// The folder for the files; without it, they are printed.
    #[arg(short, long, value_name = "FOLDER", value_hint = WRITTEN_FOLDER)]
    out: Option<PathBuf>,
}

impl ShareArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        let shared = share(self.name.as_deref(), &self.validations)?;
        self.out.as_ref().map_or(Ok(()), |folder| refuse_inputs(shared.paths(folder)))?;
        let written = self.out.map(|folder| shared.write(&folder)).transpose()?;
        if json {
            let files =
                written.map(|paths| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
            let (name, profile, runs) = (&shared.name, &shared.profile, &shared.runs);
            out_json!(&json!({"name": name, "profile": profile, "runs": runs, "files": files}));
            return Ok(());
        }
        match written {
            Some(paths) => paths.iter().for_each(|path| outln!("written to {}", path.display())),
            None => {
                out!("{}{}", shared.profile, shared.runs.map(|runs| format!("\n{runs}")).unwrap_or_default())
            }
        }
        Ok(())
    }
}
