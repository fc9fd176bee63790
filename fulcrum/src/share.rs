//! This machine's measurements and runs as files for others, without names and paths.

use crate::error::{Error, OrError, Result};
use crate::pipeline::this_host_file;
use hwprofiles::{Host, read_text, write_atomically};
use reports::{Configuration, Validation};
use scenarios::Model;
use std::path::{Path, PathBuf};

/// A machine's measurements as a part, and what was predicted and measured on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedMeasurements {
    /// The part's name, which is that of its file.
    pub name: String,
    /// The part: a `host:` file.
    pub profile: String,
    /// A table of runs as CSV, where there are any: `model`, `batch`, `prompt_tokens`,
    /// `output_tokens`, and predicted and measured `ttft` and `tpot` in seconds.
    pub runs: Option<String>,
}

/// What `fulcrum bench` measured on this machine, under `name` or one made of its parts, with the
/// runs of `validations` (files of `fulcrum validate -o`). Nothing tells whose machine it is: a
/// model that is no preset has no name.
///
/// # Errors
/// Nothing was measured here, the name is no file's, or a file is no validation.
pub fn share(name: Option<&str>, validations: &[PathBuf]) -> Result<SharedMeasurements> {
    let file = this_host_file();
    if !file.is_file() {
        return Err(Error::input("nothing was measured on this machine yet: run `fulcrum bench`"));
    }
    let host = Host::from_yaml(&read_text(&file).or_input()?, &file.display().to_string()).or_input()?;
    let name = name.map_or_else(|| host.part_name(), str::to_owned);
    // It becomes a file's name.
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        let wanted = "letters, digits and dashes are wanted, as in xeon-8481c-2-cores";
        return Err(Error::input(format!("--name {name:?}: {wanted}")));
    }
    let profile = host.shared(&name).to_yaml();
    let read = validations.iter().map(|path| Validation::read(path).or_input());
    let rows: String = read.collect::<Result<Vec<_>>>()?.iter().map(rows).collect();
    let header = "model,batch,prompt_tokens,output_tokens,ttft_predicted_s,ttft_measured_s,tpot_predicted_s,\
                  tpot_measured_s\n";
    let runs = (!rows.is_empty()).then(|| format!("{header}{rows}"));
    Ok(SharedMeasurements { name, profile, runs })
}

/// A line for each configuration.
fn rows(validation: &Validation) -> String {
    let model = match Model::preset(&validation.model) {
        Ok(model) => model.name,
        Err(_) => "another model".to_owned(),
    };
    let row = |run: &Configuration| {
        let (label, ttft) = (&run.label, run.ttft());
        let tpot = run.tpot().map(|tpot| format!("{},{}", tpot.predicted.get(), tpot.measured.get()));
        format!(
            "{model},{},{},{},{},{},{}\n",
            label.batch,
            label.prompt_tokens,
            label.output_tokens,
            ttft.predicted.get(),
            ttft.measured.get(),
            tpot.unwrap_or_else(|| ",".to_owned()),
        )
    };
    validation.configurations.iter().map(row).collect()
}

impl SharedMeasurements {
    /// Writes `NAME.yaml` and, where there are runs, `NAME-runs.csv` into `folder`; returns their
    /// paths.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let texts = std::iter::once(&self.profile).chain(&self.runs);
        let write = |(path, text)| write_atomically(&path, text).or_failed().map(|()| path);
        self.paths(folder).into_iter().zip(texts).map(write).collect()
    }

    /// The files that [`SharedMeasurements::write`] writes.
    pub fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        let profile = folder.join(format!("{}.yaml", self.name));
        let runs = self.runs.as_ref().map(|_| folder.join(format!("{}-runs.csv", self.name)));
        std::iter::once(profile).chain(runs).collect()
    }
}
