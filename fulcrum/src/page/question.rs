//! The questions of a page.

use super::answers;
use super::recent_plans::RecentPlans;
use crate::error::{Error, OrError, Result};
use crate::pipeline::{CachedCatalog, PreparedScenario, ResolvedPlan};
use scenarios::Document;
use serde::Deserialize;
use serde_json::Value;

/// A question.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum PageQuestion {
    /// The machines, parts, models and engines that can be chosen.
    Catalog,
    /// The plan of a scenario.
    Plan {
        /// The scenario.
        scenario: Value,
    },
    /// What binds the plan, and what more of each resource would bring.
    Explain {
        /// The scenario.
        scenario: Value,
    },
    /// The plan's operators under the rooflines of its devices.
    Roofline {
        /// The scenario.
        scenario: Value,
    },
    /// The plan as an engine's options.
    Export {
        /// The scenario.
        scenario: Value,
        /// The engine's name.
        engine: String,
    },
}

impl PageQuestion {
    pub(super) fn answer(&self, catalog: &CachedCatalog, recent: &RecentPlans) -> Result<Value> {
        let planned = |scenario: &Value| recent.plan(scenario, || planned(scenario, catalog));
        match self {
            Self::Catalog => answers::catalog(),
            Self::Plan { scenario } => answers::plan(&*planned(scenario)?),
            Self::Explain { scenario } => answers::explanation(&*planned(scenario)?),
            Self::Roofline { scenario } => planned(scenario)?.roofline(),
            Self::Export { scenario, engine } => answers::export(&*planned(scenario)?, engine),
        }
    }
}

/// The plan of a scenario that lies in no file.
fn planned(scenario: &Value, catalog: &CachedCatalog) -> Result<ResolvedPlan> {
    let document = Document::from_yaml("scenario", &scenario.to_string()).or_input()?;
    let prepared = PreparedScenario::cached(&document.scenario_with(&[]).or_input()?, catalog)?;
    if prepared.serving().is_some() {
        return Err(Error::input(
            "the page plans a batch: `fulcrum sim` simulates requests that come and go",
        ));
    }
    prepared.plan()
}
