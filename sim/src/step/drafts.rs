//! The steps of a run with speculative decoding: the model's steps, and its draft's steps between
//! them.

use crate::step::random_draws::RandomDraws;
use planner::{CostModel, PhasePrograms, StepSpan, steps};
use rand::{Rng, RngExt};
use scenarios::{Phase, Step, Workload};

/// A draft that proposes tokens in a run.
#[derive(Debug, Clone, Copy)]
pub struct Drafting<'a> {
    /// The prices of its tasks.
    pub cost_model: CostModel<'a>,
    /// Its programs.
    pub programs: &'a PhasePrograms,
    /// Prompt tokens of a sequence that it reads in one step.
    pub chunk: u64,
    /// The workload that it proposes tokens for, with its speculation.
    pub workload: Workload,
}

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RunStep {
    /// Whether the draft runs it, not the model.
    pub draft: bool,
    pub step: Step,
    /// Whether tokens are sampled at its end.
    pub samples: bool,
    /// Output tokens that it yields, if there is a draft.
    pub tokens: Option<f64>,
}

/// A step of the model that checks proposed tokens.
struct CheckStep {
    batch: u64,
    past_tokens: u64,
    tokens: f64,
}

/// The steps of a run of `model`'s steps. A draft reads the prompts before the model does. Before
/// each step in which the model checks proposed tokens, the draft proposes them, one token of each
/// sequence after the other.
///
/// Approximate: if all proposed tokens of a sequence were accepted, the draft's next step would
/// have two tokens of that sequence.
pub(crate) fn run_steps(
    model: &[Step],
    draft: Option<&Drafting<'_>>,
    draws: RandomDraws,
    random: &mut impl Rng,
) -> Vec<RunStep> {
    let (prompts, decodes): (Vec<Step>, Vec<Step>) =
        model.iter().partition(|step| step.phase == Phase::Prefill);
    let Some(draft) = draft else {
        let decodes =
            decodes.into_iter().map(|step| RunStep { draft: false, step, samples: true, tokens: None });
        return prompt_steps(false, &prompts).chain(decodes).collect();
    };
    let workload = &draft.workload;
    let prompt = Workload::new(workload.batch, workload.prompt_tokens, 1);
    let drafts = steps(&prompt, draft.chunk);
    let mut run_steps: Vec<_> = prompt_steps(true, &drafts).chain(prompt_steps(false, &prompts)).collect();
    let checks = match draws.acceptance {
        true => drawn_checks(workload, random),
        false => mean_checks(workload, &decodes),
    };
    for CheckStep { batch, past_tokens, tokens } in checks {
        run_steps.extend((0..proposed(workload)).map(|token| {
            let step = Step::decode(batch, past_tokens + token);
            RunStep { draft: true, step, samples: true, tokens: Some(0.0) }
        }));
        let step = Step::verify(batch, workload.step_tokens(), past_tokens);
        run_steps.push(RunStep { draft: false, step, samples: true, tokens: Some(tokens) });
    }
    run_steps
}

/// The steps of a run that was recorded.
pub(crate) fn recorded_steps(spans: &[StepSpan]) -> Vec<RunStep> {
    let run_step = |(index, span): (usize, &StepSpan)| {
        let &StepSpan { step, draft, tokens, .. } = span;
        // Of the steps of a prompt the last one ends with a token. Those of an MTP module lie
        // between the model's.
        let next = spans[index + 1..].iter().find(|next| next.draft == draft);
        let goes_on = next.is_some_and(|next| next.step.phase == Phase::Prefill);
        let samples = step.phase == Phase::Decode || !goes_on;
        RunStep { draft, step, samples, tokens }
    };
    spans.iter().enumerate().map(run_step).collect()
}

/// Prefill steps: the last one ends with a token.
fn prompt_steps(draft: bool, prompts: &[Step]) -> impl Iterator<Item = RunStep> {
    let last = prompts.len().saturating_sub(1);
    let run_step = move |(index, &step)| RunStep { draft, step, samples: index == last, tokens: None };
    prompts.iter().enumerate().map(run_step)
}

fn proposed(workload: &Workload) -> u64 {
    workload.step_tokens() - 1
}

/// The steps in which every sequence gets the mean number of tokens.
fn mean_checks(workload: &Workload, decodes: &[Step]) -> Vec<CheckStep> {
    let check = |step: &Step| CheckStep {
        batch: step.batch,
        past_tokens: step.past_tokens,
        tokens: step.batch as f64 * workload.tokens_per_step(),
    };
    decodes.iter().map(check).collect()
}

/// The steps with drawn acceptance. Each sequence gets the tokens before the first rejected one,
/// and one more, until it has all its output tokens. A finished sequence leaves the batch. The
/// others attend to the mean of their contexts.
fn drawn_checks(workload: &Workload, random: &mut impl Rng) -> Vec<CheckStep> {
    let acceptance = workload.speculation.map_or(0.0, |speculation| speculation.acceptance.get());
    let mut left = vec![workload.output_tokens.saturating_sub(1); workload.batch as usize];
    let mut checks = Vec::new();
    loop {
        left.retain(|&left| left > 0);
        let batch = left.len() as u64;
        if batch == 0 {
            return checks;
        }
        let wanted: u64 = left.iter().sum();
        let past_tokens = workload.prompt_tokens + workload.output_tokens - 1 - wanted.div_ceil(batch);
        for left in &mut left {
            let accepted =
                (0..proposed(workload)).take_while(|_| random.random::<f64>() < acceptance).count();
            *left -= (accepted as u64 + 1).min(*left);
        }
        let tokens = wanted - left.iter().sum::<u64>();
        checks.push(CheckStep { batch, past_tokens, tokens: tokens as f64 });
    }
}
