//! What the terminal sees besides results: progress on stderr, and the day.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt;
use std::io::{self, Write};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes a result to stdout and flushes it. See [`check`] for what happens when that fails.
pub fn result(text: fmt::Arguments<'_>) {
    print(text.to_string().as_bytes());
}

/// The same for text that is not known to be UTF-8.
pub fn print(text: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    check(stdout.write_all(text).and_then(|()| stdout.flush()));
}

/// Ends the program if stdout could not be written: with success if the reader closed the pipe (`| head`), because
/// it has read enough, and with exit status 1 and a message otherwise.
pub fn check(written: io::Result<()>) {
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            diagnostic(format_args!("error: stdout cannot be written: {error}\n"));
            process::exit(1);
        }
    }
}

/// Writes to stderr. Nobody can be told that stderr cannot be written, so an error is ignored.
pub fn diagnostic(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// `print!` by [`result`].
macro_rules! out {
    ($($text:tt)*) => { $crate::terminal::result(format_args!($($text)*)) };
}

/// `println!` by [`result`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::terminal::result(format_args!("{}\n", format_args!($($text)*))) };
}

/// `eprint!` by [`diagnostic`].
macro_rules! err {
    ($($text:tt)*) => { $crate::terminal::diagnostic(format_args!($($text)*)) };
}

/// `eprintln!` by [`diagnostic`].
macro_rules! errln {
    ($($text:tt)*) => { $crate::terminal::diagnostic(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {err, errln, out, outln};

/// A progress bar on stderr; silent where stderr is no terminal.
pub fn progress(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:10} [{bar:30}] {pos}/{len} {wide_msg}")
        .expect("the template is constant and valid")
        .progress_chars("=> ");
    ProgressBar::new(0).with_style(style).with_prefix(what)
}

/// Today in UTC, `YYYY-MM-DD`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    civil_date(seconds / 86_400)
}

/// The Gregorian date of a day since 1970-01-01, by counting whole 400-year cycles from 0000-03-01 (Howard
/// Hinnant, "chrono-compatible low-level date algorithms").
fn civil_date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::civil_date;

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        let days =
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21"), (47_540, "2100-02-28")];
        for (day, date) in days {
            assert_eq!(civil_date(day), date);
        }
        assert_eq!(civil_date(47_541), "2100-03-01", "2100 is no leap year");
    }
}
