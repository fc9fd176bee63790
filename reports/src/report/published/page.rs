//! `published.md`: every system with its plot, its constants and its rows.

use super::plot::draw;
use super::text::digits;
use super::{Reproduction, Reproductions, Score, Standing, WANTED_OVERALL, WANTED_RANKS, WANTED_RATIO};
use crate::numbers::format::{percent, signed_percent};
use crate::results::error::ReportError;
use hwprofiles::write_atomically;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

impl Reproductions {
    /// Writes `published.md` and the plot of each system that has one into `folder`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ReportError> {
        for it in &self.0 {
            if let Some(plot) = draw(it) {
                write_atomically(folder.join(format!("{}.svg", it.id)), plot.standalone())?;
            }
        }
        write_atomically(folder.join("published.md"), self.page())?;
        Ok(())
    }

    /// The text of `published.md`.
    pub fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        page += "| system | rows | scored | median error | wanted | ratio | least rank | missed |\n|---|---|---|---|---|---|---|---|\n";
        for it in &self.0 {
            let score = it.score();
            let wanted = it.target_error.map_or_else(dash, |wanted| format!("{:.0} %", wanted * 100.0));
            let missed = match score.rows {
                0 => "not scored".to_owned(),
                _ => it.missed_targets().join("; "),
            };
            let link = format!("[{}](#{})", cell(&it.system), it.id);
            let _ = writeln!(
                page,
                "| {link} | {} | {} | {} | {missed} |",
                it.rows.len(),
                score.rows,
                columns(&score, &wanted)
            );
        }
        let score = self.score();
        let all: usize = self.0.iter().map(|it| it.rows.len()).sum();
        let wanted = format!("{:.0} %", WANTED_OVERALL * 100.0);
        let _ = writeln!(page, "| all | {all} | {} | {} | |", score.rows, columns(&score, &wanted));
        for (name, part) in self.parts() {
            let columns = Score { ranks: BTreeMap::new(), ..part.clone() };
            let _ = writeln!(page, "| {name} | | {} | {} | |", part.rows, self::columns(&columns, &dash()));
        }
        page.push('\n');
        let kept = self.scored().filter(|it| it.missed_targets().is_empty()).count();
        let _ = writeln!(
            page,
            "{kept} of {} systems keep all figures: the median error wanted, a ratio of {} to {}, and in each table of \
             four rows or more a rank correlation of at least {WANTED_RANKS}.\n",
            self.scored().count(),
            WANTED_RATIO[0],
            WANTED_RATIO[1]
        );
        self.0.iter().for_each(|it| it.write_section(&mut page));
        page
    }
}

const HEAD: &str = "# What others published, and what Fulcrum says\n\n\
    Made by `fulcrum reproduce --report`. Most rows are a run of the system's policy on a model of its machine, priced by the \
    simulator; rows *by formula* are arithmetic over rates of the machine in the system's file. *CPU + GPU runs* are the rows \
    of systems in which two resources work at once: this is the figure that the planner lives by. The descriptions are in \
    `scenarios/published`. *Scored* are rows whose setup was published in full and on which \
    no constant was fitted. *Shown* rows run too and count nowhere; those without an error are no target at all, and the system's section \
    says why. The error is ours ÷ published − 1, the ratio the geometric mean of ours ÷ published.\n\n";

impl Reproduction {
    fn write_section(&self, page: &mut String) {
        let _ = writeln!(
            page,
            "## <a id=\"{}\"></a>{}\n\n{}\n",
            self.id,
            cell(&self.system),
            self.verdict.trim()
        );
        if draw(self).is_some() {
            let _ = writeln!(page, "![published against ours]({}.svg)\n", self.id);
        }
        let _ = writeln!(page, "Mechanism: {}\n", self.mechanism.trim());
        let _ = writeln!(page, "Source: {}. {}\n", self.source.trim(), self.licence.trim());
        if !self.constants.is_empty() {
            *page += "| constant | value | prior | fitted | what |\n|---|---|---|---|---|\n";
        }
        for it in &self.constants {
            let prior = format!("{} to {}", digits(it.prior[0]), digits(it.prior[1]));
            let fitted = if it.fitted { "yes" } else { "no" };
            let _ = writeln!(
                page,
                "| {} | {} | {prior} | {fitted} | {} |",
                it.name,
                digits(it.value),
                cell(&it.description)
            );
        }
        let mut unscored: Vec<&str> = Vec::new();
        for row in &self.rows {
            if let (Standing::Unscored(_) | Standing::Failed(_), why) = (&row.standing, row.standing.reason())
                && !unscored.contains(&why)
            {
                unscored.push(why);
            }
        }
        if !unscored.is_empty() {
            *page += "\nNot scored:\n\n";
        }
        for why in unscored {
            let count = self.rows.iter().filter(|row| row.standing.reason() == why).count();
            let _ = writeln!(page, "- {count} of its rows: {}", cell(why));
        }
        self.write_rows_of_page(page);
    }

    fn write_rows_of_page(&self, page: &mut String) {
        *page += "\n<details><summary>rows</summary>\n\n\
            | row | table | what | published | ours | unit | error | |\n|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let ours = row.ours.map_or_else(dash, digits);
            let error = signed_percent(row.error());
            let description = cell(&row.description);
            let (table, unit) = (cell(&row.table), cell(&row.unit));
            let published = row.published.map_or_else(dash, digits);
            let formula = if row.answered_by() == "formula" { ", by formula" } else { "" };
            let standing = format!("{}{formula}", row.label());
            let _ = writeln!(
                page,
                "| {} | {table} | {description} | {published} | {ours} | {unit} | {error} | {standing} |",
                row.id
            );
        }
        *page += "\n</details>\n\n";
    }
}

fn columns(score: &Score, wanted: &str) -> String {
    let median = score.median_error.map_or_else(dash, percent);
    let ratio = score.ratio.map_or_else(dash, |ratio| format!("{ratio:.2}"));
    let least = score.ranks.values().copied().reduce(f64::min).map_or_else(dash, |rank| format!("{rank:.2}"));
    format!("{median} | {wanted} | {ratio} | {least}")
}

fn dash() -> String {
    "–".to_owned()
}

/// Escapes a text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('|', "\\|")
        .replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::reproductions;

    #[test]
    fn the_page() {
        insta::assert_snapshot!(reproductions().page());
    }

    #[test]
    fn each_system_has_a_plot_and_names_never_become_markup() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut all = reproductions();
        all.0[0].rows[0].description = "<script>".to_owned();
        all.write(folder.path()).expect("written");
        for file in ["published.md", "s.svg"] {
            let text = std::fs::read_to_string(folder.path().join(file)).expect("a file");
            assert!(!text.contains("<script"), "{file}");
        }
    }
}
