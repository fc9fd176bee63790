//! What names stand for: machines, models, scenarios.

use crate::error::{OrError, Result};
use hwprofiles::{DType, Library, Machine};
use planner::PlanOrigin;
use scenarios::{Document, MachineSpec, Model, Scenario, Setting};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The file in which `fulcrum bench` leaves its measurements and which `this` stands for:
/// `this.yaml` in `$FULCRUM_HOME`, or in `.fulcrum` in the home folder.
pub fn this_host_file() -> PathBuf {
    let home = std::env::var_os("FULCRUM_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".fulcrum")));
    home.unwrap_or_else(|| PathBuf::from(".fulcrum")).join("this.yaml")
}

/// The profiles that a name can mean: shipped ones, files, and `this` where it was measured.
pub fn machine_library() -> Library {
    let this = Some(this_host_file()).filter(|path| path.is_file());
    Library { this, folder: PathBuf::new() }
}

/// The machine of that name: `this`, a shipped one, a file, or words that describe one.
///
/// ```
/// let machine = fulcrum::machine("h100-sxm")?;
/// assert!(machine.device_named("gpu").is_some());
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// There is no such machine, or its file is wrong.
pub fn machine(name: &str) -> Result<Machine> {
    machine_library().machine_called(name, 1).or_input()
}

/// The model of that name: a folder with a `config.json`, a `config.json`, a GGUF file, or a
/// preset.
///
/// ```
/// let model = fulcrum::model("llama-3.1-8b")?;
/// assert_eq!((model.layers, model.hidden), (32, 4096));
/// # Ok::<(), fulcrum::Error>(())
/// ```
///
/// # Errors
/// There is no such model, or its file is wrong.
pub fn model(name: &str) -> Result<Model> {
    let path = Path::new(name);
    let found = if path.is_dir() {
        Model::from_folder(path)
    } else if path.is_file() && path.extension().is_some_and(|extension| extension == "gguf") {
        Model::from_gguf_file(path)
    } else if path.is_file() {
        Model::from_config_file(name, path)
    } else {
        Model::preset(name)
    };
    found.or_input()
}

/// The machine and the model that a plan, or a table of plans, was made for.
///
/// # Errors
/// One of them is missing, or cannot be divided so.
pub(crate) fn planned_for(origin: &PlanOrigin) -> Result<(Machine, Model)> {
    let division = origin.division();
    let machine = MachineSpec::from(origin.machine.clone()).machine(machine_library().this, division.gpus());
    let machine = machine.and_then(|machine| machine.with_division(division)).or_input()?;
    let machine = origin.execution.as_ref().map_or(machine.clone(), |engine| machine.run_by(engine));
    Ok((machine, model(&origin.model)?.with_expert_skew(origin.expert_skew.unwrap_or(0.0))))
}

/// A model's shape as JSON, with its totals beside it: parameters, numbers that are kept of a
/// token, bytes that are kept of a sequence whatever its length.
pub fn described(model: &Model) -> Value {
    let mut shape = serde_json::to_value(model).unwrap_or_default();
    shape["parameters"] = json!(model.parameters().get());
    shape["active_parameters"] = json!(model.active_parameters().get());
    shape["mtp_parameters"] = json!(model.mtp_parameters().get());
    shape["kv_elements_per_token"] = json!(model.growing_kv_numbers());
    shape["index_key_elements_per_token"] = json!(model.growing_index_numbers());
    shape["state_bytes_per_sequence"] = json!(model.constant_bytes(DType::Bf16).get());
    shape
}

/// Reads the scenario of a file, with settings applied in their order.
///
/// # Errors
/// The file cannot be read, or a key is unknown, missing or wrong; the error names file, line and
/// key.
pub fn read_scenario(path: &Path, settings: &[Setting]) -> Result<Scenario> {
    Document::from_file(path).or_input()?.scenario_with(settings).or_input()
}

/// Reads a scenario's YAML. Relative paths in it start at the current folder.
///
/// # Errors
/// A key is unknown, missing or wrong; the error names line and key.
pub fn parse_scenario(yaml: &str) -> Result<Scenario> {
    Document::from_yaml("scenario", yaml).or_input()?.scenario_with(&[]).or_input()
}
