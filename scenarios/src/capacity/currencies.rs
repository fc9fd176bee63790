//! Prices in currencies other than dollars, converted at a rate that the user gives with its day.

use crate::input::error::ScenarioError;
use crate::input::section::DocumentSection;
use hwprofiles::Dollars;
use std::collections::BTreeMap;

/// Exchange rates by currency, which is a code of three letters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Currencies(BTreeMap<String, ExchangeRate>);

/// The value of one unit of a currency.
#[derive(Debug, Clone, PartialEq)]
struct ExchangeRate {
    /// Its value in dollars.
    worth: Dollars,
    /// The day of the rate, like 2026-11-01.
    day: String,
}

/// A price in messages, with an example.
const PRICE: [&str; 2] = ["a price", "0.12 USD"];

/// The currency of all results.
const BASE: &str = "USD";

impl Currencies {
    /// Reads `{EUR: 1.08 USD on 2026-11-01}`.
    ///
    /// # Errors
    /// A key is not a code of three letters, or is the dollar's; a value has another form, is not
    /// above 0, or has a day that does not exist.
    pub(crate) fn read(section: Option<&DocumentSection<'_>>) -> Result<Self, ScenarioError> {
        let Some(section) = section else { return Ok(Self::default()) };
        let rate = |code: &str| {
            if !is_code(code) || code == BASE {
                return Err(section
                    .wrong(code, "a currency other than USD is wanted, by its three capitals, like EUR"));
            }
            let parts = section.text(code)?.and_then(|text| text.split_once(" on "));
            let rate = parts.and_then(|(worth, day)| {
                let worth = worth.parse::<Dollars>().ok().filter(|worth| worth.get() > 0.0)?;
                is_day(day.trim()).then(|| ExchangeRate { worth, day: day.trim().to_owned() })
            });
            let wanted = "what one is worth and since when is wanted, like \"1.08 USD on 2026-11-01\"";
            Ok((code.to_owned(), rate.ok_or_else(|| section.wrong(code, wanted))?))
        };
        section.keys().map(rate).collect::<Result<_, _>>().map(Self)
    }

    /// Reads a price above 0, in dollars or in a currency whose rate is known.
    ///
    /// # Errors
    /// The currency has no rate, or the value is not a price.
    pub(crate) fn price(
        &self,
        section: &DocumentSection<'_>,
        key: &str,
    ) -> Result<Option<Dollars>, ScenarioError> {
        let foreign = section.get(key).and_then(|value| value.as_str()).and_then(foreign);
        let Some((number, code)) = foreign else {
            return section.quantity(key, PRICE, |price: &Dollars| price.get());
        };
        let rate = self.0.get(code).ok_or_else(|| {
            let wanted = format!(
                "prices are added in USD, and {code} has no exchange rate: write USD, or capacity.currencies: \
                 {{{code}: 1.08 USD on 2026-11-01}} with its rate and day"
            );
            section.wrong(key, &wanted)
        })?;
        match number > 0.0 {
            true => Ok(Some(rate.worth * number)),
            false => Err(section.wrong(key, "a price above 0 is wanted")),
        }
    }

    /// Each currency with its value in dollars and the day of its rate.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Dollars, &str)> {
        self.0.iter().map(|(code, rate)| (code.as_str(), rate.worth, rate.day.as_str()))
    }
}

/// Whether a text is a currency's code: three capital letters.
fn is_code(text: &str) -> bool {
    text.len() == 3 && text.chars().all(|letter| letter.is_ascii_uppercase())
}

/// Splits `12000 EUR` into number and code; `None` for dollars and for texts that are not prices.
fn foreign(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let (number, code) = text.split_at_checked(text.len().checked_sub(3)?)?;
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
    (is_code(code) && code != BASE).then_some((number, code))
}

/// Whether a text like 2026-11-01 is a day of the Gregorian calendar.
fn is_day(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let digits = |part: &str, count| part.len() == count && part.chars().all(|digit| digit.is_ascii_digit());
    let [year, month, day] = parts[..] else { return false };
    if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
        return false;
    }
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    let leap = number(year) % 4 == 0 && (number(year) % 100 != 0 || number(year) % 400 == 0);
    let longest = match number(month) {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=longest).contains(&number(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for day in ["2026-11-30", "2024-02-29", "2000-02-29", "1999-12-31"] {
            assert!(is_day(day), "{day}");
        }
        for none in
            ["2026-11-31", "2025-02-29", "1900-02-29", "2026-13-01", "2026-00-10", "2026-1-1", "today", ""]
        {
            assert!(!is_day(none), "{none}");
        }
    }

    #[test]
    fn foreign_amounts_differ_from_dollars_and_words() {
        assert_eq!(foreign("12000EUR"), Some((12000.0, "EUR")));
        assert_eq!(foreign(" 0.3 JPY "), Some((0.3, "JPY")));
        for none in ["12000 USD", "12000", "EUR", "x EUR", "3 eur", "3 €", "NaN EUR"] {
            assert_eq!(foreign(none), None, "{none}");
        }
    }
}
