//! Reads how a router scores its experts.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use crate::model::architecture::Architecture;
use crate::model::experts::{Experts, RouterScoring};

/// Reads the scores of `experts`, the groups that a token chooses first, and the factor of their
/// weights.
///
/// # Errors
/// The groups do not divide the experts, or hold fewer than a token goes to.
pub(crate) fn read_router(
    config: &DocumentSection<'_>,
    architecture: Architecture,
    experts: &mut Experts,
) -> Result<(), ScenarioError> {
    let sigmoid = matches!(
        architecture,
        Architecture::DeepSeekV3
            | Architecture::DeepSeekV32
            | Architecture::Glm4Moe
            | Architecture::GlmMoeDsa
            | Architecture::MiniMaxM2
            | Architecture::NemotronH
    );
    if architecture == Architecture::Llama4 {
        (experts.scoring, experts.normalised) = (RouterScoring::SigmoidOfInput, false);
    }
    if !sigmoid && architecture != Architecture::DeepSeekV2 {
        return Ok(());
    }
    if sigmoid {
        experts.scoring = RouterScoring::Sigmoid;
    }
    experts.weight_scale = config.positive("routed_scaling_factor")?.unwrap_or(1.0);
    let grouped = sigmoid || config.text("topk_method")? == Some("group_limited_greedy");
    let groups = config.count("n_group", experts.count)?.filter(|_| grouped).unwrap_or(1);
    if !experts.count.is_multiple_of(groups) {
        let wanted = format!("a divisor of the number of experts, which is {}, is wanted", experts.count);
        return Err(config.wrong("n_group", &wanted));
    }
    let chosen = config.count("topk_group", groups)?.filter(|_| groups > 1).unwrap_or(1);
    if experts.per_token > chosen * (experts.count / groups) {
        let wanted = format!("groups that together have the {} experts of a token", experts.per_token);
        return Err(config.wrong("topk_group", &wanted));
    }
    (experts.groups, experts.groups_per_token) = (groups, chosen);
    Ok(())
}
