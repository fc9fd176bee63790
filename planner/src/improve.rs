//! Good solutions at once: the best mixture of two patterns, then layers moved to other patterns as long as that
//! helps. Few patterns are tried, those cheapest at the shadow prices; the search then knows what to beat.

use crate::shadow::Prices;
use crate::table::{Choice, Found, Table};

/// How many patterns are tried, and how many ends.
const TRIED: (usize, usize) = (16, 4);

/// Takes a solution that no single move improves where it is better than `best`.
pub(crate) fn improve(table: &Table, prices: &Prices, best: &mut Option<Found>) {
    let (patterns, ends) =
        (cheapest(&table.patterns, prices, TRIED.0), cheapest(&table.ends, prices, TRIED.1));
    let mut local: Option<Solution<'_>> = None;
    // Where nothing fits beside the cheapest end, the next one may leave more room.
    for &end in &ends {
        if local.is_some() {
            break;
        }
        for (&one, &other) in patterns.iter().flat_map(|one| patterns.iter().map(move |other| (one, other))) {
            for count in 1..=table.layers {
                consider(table, &moved(&[(one, table.layers)], 0, count, other), end, &mut local);
            }
        }
    }
    while let Some(from) = local.clone() {
        for &end in &ends {
            consider(table, &from.counts, end, &mut local);
        }
        for at in 0..from.counts.len() {
            for &pattern in &patterns {
                for count in 1..=from.counts[at].1 {
                    consider(table, &moved(&from.counts, at, count, pattern), from.end, &mut local);
                }
            }
        }
        if local.as_ref().is_some_and(|local| local.value == from.value) {
            break;
        }
    }
    if let Some(found) = local.filter(|local| best.as_ref().is_none_or(|best| local.value < best.value)) {
        let counts = found.counts.iter().map(|(pattern, count)| (pattern.index, *count)).collect();
        *best = Some(Found { counts, end: found.end.index, value: found.value });
    }
}

fn cheapest<'t>(choices: &'t [Choice], prices: &Prices, most: usize) -> Vec<&'t Choice> {
    let mut order: Vec<(f64, &Choice)> = choices.iter().map(|choice| (prices.cost(choice), choice)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.index.cmp(&b.1.index)));
    order.into_iter().map(|(_, choice)| choice).take(most).collect()
}

#[derive(Debug, Clone)]
struct Solution<'t> {
    counts: Vec<(&'t Choice, u64)>,
    end: &'t Choice,
    value: f64,
}

/// With `count` layers of the entry `at` moved to `pattern`.
fn moved<'t>(
    counts: &[(&'t Choice, u64)],
    at: usize,
    count: u64,
    pattern: &'t Choice,
) -> Vec<(&'t Choice, u64)> {
    let mut counts = counts.to_vec();
    counts[at].1 -= count;
    match counts.iter_mut().find(|(other, _)| other.index == pattern.index) {
        Some((_, some)) => *some += count,
        None => counts.push((pattern, count)),
    }
    counts.retain(|(_, count)| *count > 0);
    counts
}

/// Takes this solution where it fits and is better than the best so far.
fn consider<'t>(
    table: &Table,
    counts: &[(&'t Choice, u64)],
    end: &'t Choice,
    best: &mut Option<Solution<'t>>,
) {
    let time = |row: usize| {
        let layers = counts.iter().map(|(pattern, count)| pattern.times[row] * *count as f64);
        end.times[row] + layers.sum::<f64>()
    };
    let times: Vec<f64> = (0..end.times.len()).map(time).collect();
    let value = table.value(&times);
    if best.as_ref().is_some_and(|best| value >= best.value) {
        return;
    }
    let fits = table.room.iter().enumerate().all(|(memory, &room)| {
        let layers = counts.iter().map(|(pattern, count)| pattern.bytes[memory] * count);
        end.bytes[memory] + layers.sum::<u64>() <= room
    });
    if fits {
        *best = Some(Solution { counts: counts.to_vec(), end, value });
    }
}
