//! Tests of the reports, on made-up results.

mod comparing;
mod page;
mod results;
mod sample;
mod tables;
