//! A plan as another engine's options, for programs.

use super::plan_numbers::plan_numbers;
use super::resolved_plan::ResolvedPlan;
use crate::error::{Error, Result};
use planner::{ExportError, ExportTarget};
use serde_json::{Map, Value, json};

impl ResolvedPlan {
    /// The plan as the options of another engine, and the times of the nearest plan that it can
    /// run, as JSON.
    ///
    /// # Errors
    /// [`Error::Infeasible`] where nothing that the engine can run fits, [`Error::Input`] where it
    /// cannot run the model.
    pub fn exported(&self, target: ExportTarget) -> Result<Value> {
        let exported = planner::export(&self.plan, &self.machine, &self.model, target);
        let export = exported.map_err(|error| match error {
            ExportError::Unfit { .. } => Error::infeasible(error),
            ExportError::Unsupported { .. } | ExportError::Plan(_) => Error::input(error),
        })?;
        let nearest = self.evaluate(target.name(), &export.nearest)?;
        let files: Map<_, _> = export.files.into_iter().map(|(name, text)| (name, json!(text))).collect();
        Ok(json!({
            "engine": target.name(),
            "command": export.command,
            "files": files,
            "cannot": export.cannot,
            "nearest": plan_numbers(&nearest),
        }))
    }
}
