//! How a case ends that does not go through to its end: it stops where the client did something else than expected.

/// What stopped a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The client did something else: what was expected and what came, with times.
    Failed(String),
    /// The case cannot be run here, and why.
    Skipped(String),
}

/// A part of a case: it went as expected, or the case stops.
pub type Outcome<T = ()> = Result<T, Stop>;

/// The client did something else.
///
/// # Errors
/// Always.
pub fn fail<T>(what: impl Into<String>) -> Outcome<T> {
    Err(Stop::Failed(what.into()))
}

/// Stops the case with `what` unless `holds`.
///
/// # Errors
/// [`Stop::Failed`].
pub fn ensure(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { fail(what()) }
}
