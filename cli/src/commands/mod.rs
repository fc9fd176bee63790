//! One file per subcommand: its arguments as they are typed, and the calls that answer them.

pub mod bench;
pub mod capacity;
pub mod completions;
pub mod explain;
pub mod export;
pub mod machine;
pub mod machine_fit;
pub mod merge;
pub mod model;
pub mod plan;
pub mod predict;
pub mod quickstart;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod sim;
pub mod sweep;
pub mod validate;
