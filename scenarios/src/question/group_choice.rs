//! The ways to group GPUs that a scenario allows.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::GroupDivision;

/// The most GPUs of a group, and the most stages.
const MOST_GPUS: u64 = 1024;

/// The ways to group GPUs that a scenario allows: each number of GPUs with each number of stages,
/// with experts divided or whole, and shared by each number of engines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupChoice {
    /// Degrees of tensor parallelism, ascending; every one that is possible if empty.
    pub tensor: Vec<u64>,
    /// Numbers of stages, ascending; one if empty.
    pub stages: Vec<u64>,
    /// Whether experts may be whole on a GPU, and whether they may be divided; divided if empty.
    pub whole_experts: Vec<bool>,
    /// Numbers of engines that share whole experts, ascending; one if empty.
    pub data: Vec<u64>,
}

impl GroupChoice {
    /// Reads `tensor_parallel`, `pipeline_parallel`, `expert_parallel` and `data_parallel`.
    pub(crate) fn read(root: &DocumentSection<'_>) -> Result<Self, ScenarioError> {
        let choice = Self {
            tensor: root.counts("tensor_parallel", MOST_GPUS)?.unwrap_or_default(),
            stages: root.counts("pipeline_parallel", MOST_GPUS)?.unwrap_or_default(),
            whole_experts: root.flags("expert_parallel")?.unwrap_or_default(),
            data: root.counts("data_parallel", MOST_GPUS)?.unwrap_or_default(),
        };
        if choice.data.iter().any(|&data| data > 1) && !choice.whole_experts.contains(&true) {
            let wanted = "engines share experts that are whole, so it goes with expert_parallel: true; engines that \
                          share nothing are side by side without it";
            return Err(root.wrong("data_parallel", wanted));
        }
        Ok(choice)
    }

    /// The GPUs of the largest group that is named.
    pub fn most_gpus(&self) -> u64 {
        let most = |all: &[u64]| all.last().copied().unwrap_or(1);
        most(&self.tensor) * most(&self.stages) * most(&self.data)
    }

    /// Every way, those of one stage and of divided experts first. Of several ways, those that make
    /// groups of none of the `possible` sizes are left out.
    pub(crate) fn divisions(&self, possible: &[u64]) -> Vec<GroupDivision> {
        let or = |named: &[u64], otherwise: &[u64]| if named.is_empty() { otherwise } else { named }.to_vec();
        let (degrees, stages) = (or(&self.tensor, possible), or(&self.stages, &[1]));
        let experts = if self.whole_experts.is_empty() { &[false][..] } else { &self.whole_experts };
        let mut all = Vec::new();
        for (&data, &whole) in
            or(&self.data, &[1]).iter().flat_map(|data| experts.iter().map(move |e| (data, e)))
        {
            for &stages in &stages {
                for &tensor in &degrees {
                    let whole_experts = whole && tensor * data > 1;
                    let division = GroupDivision { tensor, stages, whole_experts, data };
                    if !all.contains(&division) && (whole || data == 1) {
                        all.push(division);
                    }
                }
            }
        }
        // Where only degrees are named, a wrong one is an error.
        let fits = |division: &GroupDivision| possible.contains(&division.gpus());
        let several =
            [stages.len(), degrees.len(), self.data.len()].iter().filter(|&&ways| ways > 1).count() > 1;
        if several || self.tensor.is_empty() && all.iter().any(fits) {
            all.retain(fits);
        }
        all
    }
}
