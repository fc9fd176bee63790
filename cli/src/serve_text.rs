//! A day of serving in words.

use crate::serve::ServedDay;
use hwprofiles::{Bytes, Dollars, Joules, Seconds};
use sim::serving::{Account, Spread, Summary};
use std::fmt;

impl fmt::Display for ServedDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { requests, .. } = &self.summary;
        let day = &self.summary;
        write!(f, "{}", self.heading)?;
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
            let Spread { mean, p50, p90, p99, max, .. } = spread;
            let times = [mean, p50, p90, p99, max].map(|time| Seconds::new(time).to_string());
            let [mean, p50, p90, p99, max] = times;
            writeln!(f, "{}", row([name.to_owned(), mean, p50, p90, p99, max]))?;
        }
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
        if let Some(account) = &day.account {
            write!(f, "{}", AccountText { account, day })?;
        }
        self.rebalanced.as_ref().map_or(Ok(()), |rebalanced| write!(f, "{rebalanced}"))
    }
}

/// What became of the machine, and what that cost.
struct AccountText<'a> {
    account: &'a Account,
    day: &'a Summary,
}

/// Energy and cost are told for so many output tokens.
const TOKENS: f64 = 1_000_000.0;

impl fmt::Display for AccountText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, day } = self;
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
        let told = |all: String, each: String| match tokens > 0.0 {
            true => format!("{all}, {each} per million output tokens"),
            false => all,
        };
        if let Some(energy) = account.energy_j {
            let each = Joules::new(energy / tokens * TOKENS);
            writeln!(f, "energy {}", told(Joules::new(energy).to_string(), each.to_string()))?;
        }
        if let Some(cost) = account.cost {
            let each = Dollars::new(cost / tokens * TOKENS);
            writeln!(f, "cost {}", told(Dollars::new(cost).to_string(), each.to_string()))?;
        }
        for missing in &account.missing {
            writeln!(f, "{}", missing.replace(": write", ":\n  write"))?;
        }
        Ok(())
    }
}
