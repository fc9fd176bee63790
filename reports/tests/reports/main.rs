//! Tests of the reports, on made-up results.

mod comparing;
mod page;
mod sample;
mod tables;
