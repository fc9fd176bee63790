//! The plans that a page asked for last.

use crate::error::Result;
use crate::pipeline::ResolvedPlan;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A page shows two machines, and points of their curves; each point is asked for once.
const KEPT: usize = 4;

/// The last plans, each with its scenario, the latest last.
#[derive(Debug, Default)]
pub(super) struct RecentPlans(Mutex<VecDeque<(Value, Arc<ResolvedPlan>)>>);

impl RecentPlans {
    /// The plan of a scenario: one that is kept, or what `make` makes.
    ///
    /// # Errors
    /// Those of `make`, which are not kept.
    pub(super) fn plan(
        &self,
        scenario: &Value,
        make: impl FnOnce() -> Result<ResolvedPlan>,
    ) -> Result<Arc<ResolvedPlan>> {
        if let Some((_, plan)) = self.all().iter().find(|(known, _)| known == scenario) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(make()?);
        let mut all = self.all();
        all.push_back((scenario.clone(), plan.clone()));
        if all.len() > KEPT {
            all.pop_front();
        }
        Ok(plan)
    }

    /// Forgets all plans: what a name in a scenario means has changed.
    pub(super) fn forget(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<(Value, Arc<ResolvedPlan>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
