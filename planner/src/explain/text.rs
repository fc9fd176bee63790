//! An explanation as text, in lines of at most 80 columns.

use super::binding::PhaseBinding;
use super::break_even::{BreakEven, Scope, TurningPoint};
use super::explanation::Explanation;
use super::worth::Worth;
use crate::explain::binding::{CHAIN, LAUNCHES};
use crate::placement::LayerGroup;
use crate::placement::Pipelining;
use crate::placement::{NamedSlice, NamedSlices};
use crate::plan::{BestRule, Plan, SearchSummary};
use crate::planning::{EDITED, FORCED, PLANNED};
use crate::program::PhaseTimes;
use hwprofiles::{Ratio, Seconds, TERMINAL_COLUMNS};
use std::fmt;

/// Gains below this share are within the solver's tolerance.
pub(super) const NOTHING: f64 = 1e-3;

impl fmt::Display for Explanation {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        head(text, &self.plan)?;
        places(text, &self.plan)?;
        self.memory(text)?;
        for phase in &self.binding {
            binding(text, phase)?;
        }
        comparison(text, &self.plan)?;
        self.break_evens(text)?;
        resource_gains(text, &self.more)?;
        parts(text, &self.parts)
    }
}

pub(super) fn head(text: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let load = &plan.workload;
    writeln!(
        text,
        "{} on {}, weights {}, KV {}",
        plan.model.name, plan.machine.name, plan.formats.weights, plan.formats.kv
    )?;
    writeln!(
        text,
        "batch {}, {} prompt tokens ({} at a time), {} output tokens, for {}",
        load.batch, load.prompt_tokens, plan.prefill_chunk, load.output_tokens, plan.objective
    )?;
    if let Some((draft, speculation)) = plan.draft.as_ref().zip(plan.workload.speculation) {
        writeln!(
            text,
            "{} on {} proposes {} tokens in {} before each step;\n  a step yields {:.2} in the mean; \
             below are the model's own steps",
            draft.model.name,
            draft.device,
            speculation.tokens,
            draft.step,
            speculation.tokens_per_step()
        )?;
    }
    if plan.staging_slots != Pipelining::default().slots {
        writeln!(text, "streamed through {} staging slots", plan.staging_slots)?;
    }
    match plan.micro_batches {
        1 => Ok(()),
        parts => writeln!(text, "each step in {parts} micro-batches"),
    }
}

fn places(text: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let words = plan.layers.iter().flat_map(LayerGroup::parts).map(|(sublayer, _)| sublayer.name().len());
    let wide = words.fold(10, usize::max);
    writeln!(text, "\n{:<7} {:<wide$} {:<17} {:<17} decode", "layers", "sublayer", "home", "prefill")?;
    let mut rows = |layers: &str, sublayer: &str, parts: &NamedSlices| -> fmt::Result {
        let shares: Vec<_> =
            parts.0.iter().filter_map(|p| p.share).map(|s| format!("{:.0} %", s * 100.0)).collect();
        let list = |word| list_words(parts, word);
        let (home, prefill, decode) = (list(|p| &p.home), list(|p| &p.prefill), list(|p| &p.decode));
        let line = format!("{layers:<7} {sublayer:<wide$} {home:<17} {prefill:<17} {decode}");
        writeln!(text, "{}", line.trim_end())?;
        if shares.is_empty() {
            Ok(())
        } else {
            writeln!(text, "{:<1$} {2}", "", wide + 8, shares.join(" + "))
        }
    };
    rows("", "embed", &plan.embed)?;
    let mut dealt: Vec<(u64, Vec<String>)> = Vec::new();
    for (at, group) in plan.layers.iter().enumerate() {
        let alike = |other: &&LayerGroup| other.parts().eq(group.parts());
        if plan.layers[..at].iter().any(|other| alike(&other)) {
            continue;
        }
        let groups: Vec<&LayerGroup> = plan.layers.iter().filter(alike).collect();
        let ranges: Vec<String> = groups.iter().map(|group| range(group.first, group.count)).collect();
        let count: u64 = groups.iter().map(|group| group.count).sum();
        let layers = if ranges.len() == 1 { ranges[0].clone() } else { format!("{count}*") };
        for (at, (sublayer, parts)) in group.parts().enumerate() {
            rows(if at == 0 { &layers } else { "" }, sublayer.name(), parts)?;
        }
        if ranges.len() > 1 {
            dealt.push((count, ranges));
        }
    }
    rows("", "head", &plan.head)?;
    for (count, ranges) in dealt {
        wrapped(text, &format!("* {count} layers: {}", ranges.join(", ")))?;
    }
    Ok(())
}

/// A name of each part, or one where all have the same.
pub(super) fn list_words(parts: &NamedSlices, word: fn(&NamedSlice) -> &String) -> String {
    let words: Vec<_> = parts.0.iter().map(|part| word(part).as_str()).collect();
    match words.windows(2).all(|pair| pair[0] == pair[1]) {
        true => words[0].to_owned(),
        false => words.join(" + "),
    }
}

/// Numbers of layers as short text, with ranges.
pub(super) fn range(first: u64, count: u64) -> String {
    if count == 1 { first.to_string() } else { format!("{first}-{}", first + count - 1) }
}

impl Explanation {
    fn memory(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = ["memory", "weights", "KV", "activations", "staging", "used of", "holds"];
        let [a, b, c, d, e, f, g] = line;
        writeln!(text, "\n{a:<10} {b:>9} {c:>9} {d:>11} {e:>9} {f:>9} {g:>9}")?;
        for filled in &self.memories {
            let (used, holds) = (&filled.used, filled.holds);
            let share = 100.0 * used.total().as_f64() / holds.as_f64().max(1.0);
            let (name, total) = (&filled.memory, used.total());
            let crate::memory::MemoryUsage { weights, kv, activations, staging, .. } = used;
            let uses = format!("{name:<10} {weights:>9} {kv:>9} {activations:>11} {staging:>9}");
            writeln!(text, "{uses} {total:>9} {holds:>9}  {share:>4.1} %")?;
        }
        Ok(())
    }

    fn break_evens(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.break_evens.is_empty() {
            let none = "No break-evens: no other device can reach what the layers read where it is.";
            writeln!(text)?;
            return wrapped(text, none);
        }
        let batches = self.break_evens.iter().map(|row| row.batch.searched).fold(0, u64::max);
        let sizes = self.break_evens.iter().filter_map(|row| Some(row.tokens?.1.searched));
        let intro = format!(
            "Break-evens: where another device would be better, weights and KV where they are. Batches up to {batches} \
             and, of the prompt in prefill and the context in decode, tokens up to {} were looked at; \
             'already': the other device is faster at the plan's own size; whether it has room for this is not checked.",
            sizes.fold(0, u64::max)
        );
        writeln!(text)?;
        wrapped(text, &intro)?;
        let [a, b, c, d, e, f] = ["layers", "phase", "moved", "from", "to", "better at a batch"];
        writeln!(text, "{a:<7} {b:<7} {c:<13} {d:<12} {e:<8} {f:<17} tokens")?;
        let mut before = None;
        for row in &self.break_evens {
            let new = before.replace((row.first, row.phase)) != Some((row.first, row.phase));
            break_even(text, row, new)?;
        }
        Ok(())
    }
}

fn break_even(text: &mut fmt::Formatter<'_>, row: &BreakEven, is_new: bool) -> fmt::Result {
    let layers = match (is_new, row.count) {
        (false, _) => String::new(),
        (true, count) if row.dealt => format!("{count}*"),
        (true, count) => range(row.first, count),
    };
    let phase = if is_new { row.phase.to_string() } else { String::new() };
    let scope = match row.scope {
        Scope::Sublayer(sublayer) => sublayer.name(),
        Scope::Matrices => "all matrices",
        Scope::Layer => "whole layer",
    };
    let (here, batch) = (row.here.join("+"), in_words(row.batch));
    let tokens = row.tokens.map_or(String::new(), |(_, turn)| in_words(turn));
    let line = format!("{layers:<7} {phase:<7} {scope:<13} {here:<12} {:<8} {batch:<17} {tokens}", row.other);
    writeln!(text, "{}", line.trim_end())
}

fn in_words(turn: TurningPoint) -> String {
    match turn {
        TurningPoint { already: true, .. } => "already".to_owned(),
        TurningPoint { from: None, up_to: None, .. } => "never".to_owned(),
        TurningPoint { from: Some(from), up_to: None, .. } => format!("from {from}"),
        TurningPoint { from: None, up_to: Some(up_to), .. } => format!("to {up_to}"),
        TurningPoint { from: Some(from), up_to: Some(up_to), .. } => format!("to {up_to}, from {from}"),
    }
}

/// What there is to say of a plan that was edited.
pub(super) const EDITED_WORDS: &str = "The plan's file was edited, or another version wrote it: its numbers are \
    predicted anew, and nothing is proven.";

/// What limits a phase.
pub(super) fn bound_words(bound_by: &str) -> String {
    match bound_by {
        CHAIN => "the chain of its tasks".to_owned(),
        busy if busy.ends_with(" bandwidth") || busy.starts_with(LAUNCHES) => format!("the {busy}"),
        lane => format!("{lane}, which is never idle"),
    }
}

fn binding(text: &mut fmt::Formatter<'_>, phase: &PhaseBinding) -> fmt::Result {
    let what = bound_words(&phase.bound_by);
    writeln!(text, "\n{}: at least {}, bound by {what}", phase.phase, phase.at_least)?;
    for busy in &phase.busy {
        let share = 100.0 * busy.share.map_or(0.0, Ratio::get);
        writeln!(text, "  {:<22} {share:>5.1} % busy, {:>5.1} % slack", busy.what, 100.0 - share)?;
    }
    Ok(())
}

fn comparison(text: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let predicted = &plan.predicted;
    let decodes = plan.workload.output_tokens.saturating_sub(1) as f64;
    let run = |times: &PhaseTimes| times.ttft + times.tpot.unwrap_or(Seconds::ZERO) * decodes;
    let own = run(&predicted.simulated);
    writeln!(text, "\n{:<22} {:>10} {:>10} {:>10}", "", "TTFT", "TPOT", "run")?;
    let mut row = |name: &str, times: &PhaseTimes, compared: bool| {
        let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
        let ratio = if compared { format!("  {:.2} x", run(times) / own) } else { String::new() };
        writeln!(text, "{name:<22} {:>10} {tpot:>10} {:>10}{ratio}", times.ttft, run(times))
    };
    row(&format!("{}, bound", predicted.chosen), &predicted.bound, false)?;
    row(&format!("{}, simulated", predicted.chosen), &predicted.simulated, false)?;
    for (name, times) in &predicted.baselines {
        row(name, times, true)?;
    }
    for (name, reason) in &predicted.without {
        wrapped(text, &format!("without {name}: {reason}"))?;
    }
    if predicted.chosen.starts_with(FORCED) {
        wrapped(text, "The placement is forced by the scenario, not planned.")?;
    } else if predicted.chosen == EDITED {
        wrapped(text, EDITED_WORDS)?;
    } else if predicted.chosen != PLANNED {
        wrapped(text, &format!("No plan of the solver beats {}: it is followed.", predicted.chosen))?;
    }
    if let Some(search) = &predicted.search {
        searched(text, search)?;
    }
    if let Some(proven) = predicted.proven {
        let (share, goal) = (100.0 * proven.get(), plan.objective);
        let words = format!(
            "Proven: no placement, even without contention, has less than {share:.1} % of its {goal}. \
             The rest is time that devices and links wait for each other, which the proof leaves out."
        );
        wrapped(text, &words)?;
    }
    if let Some(energy) = predicted.energy_per_token {
        writeln!(text, "Energy of the devices, waiting included: {energy} for each output token")?;
    }
    if let Some(cost) = predicted.cost_per_token {
        let million = cost * 1_000_000.0;
        writeln!(text, "Cost: {million} for each million output tokens")?;
    }
    Ok(())
}

/// The search that found the plan, and the best rule that a person would turn by hand.
fn searched(text: &mut fmt::Formatter<'_>, search: &SearchSummary) -> fmt::Result {
    let percent = |ratio: Ratio| 100.0 * (ratio.get() - 1.0);
    let brought = match percent(search.improvement) {
        gain if gain < 100.0 * NOTHING => "no edit of the best of them is better".to_owned(),
        gain => format!("edits of the best of them brought {gain:.1} %"),
    };
    wrapped(text, &format!("The simulator judged {} placements; {brought}.", search.judged))?;
    let Some(BestRule { rule, prefill_chunk, simulated, regret }) = &search.best_rule else {
        return wrapped(text, "No rule with one number fits.");
    };
    let tpot = simulated.tpot.map_or(String::new(), |tpot| format!(", TPOT {tpot}"));
    let words = format!(
        "The best rule with one number is {rule}, {prefill_chunk} prompt tokens at a time: TTFT {}{tpot}, \
         {:.1} % more than the plan.",
        simulated.ttft,
        percent(*regret)
    );
    wrapped(text, &words)
}

fn resource_gains(text: &mut fmt::Formatter<'_>, gains: &[Worth]) -> fmt::Result {
    if gains.is_empty() {
        return Ok(());
    }
    let (gains, nothing): (Vec<_>, Vec<_>) = gains.iter().partition(|worth| worth.gain >= NOTHING);
    writeln!(
        text,
        "\n{:<48} {:>7} {:>10} {:>10}",
        "10 % more of (launches 10 % shorter)", "gain", "TTFT", "TPOT"
    )?;
    for worth in gains {
        gain(text, worth)?;
    }
    if !nothing.is_empty() {
        let names: Vec<_> = nothing.iter().map(|worth| worth.what.as_str()).collect();
        wrapped(text, &format!("Nothing is gained by more {}.", names.join(", ")))?;
    }
    Ok(())
}

fn parts(text: &mut fmt::Formatter<'_>, parts: &[Worth]) -> fmt::Result {
    if parts.is_empty() {
        return Ok(());
    }
    writeln!(text, "\n{:<48} {:>7} {:>10} {:>10}", "whole parts", "gain", "TTFT", "TPOT")?;
    parts.iter().try_for_each(|worth| gain(text, worth))?;
    wrapped(text, "Gains and times are those of the best placement without contention.")
}

fn gain(text: &mut fmt::Formatter<'_>, worth: &Worth) -> fmt::Result {
    let tpot = worth.times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
    let gain = format!("{:.1} %", 100.0 * worth.gain);
    writeln!(text, "{:<48} {gain:>7} {:>10} {tpot:>10}", worth.what, worth.times.ttft.to_string())
}

/// One paragraph in the lines of a terminal.
pub(super) fn wrapped(text: &mut fmt::Formatter<'_>, paragraph: &str) -> fmt::Result {
    writeln!(text, "{}", hwprofiles::wrapped("", paragraph, 0, TERMINAL_COLUMNS).join("\n"))
}
