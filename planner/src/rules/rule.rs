//! Simple rules of engines and other planners, which a plan must beat or follow.

use super::fit::{filled, fitting};
use super::host_and_accelerator::{HostAndAccelerator, with_host};
use super::no_rule::NoRule;
use super::{flexgen, lia, moe_lightning};
use crate::cost::CostModel;

use crate::placement::Placement;
use crate::program::BatchSteps;
use hwprofiles::{Machine, MemoryId};
use scenarios::Sublayer;

/// A rule for placing a model. Rules that fill memory ignore speeds; those of LIA and FlexGen use
/// the machine's rates in their own cost forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The host computes everything.
    AllCpu,
    /// The accelerator holds and computes everything.
    AllGpu,
    /// The accelerator has the head and as many whole layers as fit, from the last one on, with
    /// their KV; the host has the rest (llama.cpp's `-ngl`).
    FillMemory,
    /// The accelerator computes everything and streams weights from the host's memory; it holds the
    /// KV cache if that fits (Accelerate, ZeRO-Inference).
    AllStreamed,
    /// LIA's policy of six bits for each phase ([`crate::published::lia`]), then as many whole
    /// layers as fit on the accelerator. The host holds the KV cache of the other layers.
    Lia,
    /// The shares of FlexGen's linear program ([`crate::published::flexgen`]) in whole layers.
    /// Attention runs where the KV cache is in decode, and on the accelerator in prefill.
    FlexGen,
    /// The host holds the KV cache and computes attention in decode; the accelerator computes
    /// everything else and streams the weights that do not fit (MoE-Lightning: A_g = 0, F_g = 1).
    MoeLightning,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 7] = [
        Rule::AllCpu,
        Rule::AllGpu,
        Rule::FillMemory,
        Rule::AllStreamed,
        Rule::Lia,
        Rule::FlexGen,
        Rule::MoeLightning,
    ];

    /// The rule's name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Rule::AllCpu => "all-cpu",
            Rule::AllGpu => "all-gpu",
            Rule::FillMemory => "fill-memory",
            Rule::AllStreamed => "all-streamed",
            Rule::Lia => "lia",
            Rule::FlexGen => "flexgen",
            Rule::MoeLightning => "moe-lightning",
        }
    }

    /// What it does, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Rule::AllCpu => "the CPU computes everything",
            Rule::AllGpu => "the GPU holds and computes everything",
            Rule::FillMemory => "as many whole layers as fit with the GPU, the rest with the CPU",
            Rule::AllStreamed => "the GPU computes everything and fetches all weights",
            Rule::Lia => "LIA's choice of a device for each part, then whole layers that fit",
            Rule::FlexGen => "FlexGen's shares of weights and KV in whole layers",
            Rule::MoeLightning => "attention with the CPU, the GPU fetches the weights of the rest",
        }
    }

    /// The rule of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// Whether the rule streams weights. Prefill then enters in the largest steps that fit, so that
    /// weights are streamed few times.
    pub fn streams(self) -> bool {
        matches!(self, Rule::AllStreamed | Rule::Lia | Rule::FlexGen | Rule::MoeLightning)
    }

    /// The memories that may be the host's to this rule: the host's own, then those striped over
    /// it.
    pub(crate) fn host_memories(self, machine: &Machine) -> Result<Vec<MemoryId>, NoRule> {
        if self == Rule::AllGpu {
            return Ok(vec![HostAndAccelerator::accelerator(machine)?.1]);
        }
        let (host, own) = HostAndAccelerator::host(machine)?;
        let striped = machine.memory_ids().filter(|&memory| {
            let over = machine.memory(memory).stripes.iter().any(|stripe| stripe.memory == own);
            over && machine.reads_in_place(host, memory)
        });
        Ok(std::iter::once(own).chain(striped).collect())
    }

    /// The placement that follows the rule and fits, with `dram` as the host's memory.
    pub(crate) fn placement(
        self,
        cost_model: CostModel<'_>,
        dram: MemoryId,
        batch_steps: &BatchSteps,
    ) -> Result<Placement, NoRule> {
        let extent = &batch_steps.extent;
        let model = cost_model.model;
        if self == Rule::AllGpu {
            let (device, memory) = HostAndAccelerator::accelerator(cost_model.machine)?;
            return Ok(fitting(cost_model, extent, Placement::uniform(model, device, memory))?);
        }
        let (host, own) = HostAndAccelerator::host(cost_model.machine)?;
        let all_cpu = with_host(model, host, own, dram);
        if self == Rule::AllCpu {
            return Ok(fitting(cost_model, extent, all_cpu)?);
        }
        let pair = HostAndAccelerator::from_machine(cost_model.machine, dram)?;
        match self {
            Rule::AllCpu | Rule::AllGpu | Rule::FillMemory => filled(cost_model, extent, &all_cpu, &pair),
            Rule::AllStreamed => {
                let streamed = |kv| {
                    pair.placement(model, |_, _, sublayer| {
                        let home = if sublayer == Sublayer::Attention { kv } else { pair.dram };
                        (home, [pair.accelerator; 2])
                    })
                };
                let resident_kv = fitting(cost_model, extent, streamed(pair.own));
                Ok(resident_kv.or_else(|_| fitting(cost_model, extent, streamed(pair.dram)))?)
            }
            Rule::Lia => lia::placement(cost_model, batch_steps, &pair),
            Rule::FlexGen => flexgen::placement(cost_model, batch_steps, &pair),
            Rule::MoeLightning => moe_lightning::placement(cost_model, extent, &pair),
        }
    }
}
