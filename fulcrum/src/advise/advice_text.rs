//! Advice in words: a screen of 80 columns.

use super::advice_row::AdviceRow;
use super::answer::Advice;
use super::upgrade::{Upgrade, WithoutGpus};
use hwprofiles::{Seconds, TERMINAL_COLUMNS, wrapped};
use std::fmt::Write;

/// Models that a screen shows.
const SHOWN: usize = 10;

impl Advice {
    /// The advice as a screen: the answer first, then a table, then what starts it and what to do
    /// next. `strong` marks the answer.
    pub fn to_text(&self, one_model: bool, all: bool, strong: impl Fn(&str) -> String) -> String {
        let advice = self;
        let mut text = heading(advice);
        let _ = write!(text, "\n{}\n\n", strong(&verdict(advice)));
        let shown = if all || one_model { advice.rows.len() } else { SHOWN };
        if !advice.rows.is_empty() {
            text += &table(advice, shown, one_model);
        }
        if one_model {
            for left in &advice.left_out {
                let _ = writeln!(text, "{:<9} {}", left.format, left.reason);
            }
        }
        if let Some(best) = advice.rows.first() {
            let _ = write!(text, "\nTo start it:\n  {}\n", best.command);
        }
        if one_model { text + &upgrades(advice) } else { text + &rest(advice, shown) }
    }

    /// Why there is no answer, for the error.
    pub fn nothing_fits(&self) -> String {
        let advice = self;
        match advice.left_out.last() {
            Some(left) => format!("nothing fits: {} in {} {}", left.model, left.format, left.reason),
            None => format!("there is no model for {} with {}", advice.purpose, advice.engine),
        }
    }
}

/// The machine, what is assumed of it, and the load.
fn heading(advice: &Advice) -> String {
    let mut text = paragraph("", &advice.parts.join(", "));
    if !advice.assumed.is_empty() {
        text += &paragraph("assumed: ", &advice.assumed.join("; "));
    }
    let load = &advice.load;
    let sequences = if load.batch > 1 { format!("{} at once, ", load.batch) } else { String::new() };
    text + &paragraph(
        "",
        &format!(
            "{} with {}: {sequences}prompt {}, answer {}, room for {} tokens, at least {:.0} tok/s",
            advice.purpose,
            advice.engine,
            load.prompt_tokens,
            load.output_tokens,
            advice.context,
            advice.min_rate
        ),
    )
}

/// The answer in one sentence.
fn verdict(advice: &Advice) -> String {
    match advice.rows.first() {
        None => "Nothing fits.".to_owned(),
        Some(best) => {
            let fast =
                if best.fast_enough { "" } else { ": nothing is as fast as asked, and this is the fastest" };
            format!("Best: {} in {}, about {} tok/s{fast}", best.model, format_word(best), rate(best.tok_s))
        }
    }
}

fn table(advice: &Advice, shown: usize, one_model: bool) -> String {
    let (name, width) = if one_model { ("", 0) } else { ("model", 22) };
    let mut text = format!(
        "{name:<width$}{:<7}{:>5} {:>8} {:>7} {:>6}  where\n",
        "format", "tok/s", "80 %", "TTFT", "loss"
    );
    let rows = advice.rows.iter().take(shown);
    for row in rows.clone() {
        let model = if one_model { String::new() } else { fitted(&row.model, width - 1) };
        let [low, high] = row.tok_s_band.map(rate);
        let mark = if row.fast_enough { ' ' } else { '<' };
        let loss = row.quality_loss.map_or("-".to_owned(), |loss| format!("{:.1} %", loss * 100.0));
        let _ = writeln!(
            text,
            "{model:<width$}{:<7}{:>5}{mark}{:>8} {:>7} {loss:>6}  {}",
            format_word(row),
            rate(row.tok_s),
            format!("{low}-{high}"),
            time(row.ttft),
            row.places,
        );
    }
    if rows.clone().any(|row| !row.fast_enough) {
        text += "<: fewer tokens per second than asked for\n";
    }
    text
}

/// Models that are not in the table, and what to do next.
fn rest(advice: &Advice, shown: usize) -> String {
    let more = advice.rows.len().saturating_sub(shown);
    let mut parts = Vec::new();
    if more > 0 {
        parts.push(format!("{more} more run (--all)"));
    }
    if let Some(first) = advice.left_out.first() {
        let others = advice.left_out.len() - 1;
        let others = if others > 0 { format!(", and {others} others do not fit") } else { String::new() };
        parts.push(format!("{} {}{others}", first.model, first.reason));
    }
    let mut text = String::new();
    if !parts.is_empty() {
        text += &format!("\n{}", paragraph("", &format!("{}.", parts.join("; "))));
    }
    let best = advice.rows.first().map_or("MODEL", |row| &row.model);
    text += &paragraph(
        "",
        &format!(
            "Next: --model {best} says what an upgrade brings; `fulcrum bench --quick` measures this machine."
        ),
    );
    text
}

/// What each kind of GPU is worth, and what one purchase brings.
fn upgrades(advice: &Advice) -> String {
    let without = |WithoutGpus { gpus, row }: &WithoutGpus| match row {
        Some(row) => format!(
            "Without {gpus}: {}, {} tok/s, TTFT {}, {}\n",
            format_word(row),
            rate(row.tok_s),
            time(row.ttft),
            row.places
        ),
        None => format!("Without {gpus} it does not fit\n"),
    };
    let without: String = advice.without.iter().map(without).collect();
    let without = if without.is_empty() { without } else { format!("\n{without}") };
    if advice.upgrades.is_empty() {
        return without + "\nNo single upgrade that is priced makes it better by 5 %.\n";
    }
    let mut text = without
        + &format!(
            "\n{:<31}{:>6} {:<7}{:>5} {:>7}  where\n",
            "One upgrade", "USD", "format", "tok/s", "TTFT"
        );
    for Upgrade { change, price, row, .. } in &advice.upgrades {
        let _ = writeln!(
            text,
            "{:<31}{:>6.0} {:<7}{:>5} {:>7}  {}",
            fitted(change, 30),
            price.get(),
            format_word(row),
            rate(row.tok_s),
            time(row.ttft),
            row.places
        );
    }
    let first = &advice.upgrades[0];
    text + &paragraph(
        "",
        &format!("Prices: the first is {} (--prices FILE for your own).", first.price_source),
    )
}

/// The format's word without what tells no two apart.
fn format_word(row: &AdviceRow) -> &str {
    ["_moe", "_g128"].iter().find_map(|tail| row.format.strip_suffix(tail)).unwrap_or(&row.format)
}

/// Tokens per second with two digits that count.
fn rate(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// A time in at most six letters.
fn time(time: Seconds) -> String {
    match time.get() {
        seconds if seconds < 10.0 => format!("{seconds:.2} s"),
        seconds if seconds < 600.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

/// A text of at most `width` letters.
fn fitted(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) => text.chars().take(width - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// `head` and `text` in the lines of a terminal.
fn paragraph(head: &str, text: &str) -> String {
    wrapped(head, text, 2, TERMINAL_COLUMNS).join("\n") + "\n"
}
