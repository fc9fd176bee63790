//! Reproductions as text for a terminal.

use super::{Reproduction, Reproductions, Score, WANTED_OVERALL};
use crate::numbers::format::signed_percent;
use hwprofiles::{TERMINAL_COLUMNS, wrapped};
use std::collections::BTreeMap;
use std::fmt::Write;

impl Reproductions {
    /// One line for each system and one for all; with `rows`, all rows of each system come first.
    pub fn to_text(&self, rows: bool) -> String {
        let mut text = String::new();
        if rows {
            self.0.iter().for_each(|it| it.write_rows(&mut text));
        }
        let width = self.0.iter().map(|it| it.id.chars().count()).max().unwrap_or(0).max(8);
        let _ = writeln!(text, "{:width$}  rows scored  median error  ratio  least rank", "system");
        for it in &self.0 {
            let score = it.score();
            let _ = writeln!(
                text,
                "{:width$}  {:>4} {:>6}  {}",
                it.id,
                it.rows.len(),
                score.rows,
                columns(&score)
            );
            let missed = it.missed_targets();
            let remark = match (score.rows, missed.is_empty()) {
                (0, _) => format!("not scored: {}", it.verdict.trim()),
                (_, true) => continue,
                (_, false) => format!("missed: {}", missed.join("; ")),
            };
            wrapped("", &remark, 0, TERMINAL_COLUMNS - 4)
                .iter()
                .for_each(|line| text.extend(["    ", line, "\n"]));
        }
        let score = self.score();
        let all: usize = self.0.iter().map(|it| it.rows.len()).sum();
        let _ = writeln!(text, "{:width$}  {all:>4} {:>6}  {}", "all", score.rows, columns(&score));
        for (name, part) in self.parts() {
            let (ranks, name_width) = (BTreeMap::new(), width + 6);
            let columns = columns(&Score { ranks, ..part.clone() });
            let _ = writeln!(text, "{name:<name_width$} {:>6}  {columns}", part.rows);
        }
        let kept = self.scored().filter(|it| it.missed_targets().is_empty()).count();
        let _ = writeln!(
            text,
            "{kept} of {} systems keep all figures; over all rows the median is to be at most {:.0} %",
            self.scored().count(),
            WANTED_OVERALL * 100.0
        );
        text
    }
}

impl Reproduction {
    fn write_rows(&self, text: &mut String) {
        let _ = writeln!(text, "{}\n", self.system);
        let mut table = "";
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.table.cmp(&b.table));
        for row in rows {
            if table != row.table {
                table = &row.table;
                let _ = writeln!(text, "{table}");
            }
            let [published, ours] =
                [row.published, row.ours].map(|it| it.map_or_else(|| "–".to_owned(), digits));
            let _ = write!(text, "  {:>10} {:>10} {:<8}", published, ours, row.unit);
            let _ =
                write!(text, " {:>9}  {:<8} {}", signed_percent(row.error()), row.label(), row.description);
            let _ = match row.standing.reason() {
                "" => writeln!(text, "  [{}]", row.id),
                why => writeln!(text, "  [{}: {why}]", row.id),
            };
        }
        text.push('\n');
    }
}

fn columns(score: &Score) -> String {
    let dash = || "–".to_owned();
    let median = score.median_error.map_or_else(dash, |error| format!("{:.1} %", error * 100.0));
    let ratio = score.ratio.map_or_else(dash, |ratio| format!("{ratio:.2}"));
    let least = score.ranks.values().copied().reduce(f64::min);
    let least = least.map_or_else(dash, |rank| format!("{rank:.2}"));
    format!("{median:>12}  {ratio:>5}  {least:>10}")
}

/// A number with four significant digits.
pub(super) fn digits(number: f64) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let magnitude = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 6) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproductions;
    use super::digits;

    #[test]
    fn the_text() {
        insta::assert_snapshot!(reproductions().to_text(true));
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [0.0, 0.012_345, 1.0, 12.345, 12_345.6].map(digits),
            ["0", "0.01235", "1", "12.35", "12346"]
        );
    }
}
