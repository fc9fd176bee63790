//! Requests as they were served beside their forecast, in words.

use fulcrum::{ServedComparison, ServedFigure};
use hwprofiles::Seconds;
use std::fmt::Write;

/// A line for each figure, with the error of the forecast.
pub fn table(compared: &ServedComparison) -> String {
    let (requests, tokens) = (compared.requests(), compared.output_tokens());
    let mut text = format!("{requests} requests answered, {tokens} output tokens\n");
    text += &format!("  {:<10} {:>12} {:>12}\n", "", "measured", "forecast");
    let time = |value: Option<f64>| value.map_or("-".to_owned(), |value| Seconds::new(value).to_string());
    for ServedFigure { name, measured, forecast } in compared.figures() {
        let error = measured.zip(forecast).filter(|(measured, _)| *measured > 0.0);
        let error = error.map_or(String::new(), |(m, f)| format!("  {:+.1} %", (f / m - 1.0) * 100.0));
        let (measured, forecast) = (time(measured), time(forecast));
        let line = writeln!(text, "  {name:<10} {measured:>12} {forecast:>12}{error}");
        line.expect("a String takes every line");
    }
    text
}
