//! A plan as another engine's options.

use super::plan_numbers::plan_numbers;
use super::prepared::export_error;
use super::resolved_plan::ResolvedPlan;
use crate::error::Result;
use planner::{Export, ExportTarget};
use serde_json::{Map, Value, json};

impl ResolvedPlan {
    /// The plan as the options of another engine.
    ///
    /// # Errors
    /// [`crate::Error::Infeasible`] where nothing that the engine can run fits,
    /// [`crate::Error::Input`] where it cannot run the model.
    pub fn export(&self, target: ExportTarget) -> Result<Export> {
        planner::export(&self.plan, &self.machine, &self.model, target).map_err(export_error)
    }

    /// The plan as the options of another engine, and the times of the nearest plan that it can
    /// run, as JSON.
    ///
    /// # Errors
    /// [`crate::Error::Infeasible`] where nothing that the engine can run fits,
    /// [`crate::Error::Input`] where it cannot run the model.
    pub fn exported(&self, target: ExportTarget) -> Result<Value> {
        let export = self.export(target)?;
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
