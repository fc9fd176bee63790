//! All integration tests of the planner in one program.

mod cases;
mod engine_plans;
mod experts;
mod exporting;
mod fixture;
mod forced;
mod formats;
mod front;
mod hazards;
mod improvement;
mod machine;
mod measured_floor;
mod mixture;
mod planning;
mod published;
mod recurrences;
mod residency;
mod scorer;
mod speculation;
mod stripes;
mod table;
mod trace_file;
