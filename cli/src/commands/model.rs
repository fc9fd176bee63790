//! `fulcrum model list | show | init`

use crate::text::terminal::{out, out_json, outln};
use crate::written::WRITTEN_FOLDER;
use clap::{Args, Subcommand};
use fulcrum::{OrError, Result};
use hwprofiles::{TERMINAL_COLUMNS, wrapped};
use reports::ModelText;
use scenarios::Model;
use serde_json::{Value, json};
#[cfg(feature = "run")]
use std::path::PathBuf;

/// Architectures: list the presets, show one, make a model with random weights.
#[derive(Debug, Args)]
pub struct ModelArguments {
    #[command(subcommand)]
    action: ModelAction,
}

#[derive(Debug, Subcommand)]
enum ModelAction {
    /// List the presets.
    List,
    /// Show a preset, a model folder, a config.json or a GGUF file: layers, parameters, bytes.
    Show {
        /// A preset's name or another name of it, a folder, a config.json, or a GGUF file.
        model: String,
    },
    /// Make a model folder in Hugging Face form with random bf16 weights.
    #[cfg(feature = "run")]
    Init {
        /// A preset's name, a folder, or a config.json.
        model: String,
        /// The folder to make; it must not exist.
        #[arg(short, long, value_hint = WRITTEN_FOLDER)]
        out: PathBuf,
        /// Seed of the weights.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
}

impl ModelArguments {
    /// Runs the command.
    pub fn run(self, json: bool) -> Result {
        match self.action {
            ModelAction::List => list(json),
            ModelAction::Show { model } => show(&fulcrum::model(&model)?, json),
            #[cfg(feature = "run")]
            ModelAction::Init { model, out, seed } => {
                let model = fulcrum::model(&model)?;
                fulcrum::init_model(&model, &out, seed)?;
                match json {
                    true => outln!("{}", json!({"folder": out, "parameters": model.parameters()})),
                    false => {
                        outln!("{}: {} parameters, seed {seed}", out.display(), model.parameters().rounded())
                    }
                }
                Ok(())
            }
        }
    }
}

fn list(json: bool) -> Result {
    let models: Vec<_> = Model::preset_names().map(Model::preset).collect::<Result<_, _>>().or_failed()?;
    if json {
        let all: Vec<Value> = models.iter().map(fulcrum::described).collect();
        out_json!(&all);
        return Ok(());
    }
    outln!(
        "{:<26} {:>10} {:>8} {:>6} {:>9}  other names",
        "model",
        "parameters",
        "active",
        "layers",
        "context"
    );
    for model in &models {
        let aliases = Model::preset_aliases().filter(|(_, preset)| *preset == model.name);
        let aliases = aliases.map(|(alias, _)| alias).collect::<Vec<_>>().join(", ");
        // The first lines of a terminal are 80 columns wide; a longer list goes below.
        let row = format!(
            "{:<26} {:>10} {:>8} {:>6} {:>9}",
            model.name,
            model.parameters().rounded(),
            // Of dense models all are active but the rows of the token table.
            model.experts.as_ref().map_or(String::new(), |_| model.active_parameters().rounded()),
            model.layers,
            model.max_positions
        );
        let mut lines = wrapped("", &aliases, 0, TERMINAL_COLUMNS - 28).into_iter();
        match lines.next().filter(|first| row.len() + 2 + first.len() <= 80) {
            Some(first) => outln!("{row}  {first}"),
            None if aliases.is_empty() => outln!("{row}"),
            None => {
                outln!("{row}");
                wrapped("", &aliases, 0, TERMINAL_COLUMNS - 4).iter().for_each(|line| outln!("    {line}"));
                continue;
            }
        }
        lines.for_each(|line| outln!("    {line}"));
    }
    Ok(())
}

fn show(model: &Model, json: bool) -> Result {
    match json {
        true => out_json!(&fulcrum::described(model)),
        false => out!("{}", ModelText(model)),
    }
    Ok(())
}
