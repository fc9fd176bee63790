//! Public runs as text for a terminal.

use super::{PublicGroup, PublicRows, SettingsOrder};
use std::collections::BTreeMap;
use std::fmt::Write;

impl PublicRows {
    /// Errors by group, slopes, ranks and the order of settings; with `rows`, all rows come first.
    /// Rows without an answer are counted by their reason.
    pub fn to_text(&self, rows: bool) -> String {
        let mut text = String::new();
        if rows {
            self.write_rows(&mut text);
        }
        let summary = self.summary();
        let _ = writeln!(
            text,
            "{:<44} {:>6} {:>9} {:>7} {:>7} {:>6}",
            "", "rows", "answered", "median", "p90", "ratio"
        );
        let mut by = "";
        for group in &summary.groups {
            if by != group.by {
                by = &group.by;
                let _ = writeln!(text, "by {by}");
            }
            let _ = writeln!(text, "  {:<42} {}", format!("{}, {}", group.name, group.phase), columns(group));
        }
        for slope in &summary.slopes {
            let [measured, ours] = [slope.measured, slope.ours].map(|slope| slope * 1e9);
            let error =
                slope.error.map_or_else(|| "–".to_owned(), |error| format!("{:+.1} %", error * 100.0));
            let _ = writeln!(
                text,
                "slope of {}: {measured:.1} ns per cached token, ours {ours:.1}: {error}",
                slope.setup
            );
        }
        if let Some(error) = summary.median_slope_error {
            let _ = writeln!(text, "median error of slopes: {:.1} %", error * 100.0);
        }
        for rank in &summary.ranks {
            let _ = writeln!(
                text,
                "rank correlation of {} setups on {}: {:.2}",
                rank.setups, rank.machine, rank.rank
            );
        }
        write_orders(&mut text, &summary.orders);
        for (why, count) in self.unanswered() {
            let _ = writeln!(text, "not answered, {count} rows: {why}");
        }
        text
    }

    /// The reasons why rows have no answer, with their numbers.
    pub(super) fn unanswered(&self) -> BTreeMap<&str, usize> {
        let mut reasons = BTreeMap::new();
        for row in self.0.iter().filter(|row| row.ours.is_none()) {
            *reasons.entry(row.why.as_str()).or_insert(0) += 1;
        }
        reasons
    }

    fn write_rows(&self, text: &mut String) {
        let mut setup = "";
        for row in &self.0 {
            if setup != row.setup {
                setup = &row.setup;
                let _ = writeln!(
                    text,
                    "{setup}: {} {}, {} on {}, {}",
                    row.model,
                    row.format,
                    row.engine,
                    row.machine_name(),
                    row.placement
                );
            }
            let ours = row.ours.map_or_else(|| "–".to_owned(), |ours| format!("{ours:.2}"));
            let remark = match row.error() {
                Some(error) => format!("{:+.1} %", error * 100.0),
                None => row.why.clone(),
            };
            let _ = writeln!(
                text,
                "  {:<16} {:<7} {:>6} {:>9.2} {ours:>9} tok/s  {remark}",
                row.id, row.phase, row.past, row.measured
            );
        }
        text.push('\n');
    }
}

/// The order of settings: a line for each family, and what they come to.
pub(super) fn write_orders(text: &mut String, orders: &[SettingsOrder]) {
    for order in orders.iter().filter(|order| !order.families.is_empty()) {
        let _ = writeln!(text, "order of {}, ties within {}", order.by, order.noise_text());
        for family in &order.families {
            let _ = writeln!(
                text,
                "  {:<6} {} settings at {} contexts: rank correlation {:.2}, best found {:.0} %, pick ÷ best {:.2}: {}",
                family.phase,
                family.settings,
                family.contexts,
                family.rank_correlation,
                100.0 * family.best_found,
                family.of_best,
                family.name
            );
        }
        let _ = writeln!(text, "  all: {}", order.total_text());
    }
}

impl SettingsOrder {
    /// The noise of each phase in words.
    pub(super) fn noise_text(&self) -> String {
        let each =
            self.noise.iter().map(|(phase, noise)| format!("{:.1} % ({phase})", 100.0 * noise.exp_m1()));
        let each: Vec<_> = each.collect();
        if each.is_empty() { "0 %".to_owned() } else { each.join(", ") }
    }

    /// What the families come to.
    pub(super) fn total_text(&self) -> String {
        let or_none = |value: Option<f64>| value.unwrap_or(f64::NAN);
        format!(
            "rank correlation {:.2}, best found {:.0} %, pick ÷ best {:.3}, at most 3 % lost in {:.0} % of {} families",
            or_none(self.rank_correlation),
            100.0 * or_none(self.best_found),
            or_none(self.of_best),
            100.0 * or_none(self.small_loss),
            self.families.len()
        )
    }
}

/// Counts, errors and ratio of a group, in columns.
pub(super) fn columns(group: &PublicGroup) -> String {
    let percent =
        |error: Option<f64>| error.map_or_else(|| "–".to_owned(), |error| format!("{:.1} %", error * 100.0));
    let ratio = group.median_ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    format!(
        "{:>6} {:>9} {:>7} {:>7} {ratio:>6}",
        group.rows,
        group.answered,
        percent(group.median_error),
        percent(group.p90_error)
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::rows;

    #[test]
    fn groups_and_reasons_are_told() {
        let text = rows().to_text(true);
        for words in
            ["by machine", "+10.0 %", "not answered, 1 rows: the model", "median error of slopes: 50.0 %"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
