//! The turns of a run: the model's steps, and between them its draft's.

use crate::run::Draws;
use planner::{Pricing, Programs, steps};
use rand::{Rng, RngExt};
use scenarios::{Phase, Step, Workload};

/// A draft that proposes tokens in a run.
#[derive(Debug, Clone, Copy)]
pub struct Drafting<'a> {
    /// What its tasks cost.
    pub pricing: Pricing<'a>,
    /// What runs.
    pub programs: &'a Programs,
    /// Prompt tokens of a sequence that it reads in one step.
    pub chunk: u64,
    /// What it proposes, and for what.
    pub workload: Workload,
}

/// A step, and whose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Turn {
    pub draft: bool,
    pub step: Step,
    /// Whether tokens are sampled at its end.
    pub samples: bool,
    /// Output tokens that it yields, where there is a draft.
    pub tokens: Option<f64>,
}

/// A step of the model that checks what was proposed.
struct Round {
    batch: u64,
    past_tokens: u64,
    tokens: f64,
}

/// The turns of a run of `model`'s steps. A draft reads the prompts before the model does, and proposes, one token of each
/// sequence after the other, before each step in which the model checks what was proposed.
///
/// Approximate: where all that it proposed was accepted, the draft's next step would have two tokens of that sequence.
pub(crate) fn turns(
    model: &[Step],
    draft: Option<&Drafting<'_>>,
    draws: Draws,
    random: &mut impl Rng,
) -> Vec<Turn> {
    let (prompts, decodes): (Vec<Step>, Vec<Step>) =
        model.iter().partition(|step| step.phase == Phase::Prefill);
    let Some(draft) = draft else {
        let decodes =
            decodes.into_iter().map(|step| Turn { draft: false, step, samples: true, tokens: None });
        return reading(false, &prompts).chain(decodes).collect();
    };
    let workload = &draft.workload;
    let prompt = Workload::new(workload.batch, workload.prompt_tokens, 1);
    let drafts = steps(&prompt, draft.chunk);
    let mut turns: Vec<_> = reading(true, &drafts).chain(reading(false, &prompts)).collect();
    let rounds = match draws.acceptance {
        true => drawn(workload, random),
        false => mean(workload, &decodes),
    };
    for Round { batch, past_tokens, tokens } in rounds {
        let of_draft = |step| Turn { draft: true, step, samples: true, tokens: Some(0.0) };
        turns.extend((0..proposed(workload)).map(|token| of_draft(Step::decode(batch, past_tokens + token))));
        let step = Step::check(batch, workload.step_tokens(), past_tokens);
        turns.push(Turn { draft: false, step, samples: true, tokens: Some(tokens) });
    }
    turns
}

/// Prefill steps: the last one ends with a token.
fn reading(draft: bool, prompts: &[Step]) -> impl Iterator<Item = Turn> {
    let last = prompts.len().saturating_sub(1);
    let turn = move |(index, &step)| Turn { draft, step, samples: index == last, tokens: None };
    prompts.iter().enumerate().map(turn)
}

fn proposed(workload: &Workload) -> u64 {
    workload.step_tokens() - 1
}

/// All sequences get what they get in the mean.
fn mean(workload: &Workload, decodes: &[Step]) -> Vec<Round> {
    let round = |step: &Step| Round {
        batch: step.batch,
        past_tokens: step.past_tokens,
        tokens: step.batch as f64 * workload.tokens_per_step(),
    };
    decodes.iter().map(round).collect()
}

/// Each sequence gets the tokens before the first that is not accepted, and one, until it has all that it wants. Who has ended
/// leaves the batch; the others have as many tokens as they have in the mean.
fn drawn(workload: &Workload, random: &mut impl Rng) -> Vec<Round> {
    let acceptance = workload.speculation.map_or(0.0, |speculation| speculation.acceptance.get());
    let mut left = vec![workload.output_tokens.saturating_sub(1); workload.batch as usize];
    let mut rounds = Vec::new();
    loop {
        left.retain(|&left| left > 0);
        let batch = left.len() as u64;
        if batch == 0 {
            return rounds;
        }
        let wanted: u64 = left.iter().sum();
        let past_tokens = workload.prompt_tokens + workload.output_tokens - 1 - wanted.div_ceil(batch);
        for left in &mut left {
            let accepted =
                (0..proposed(workload)).take_while(|_| random.random::<f64>() < acceptance).count();
            *left -= (accepted as u64 + 1).min(*left);
        }
        let tokens = wanted - left.iter().sum::<u64>();
        rounds.push(Round { batch, past_tokens, tokens: tokens as f64 });
    }
}
