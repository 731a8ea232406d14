//! The simulator, seen from outside: that worlds keep what is promised, that they are one history a seed, and that each
//! oracle finds what it is there for.
#![expect(clippy::unwrap_used, reason = "what fails in a test is a failed test")]

mod broken;
mod command;
mod ledger;
mod many;
mod worlds;
