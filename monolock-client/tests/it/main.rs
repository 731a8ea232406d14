//! What the client promises, by scenario.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod blocking;
mod driver;
mod leaks;
mod machine;
mod safety;
mod script;
mod server;
