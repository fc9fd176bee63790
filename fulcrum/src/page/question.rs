//! The questions of a page.

use super::answers;
use super::recent_plans::RecentPlans;
use crate::error::{Error, OrError, Result};
use crate::pipeline::{CachedCatalog, PreparedScenario, plan_numbers};
use planner::Effort;
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
    /// The numbers of the solver's plan, without a search around it: for the points of a curve.
    Numbers {
        /// The scenario.
        scenario: Value,
    },
    /// What binds the plan, and what more of each resource would bring.
    Explain {
        /// The scenario.
        scenario: Value,
        /// The document of its plan, where the page has it: it is then not planned again.
        plan: Option<String>,
    },
    /// The plan's operators under the rooflines of its devices.
    Roofline {
        /// The scenario.
        scenario: Value,
        /// The document of its plan, where the page has it: it is then not planned again.
        plan: Option<String>,
    },
    /// The plan as an engine's options.
    Export {
        /// The scenario.
        scenario: Value,
        /// The document of its plan, where the page has it: it is then not planned again.
        plan: Option<String>,
        /// The engine's name.
        engine: String,
    },
}

impl PageQuestion {
    pub(super) fn answer(&self, catalog: &CachedCatalog, recent: &RecentPlans) -> Result<Value> {
        let planned = |scenario: &Value| recent.plan(scenario, || prepared(scenario, catalog)?.plan());
        let known = |scenario: &Value, plan: &Option<String>| match plan {
            Some(document) => recent.plan(scenario, || prepared(scenario, catalog)?.known_plan(document)),
            None => planned(scenario),
        };
        match self {
            Self::Catalog => answers::catalog(),
            Self::Plan { scenario } => answers::plan(&*planned(scenario)?),
            Self::Numbers { scenario } => {
                Ok(plan_numbers(&prepared(scenario, catalog)?.plan_document(Effort::SWEEP)?))
            }
            Self::Explain { scenario, plan } => answers::explanation(&*known(scenario, plan)?),
            Self::Roofline { scenario, plan } => known(scenario, plan)?.roofline(),
            Self::Export { scenario, plan, engine } => answers::export(&*known(scenario, plan)?, engine),
        }
    }
}

/// A scenario that lies in no file.
fn prepared(scenario: &Value, catalog: &CachedCatalog) -> Result<PreparedScenario> {
    let document = Document::from_yaml("scenario", &scenario.to_string()).or_input()?;
    let prepared = PreparedScenario::cached(&document.scenario_with(&[]).or_input()?, catalog)?;
    if prepared.serving().is_some() {
        return Err(Error::input(
            "the page plans a batch: `fulcrum sim` simulates requests that come and go",
        ));
    }
    Ok(prepared)
}
