//! A plan as another engine's options, and the nearest plan that the engine can run.

use super::plan_numbers::plan_numbers;
use super::prepared::export_error;
use super::resolved_plan::ResolvedPlan;
use crate::error::{OrError, Result};
use hwprofiles::write_atomically;
use planner::{Export, ExportTarget, Plan};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// A plan as the options of an engine.
#[derive(Debug, Clone)]
pub struct ExportedPlan {
    /// The engine.
    pub engine: ExportTarget,
    /// Its command and files, and what it cannot express.
    pub export: Export,
    /// The plan that was exported.
    pub plan: Plan,
    /// The plan that the engine makes of these options, simulated.
    pub nearest: Plan,
}

impl ResolvedPlan {
    /// The plan as the options of another engine.
    ///
    /// # Errors
    /// [`crate::Error::Infeasible`] where nothing that the engine can run fits,
    /// [`crate::Error::Input`] where it cannot run the model.
    pub fn export(&self, engine: ExportTarget) -> Result<Export> {
        planner::export(&self.plan, &self.machine, &self.model, engine).map_err(export_error)
    }

    /// The same with the nearest plan that the engine can run.
    ///
    /// # Errors
    /// As [`ResolvedPlan::export`].
    pub fn exported(&self, engine: ExportTarget) -> Result<ExportedPlan> {
        let export = self.export(engine)?;
        let nearest = self.evaluate(engine.name(), &export.nearest)?;
        Ok(ExportedPlan { engine, export, plan: self.plan.clone(), nearest })
    }
}

impl ExportedPlan {
    /// As JSON, with the numbers of both plans.
    pub fn to_json(&self) -> Value {
        let Export { files, command, cannot, .. } = &self.export;
        let files: Map<_, _> = files.iter().map(|(name, text)| (name.clone(), json!(text))).collect();
        json!({
            "engine": self.engine.name(),
            "command": command,
            "files": files,
            "cannot": cannot,
            "plan": plan_numbers(&self.plan),
            "nearest": plan_numbers(&self.nearest),
        })
    }

    /// Writes into a folder the files that the command reads, the command (`command.sh`) and the
    /// nearest plan (`nearest.yaml`).
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, folder: &Path) -> Result {
        let own = [format!("#!/bin/sh\n{}\n", self.export.command), self.nearest.to_yaml()];
        let texts = self.export.files.iter().map(|(_, text)| text).chain(&own);
        self.paths(folder)
            .iter()
            .zip(texts)
            .try_for_each(|(path, text)| write_atomically(path, text).or_failed())
    }

    /// The files that [`ExportedPlan::write`] writes.
    pub fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        let names = self.export.files.iter().map(|(name, _)| name.as_str());
        names.chain(["command.sh", "nearest.yaml"]).map(|name| folder.join(name)).collect()
    }
}
