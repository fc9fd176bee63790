//! Exit statuses: 0 done, 1 failed, 2 wrong usage or input, 3 infeasible.

use std::process::ExitCode;

/// Why a command ends without its result.
#[derive(Debug)]
pub enum Failure {
    /// The world failed us: exit 1.
    Failed(anyhow::Error),
    /// The user's input is wrong: exit 2.
    Input(anyhow::Error),
    /// Nothing satisfies the constraints: exit 3.
    Infeasible(anyhow::Error),
}

/// What every command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// What a GPU could not do is the world's failure; other errors of a run are about plans, prompts and files, which are the
    /// user's.
    pub fn of_run(error: executor::Error) -> Self {
        match error {
            executor::Error::Gpu { .. } => Self::Failed(error.into()),
            _ => Self::Input(error.into()),
        }
    }

    /// The process's exit status.
    pub fn status(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Failed(_) => 1,
            Failure::Input(_) => 2,
            Failure::Infeasible(_) => 3,
        })
    }

    /// The same, told of `name`.
    pub fn of(self, name: &str) -> Self {
        let within = |error: anyhow::Error| error.context(name.to_owned());
        match self {
            Failure::Failed(error) => Failure::Failed(within(error)),
            Failure::Input(error) => Failure::Input(within(error)),
            Failure::Infeasible(error) => Failure::Infeasible(within(error)),
        }
    }

    /// What to tell the user.
    pub fn error(&self) -> &anyhow::Error {
        match self {
            Failure::Failed(error) | Failure::Input(error) | Failure::Infeasible(error) => error,
        }
    }
}

/// Sorts an error into its exit status at the place where its cause is known.
pub trait Sort<T> {
    /// The user's input is wrong.
    fn or_input(self) -> Outcome<T>;
    /// The world failed us.
    fn or_failed(self) -> Outcome<T>;
}

impl<T, E: Into<anyhow::Error>> Sort<T> for Result<T, E> {
    fn or_input(self) -> Outcome<T> {
        self.map_err(|error| Failure::Input(error.into()))
    }

    fn or_failed(self) -> Outcome<T> {
        self.map_err(|error| Failure::Failed(error.into()))
    }
}
