//! What long tasks tell while they run. The library prints nothing: a caller who wants to show
//! something passes a function that hears of each event.

/// A part of a task that takes a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskStage {
    /// This machine is measured.
    Measuring,
    /// A model with random weights is written.
    MakingModel,
    /// Plans are made.
    Planning,
    /// Plans are run for real.
    Running,
    /// The points of a sweep are planned and simulated.
    Sweeping,
}

/// Something that a caller may want to show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProgressEvent<'a> {
    /// A stage begins.
    Begin(TaskStage),
    /// So many of so many steps of the stage are done.
    Steps {
        /// Steps that are done.
        done: u64,
        /// Steps in all.
        of: u64,
    },
    /// What the stage works on now.
    Item(&'a str),
    /// The stage is over.
    End,
    /// A remark on something that is left out or goes another way than planned.
    Note(&'a str),
    /// Something that makes a result less reliable.
    Warning(&'a str),
}

/// Hears of what a task does, possibly from several threads.
pub type ProgressFn<'f> = dyn Fn(ProgressEvent<'_>) + Sync + 'f;

/// Hears of everything and shows nothing.
pub fn no_progress(_: ProgressEvent<'_>) {}
