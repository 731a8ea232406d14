//! Everything that monolock-core promises, through its public door.
#![expect(clippy::unwrap_used, reason = "a test that unwraps fails where it stands")]

mod model;
mod story;
