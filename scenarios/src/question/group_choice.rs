//! The ways to group GPUs that a scenario allows.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::GroupDivision;

/// The most GPUs of a group, and the most stages.
const MOST: u64 = 1024;

/// The ways to group GPUs that a scenario allows: each number of GPUs with each number of stages,
/// with experts divided or whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupChoice {
    /// Degrees of tensor parallelism, ascending; every one that is possible if empty.
    pub tensor: Vec<u64>,
    /// Numbers of stages, ascending; one if empty.
    pub stages: Vec<u64>,
    /// Whether experts may be whole on a GPU, and whether they may be divided; divided if empty.
    pub whole_experts: Vec<bool>,
}

impl GroupChoice {
    /// Reads `tensor_parallel`, `pipeline_parallel` and `expert_parallel`.
    pub(crate) fn read(root: &DocumentSection<'_>) -> Result<Self, ScenarioError> {
        Ok(Self {
            tensor: root.counts("tensor_parallel", MOST)?.unwrap_or_default(),
            stages: root.counts("pipeline_parallel", MOST)?.unwrap_or_default(),
            whole_experts: root.flags("expert_parallel")?.unwrap_or_default(),
        })
    }

    /// The GPUs of the largest group that is named.
    pub fn most_gpus(&self) -> u64 {
        let most = |all: &[u64]| all.last().copied().unwrap_or(1);
        most(&self.tensor) * most(&self.stages)
    }

    /// Every way, those of one stage and of divided experts first. Of several ways, those that make
    /// groups of none of the `possible` sizes are left out.
    pub(crate) fn divisions(&self, possible: &[u64]) -> Vec<GroupDivision> {
        let or = |named: &[u64], otherwise: &[u64]| if named.is_empty() { otherwise } else { named }.to_vec();
        let (degrees, stages) = (or(&self.tensor, possible), or(&self.stages, &[1]));
        let experts = if self.whole_experts.is_empty() { &[false][..] } else { &self.whole_experts };
        let mut all = Vec::new();
        for &whole_experts in experts {
            for &stages in &stages {
                for &tensor in &degrees {
                    let division =
                        GroupDivision { tensor, stages, whole_experts: whole_experts && tensor > 1 };
                    if !all.contains(&division) {
                        all.push(division);
                    }
                }
            }
        }
        // Where only degrees are named, a wrong one is an error.
        let fits = |division: &GroupDivision| possible.contains(&division.gpus());
        if stages.len() > 1 && degrees.len() > 1 || self.tensor.is_empty() && all.iter().any(fits) {
            all.retain(fits);
        }
        all
    }
}
