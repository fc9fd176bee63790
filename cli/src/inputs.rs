//! What the words of the command line stand for: machines, models, scenarios.

use crate::exit::{Outcome, Sort};
use hwprofiles::Library;
use scenarios::Model;
use std::path::{Path, PathBuf};

/// Where `fulcrum bench` leaves what it measured: `$FULCRUM_HOME`, or `.fulcrum` in the home folder.
pub fn this_host() -> PathBuf {
    let home = std::env::var_os("FULCRUM_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".fulcrum")));
    home.unwrap_or_else(|| PathBuf::from(".fulcrum")).join("this.yaml")
}

/// The profiles that names can mean: shipped ones, files, and `this`.
pub fn library() -> Library {
    let this = Some(this_host()).filter(|path| path.is_file());
    Library { this, folder: PathBuf::new() }
}

/// A preset, a folder with a config.json, a config.json, or a GGUF file.
pub fn model(name: &str) -> Outcome<Model> {
    let path = Path::new(name);
    match () {
        () if path.is_dir() => Model::from_folder(path),
        () if path.is_file() && path.extension().is_some_and(|kind| kind == "gguf") => {
            Model::from_gguf_file(path)
        }
        () if path.is_file() => Model::from_config_file(name, path),
        () => Model::preset(name),
    }
    .or_input()
}
