//! Hand-written histories: what must never be is found, and what may be is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod end;
mod guards;
mod holding;
mod order;
mod plan;
mod story;
mod table;
