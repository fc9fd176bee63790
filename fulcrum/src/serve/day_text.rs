//! A day of serving in words.

use super::day::ServedDay;
use super::lockstep::LockstepRange;
use super::rebalance::RebalancedDay;
use hwprofiles::{Bytes, Dollars, Joules, Seconds};
use sim::serving::{Account, LatencyStats, RebalanceRecord, Summary};
use std::fmt;

impl fmt::Display for ServedDay {
    /// The day as a screen of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self;
        let day = &served.summary;
        write!(f, "{}", served.heading)?;
        write_latencies(f, day)?;
        if let Some(range) = &served.lockstep {
            write_lockstep(f, range)?;
        }
        write_totals(f, day)?;
        if let Some(account) = &day.account {
            write_account(f, account, day)?;
        }
        served.rebalanced.as_ref().map_or(Ok(()), |rebalanced| write_rebalancing(f, rebalanced))
    }
}

/// How many requests were answered, and their times.
fn write_latencies(f: &mut fmt::Formatter<'_>, day: &Summary) -> fmt::Result {
    let requests = &day.requests;
    write!(f, "{} requests answered in {}", requests.completed, Seconds::new(day.duration_s))?;
    match requests.rejected {
        0 => writeln!(f)?,
        rejected => {
            let why: Vec<_> = requests.rejected_for.iter().map(|(why, n)| format!("{n} {why}")).collect();
            writeln!(f, ", {rejected} rejected ({})", why.join(", "))?;
        }
    }
    let columns = ["", "mean", "p50", "p90", "p99", "max"];
    let row = |cells: [String; 6]| {
        let [name, rest @ ..] = cells;
        rest.iter().fold(format!("  {name:<6}"), |row, cell| row + &format!(" {cell:>12}"))
    };
    writeln!(f, "{}", row(columns.map(str::to_owned)))?;
    for (name, spread) in
        [("TTFT", day.ttft_s), ("TPOT", day.tpot_s), ("ITL", day.itl_s), ("E2EL", day.e2el_s)]
    {
        let LatencyStats { mean, p50, p90, p99, max, .. } = spread;
        let times = [mean, p50, p90, p99, max].map(|time| Seconds::new(time).to_string());
        let [mean, p50, p90, p99, max] = times;
        writeln!(f, "{}", row([name.to_owned(), mean, p50, p90, p99, max]))?;
    }
    Ok(())
}

/// The range of the means where users may or may not move in step, and why there is one.
fn write_lockstep(f: &mut fmt::Formatter<'_>, range: &LockstepRange) -> fmt::Result {
    for (name, [least, most]) in [("TTFT", range.ttft()), ("TPOT", range.tpot())] {
        writeln!(f, "{name} {least} to {most} in the mean")?;
    }
    let (first, second) = LockstepRange::REASON.split_once(", or ").expect("two cases");
    writeln!(f, "  {first},\n  or {second}")
}

/// Rates, steps and KV blocks.
fn write_totals(f: &mut fmt::Formatter<'_>, day: &Summary) -> fmt::Result {
    writeln!(
        f,
        "output {:.1} tokens/s, {:.2} requests/s, {:.2} within the limits ({:.1} %)",
        day.output_tokens_per_s,
        day.requests_per_s,
        day.goodput_per_s,
        day.slo_attainment * 100.0
    )?;
    writeln!(
        f,
        "{} steps of {:.1} sequences, busy {:.1} %, {} preemptions, {:.1} % of prompts cached",
        day.steps,
        day.mean_batch,
        day.busy_share * 100.0,
        day.preemptions,
        day.cached_share * 100.0
    )?;
    if day.swapped_out_blocks > 0 {
        writeln!(f, "{} KV blocks swapped out, {} back", day.swapped_out_blocks, day.swapped_in_blocks)?;
    }
    if day.stored_blocks > 0 {
        writeln!(
            f,
            "second level: {} KV blocks written, {} overwritten, {} fetched ({:.1} % of prompts)",
            day.stored_blocks,
            day.evicted_blocks,
            day.fetched_blocks,
            day.fetched_share * 100.0
        )?;
    }
    Ok(())
}

/// Energy and cost are given per this many output tokens.
const TOKENS: f64 = 1_000_000.0;

/// What the machine did, and what that cost.
fn write_account(f: &mut fmt::Formatter<'_>, account: &Account, day: &Summary) -> fmt::Result {
    let share = |name: &str, share: f64| format!("{name} {:.1} %", share * 100.0);
    let devices = account.utilization.iter().map(|(device, &busy)| share(device, busy));
    let rates = [("MFU", account.mfu), ("MBU", account.mbu)];
    let rates = rates.iter().filter_map(|&(name, rate)| Some(share(name, rate?)));
    writeln!(f, "at work: {}", devices.chain(rates).collect::<Vec<_>>().join(", "))?;
    let carried = account.bytes.iter().filter(|&(_, &bytes)| bytes > 0.0);
    for (link, &bytes) in carried {
        writeln!(f, "over {link}: {}", Bytes::new(bytes as u64))?;
    }
    let tokens = day.output_tokens_per_s * day.duration_s;
    let per_tokens = |all: String, each: String| match tokens > 0.0 {
        true => format!("{all}, {each} per million output tokens"),
        false => all,
    };
    if let Some(energy) = account.energy_j {
        let each = Joules::new(energy / tokens * TOKENS);
        writeln!(f, "energy {}", per_tokens(Joules::new(energy).to_string(), each.to_string()))?;
    }
    if let Some(cost) = account.cost {
        let each = Dollars::new(cost / tokens * TOKENS);
        writeln!(f, "cost {}", per_tokens(Dollars::new(cost).to_string(), each.to_string()))?;
    }
    for missing in &account.missing {
        writeln!(f, "{}", missing.replace(": write", ":\n  write"))?;
    }
    Ok(())
}

/// What rebalancing did, and what it was worth.
fn write_rebalancing(f: &mut fmt::Formatter<'_>, rebalanced: &RebalancedDay) -> fmt::Result {
    let RebalanceRecord { decisions, spent, longest, moves } = &rebalanced.record;
    let mean = *spent / (*decisions).max(1) as f64;
    writeln!(f, "rebalancing: {decisions} decisions, {mean} each, {longest} at most")?;
    for one in moves {
        let to = &rebalanced.by_plan[one.plans[1]].0;
        let (at, time) = (one.at.to_seconds(), one.time.to_seconds());
        writeln!(f, "  at {at}: to the plan for {to} ({} moved in {time})", one.bytes)?;
    }
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (best, share) = rebalanced.best_plan();
    writeln!(f, "  within the limits: {}", percent(rebalanced.slo_attainment))?;
    writeln!(
        f,
        "    {} with the plan for {} all day",
        percent(rebalanced.by_plan[0].1),
        rebalanced.first_plan
    )?;
    writeln!(f, "    {} with the best of {} plans, for {best}", percent(share), rebalanced.by_plan.len())
}
