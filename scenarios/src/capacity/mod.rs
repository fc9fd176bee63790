//! How many machines a load takes, and what they cost.

pub(crate) mod currencies;
pub(crate) mod market_prices;
pub(crate) mod question;
