//! One file per subcommand: its arguments as they are typed, and the calls that answer them.

#[cfg(feature = "run")]
pub mod bench;
pub mod capacity;
pub mod completions;
pub mod explain;
pub mod export;
pub mod machine;
pub mod machine_fit;
pub mod manual;
pub mod merge;
pub mod model;
pub mod plan;
pub mod predict;
#[cfg(feature = "run")]
pub mod quickstart;
pub mod replay;
pub mod report;
pub mod reproduce;
#[cfg(feature = "run")]
pub mod run;
pub mod schema;
pub mod sim;
pub mod sweep;
#[cfg(feature = "run")]
pub mod validate;
