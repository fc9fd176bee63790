//! The answer of an explanation: at most 25 lines of at most 80 columns.

use super::explanation::Explanation;
use super::text::{EDITED_WORDS, NOTHING, bound_words, head, list_words, range, wrapped};
use super::worth::Worth;
use crate::placement::{LayerGroup, NamedSlices};
use crate::plan::{BestRule, Plan};
use crate::planning::{EDITED, FORCED, OPTIONS, PLANNED};
use crate::program::PhaseTimes;
use crate::rules::Rule;
use hwprofiles::{Ratio, Seconds};
use scenarios::Sublayer;
use std::fmt;

/// Kinds of layers that are named, fullest memories, and largest gains.
const KINDS: usize = 3;
const MEMORIES: usize = 3;
const GAINS: usize = 2;

/// The text of [`Explanation::brief`].
#[derive(Debug, Clone, Copy)]
pub struct Brief<'e>(pub(super) &'e Explanation);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { plan, binding, more, .. } = self.0;
        head(text, plan)?;
        places(text, plan)?;
        self.memories(text)?;
        for phase in binding {
            let words = bound_words(&phase.bound_by);
            writeln!(text, "{}: at least {}, bound by {words}", phase.phase, phase.at_least)?;
        }
        times(text, plan)?;
        if let Some(proven) = plan.predicted.proven {
            let gap = 100.0 * (1.0 - proven.get());
            wrapped(text, &format!("Proven: no placement is better by more than {gap:.1} %."))?;
        }
        gains(text, more)?;
        wrapped(text, "--full: every sublayer, other rules, break-evens, what each part would bring")
    }
}

/// Where layers are and which devices compute them, a line or two for each kind.
fn places(text: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let mut kinds: Vec<(&LayerGroup, u64, usize)> = Vec::new();
    for group in &plan.layers {
        match kinds.iter_mut().find(|(other, ..)| other.parts().eq(group.parts())) {
            Some((_, count, groups)) => (*count, *groups) = (*count + group.count, *groups + 1),
            None => kinds.push((group, group.count, 1)),
        }
    }
    for (group, count, groups) in kinds.iter().take(KINDS) {
        let layers = match groups {
            1 => format!("layers {}", range(group.first, group.count)),
            _ => format!("{count} layers"),
        };
        wrapped(text, &format!("{layers}: {}", parts(group)))?;
    }
    match kinds.len().saturating_sub(KINDS) {
        0 => Ok(()),
        more => writeln!(text, "and {more} other kinds of layers"),
    }
}

/// The sublayers by home and devices, most of them first.
fn parts(group: &LayerGroup) -> String {
    let mut places: Vec<(&NamedSlices, Vec<Sublayer>)> = Vec::new();
    for (sublayer, slices) in group.parts() {
        match places.iter_mut().find(|(other, _)| *other == slices) {
            Some((_, sublayers)) => sublayers.push(sublayer),
            None => places.push((slices, vec![sublayer])),
        }
    }
    places.sort_by_key(|(_, sublayers)| usize::MAX - sublayers.len());
    let several = places.len() > 1;
    let phrase = |(slices, sublayers): &(&NamedSlices, Vec<Sublayer>)| {
        let what = match several {
            true => sublayers.iter().map(|sublayer| sublayer.name()).collect::<Vec<_>>().join(", "),
            false => "all".to_owned(),
        };
        let [home, prefill, decode] = [
            list_words(slices, |p| &p.home),
            list_words(slices, |p| &p.prefill),
            list_words(slices, |p| &p.decode),
        ];
        let shares: Vec<String> =
            slices.0.iter().filter_map(|p| p.share).map(|share| format!("{:.0}", share * 100.0)).collect();
        let shares = if shares.len() > 1 { format!(" ({} %)", shares.join(" + ")) } else { String::new() };
        match prefill == decode {
            true => format!("{what} in {home}{shares} by {decode}"),
            false => format!("{what} in {home}{shares} by {prefill} in prefill, {decode} in decode"),
        }
    };
    places.iter().map(phrase).collect::<Vec<_>>().join("; ")
}

/// The times and rates of the plan, of the best rule with a name and of the best with a number.
fn times(text: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    let (predicted, load) = (&plan.predicted, &plan.workload);
    let decodes = load.output_tokens.saturating_sub(1) as f64;
    let run = |times: &PhaseTimes| times.ttft + times.tpot.unwrap_or(Seconds::ZERO) * decodes;
    writeln!(text, "{:<26} {:>9} {:>9} {:>9} {:>8} {:>9}", "", "TTFT", "tok/s", "TPOT", "tok/s", "run")?;
    let mut row = |name: &str, times: &PhaseTimes| {
        let tpot = times.tpot.map_or("-".to_owned(), |tpot| tpot.to_string());
        let [prefill, rate] = times.rates(load);
        let (ttft, all) = (times.ttft.to_string(), run(times).to_string());
        writeln!(text, "{name:<26} {ttft:>9} {prefill:>9} {tpot:>9} {rate:>8} {all:>9}")
    };
    row(&predicted.chosen, &predicted.simulated)?;
    let named = predicted.baselines.iter().filter(|(name, _)| **name != predicted.chosen);
    let best = named.min_by(|a, b| run(a.1).get().total_cmp(&run(b.1).get()));
    if let Some((name, times)) = best {
        row(name, times)?;
    }
    let rule = predicted.search.as_ref().and_then(|search| search.best_rule.as_ref());
    if let Some(BestRule { rule, simulated, .. }) = rule {
        row(rule, simulated)?;
    }
    let chosen = &predicted.chosen;
    let verdict = match rule {
        _ if chosen.starts_with(FORCED) => "The placement is forced, not planned.".to_owned(),
        _ if chosen == EDITED => EDITED_WORDS.to_owned(),
        _ if chosen.starts_with(OPTIONS) => "The best of what the engine can express.".to_owned(),
        _ if chosen != PLANNED => format!("Nothing that was found beats {chosen}, which is followed."),
        Some(BestRule { rule, regret, .. }) => {
            format!("The best rule with one number, {rule}, is {:.1} % worse.", percent(*regret))
        }
        None => "No rule with one number fits.".to_owned(),
    };
    let meant = best.and_then(|(name, _)| Some((name, Rule::named(name)?.meaning())));
    let meant = meant.map_or(String::new(), |(name, meaning)| format!(" {name}: {meaning}."));
    wrapped(text, &format!("{verdict}{meant}"))
}

fn percent(ratio: Ratio) -> f64 {
    100.0 * (ratio.get() - 1.0)
}

fn gains(text: &mut fmt::Formatter<'_>, more: &[Worth]) -> fmt::Result {
    let worth = |gain: &&Worth| gain.gain >= NOTHING;
    let words: Vec<String> = more
        .iter()
        .filter(worth)
        .take(GAINS)
        .map(|worth| format!("{} brings {:.1} %", worth.what, 100.0 * worth.gain))
        .collect();
    match words.is_empty() {
        true => Ok(()),
        false => wrapped(text, &format!("10 % more {}.", words.join(", "))),
    }
}

impl Brief<'_> {
    fn memories(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |filled: &&super::MemoryFill| {
            (1e4 * filled.used.total().as_f64() / filled.holds.as_f64().max(1.0)) as u64
        };
        let mut fullest: Vec<_> = self.0.memories.iter().collect();
        fullest.sort_by_key(|filled| u64::MAX - share(filled));
        let words = fullest.iter().take(MEMORIES).map(|filled| {
            let share = share(filled) as f64 / 100.0;
            format!("{} {} of {} ({share:.0} %)", filled.memory, filled.used.total(), filled.holds)
        });
        wrapped(text, &format!("memory: {}", words.collect::<Vec<_>>().join(", ")))
    }
}
