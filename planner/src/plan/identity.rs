//! Identities of the machine and the model of a document.

use crate::placement::PlanError;
use hwprofiles::{EngineExecution, GroupDivision, Machine};
use scenarios::{MachineSource, Model};
use serde::{Deserialize, Serialize};

/// A name with a fingerprint of the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Name, for people.
    pub name: String,
    /// First 16 hexadecimal digits of the content's SHA-256.
    pub fingerprint: String,
}

impl Identity {
    /// Identity of a machine.
    pub fn of_machine(machine: &Machine) -> Self {
        Self { name: machine.name.clone(), fingerprint: machine.fingerprint() }
    }

    pub(crate) fn of_model(model: &Model) -> Self {
        Self { name: model.name.clone(), fingerprint: model.fingerprint() }
    }
}

/// Where to find the machine and the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanOrigin {
    /// The machine: a name, a path, or parts.
    pub machine: MachineSource,
    /// The model: a preset's name, or a path.
    pub model: String,
    /// Exponent of Zipf's law for the popularity of experts. Absent if 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expert_skew: Option<f64>,
    /// The draft: a preset's name, or a path. Absent without a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// Number of the machine's GPUs that share a layer. Absent if 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u64>,
    /// Number of stages into which a group divides the model. Absent if 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline_parallel: Option<u64>,
    /// Whether each routed expert is whole on a GPU. Absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expert_parallel: bool,
    /// Engines with sequences of their own that share whole experts. Absent if 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_parallel: Option<u64>,
    /// What the scenario's engine adds to the machine's times. Absent with Fulcrum's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<EngineExecution>>,
}

impl PlanOrigin {
    /// How groups of the machine's GPUs divide the model.
    pub fn division(&self) -> GroupDivision {
        GroupDivision {
            tensor: self.tensor_parallel.unwrap_or(1),
            stages: self.pipeline_parallel.unwrap_or(1),
            whole_experts: self.expert_parallel,
            data: self.data_parallel.unwrap_or(1),
        }
    }

    /// The same origin with another division.
    #[must_use]
    pub fn with_division(self, division: GroupDivision) -> Self {
        let several = |count: u64| Some(count).filter(|count| *count > 1);
        Self {
            tensor_parallel: several(division.tensor),
            pipeline_parallel: several(division.stages),
            expert_parallel: division.whole_experts,
            data_parallel: several(division.data),
            ..self
        }
    }
}

pub(crate) fn check_identity(
    key: &str,
    ours: &Identity,
    name: &str,
    fingerprint: &str,
) -> Result<(), PlanError> {
    if ours.fingerprint == fingerprint {
        return Ok(());
    }
    let value = format!("'{}' ({})", ours.name, ours.fingerprint);
    let wanted = format!("this {key} is '{name}' ({fingerprint}); make a plan for it with `fulcrum plan`");
    Err(PlanError::new(&[key], value, wanted))
}
