//! A plan in words for a terminal.

use super::phase_times::{tpot, ttft};
use fulcrum::ResolvedPlan;
use hwprofiles::{TERMINAL_COLUMNS, wrapped};
use planner::PhaseTimes;
use scenarios::Workload;

/// What a plan is of: model, machine, load and what was chosen.
pub fn heading(planned: &ResolvedPlan) -> String {
    heading_of_load(planned, &planned.plan.workload)
}

/// The same for a run of another size.
pub fn heading_of_load(planned: &ResolvedPlan, load: &Workload) -> String {
    let heading = format!(
        "{} on {}: batch {}, prompt {}, output {}, {}",
        planned.model.name,
        planned.machine.name,
        load.batch,
        load.prompt_tokens,
        load.output_tokens,
        planned.plan.predicted.chosen
    );
    wrapped("", &heading, 2, TERMINAL_COLUMNS).join("\n") + "\n"
}

/// What to expect of a plan, beside what the simple rules would do.
pub fn summary(planned: &ResolvedPlan) -> String {
    let row = |name: &str, times: &PhaseTimes| {
        let [prompts, tokens] = times.rates(&planned.plan.workload);
        format!("  {name:<16} {:>12} {prompts:>8} {:>12} {tokens:>8}\n", ttft(times), tpot(times))
    };
    let predicted = &planned.plan.predicted;
    let mut text = heading(planned);
    text += &planned.machine.assumptions();
    text += &draft_line(planned);
    text += &format!("  {:<16} {:>12} {:>8} {:>12} {:>8}\n", "", "TTFT", "tok/s", "TPOT", "tok/s");
    text += &row("this plan", &predicted.simulated);
    text += &row("its bound", &predicted.bound);
    for (name, times) in &predicted.baselines {
        text += &row(name, times);
    }
    for (name, why) in &predicted.without {
        text += &format!("  {name:<16} {why}\n");
    }
    text += &planned.known_error().unwrap_or_default();
    text + &planned.formats_table()
}

/// The draft that proposes tokens, and its device; empty where there is none.
fn draft_line(planned: &ResolvedPlan) -> String {
    let plan = &planned.plan;
    let Some((draft, speculation)) = plan.draft.as_ref().zip(plan.workload.speculation) else {
        return String::new();
    };
    format!(
        "  {} on {} proposes {} tokens a step, in {};\n  a step yields {:.2} in the mean\n",
        draft.model.name,
        draft.device,
        speculation.tokens,
        draft.step,
        speculation.tokens_per_step(),
    )
}
