//! The real server and real clients under faults, and a checker of what they say happened.
//!
//! The library is the pure part: what a history is ([`history`]), what it must never show ([`check`]), which faults a
//! seed brings ([`plan`]), and the table at the end ([`tally`]). The program does it to processes: `cargo xtask chaos`.
//! The README beside this says what is done to what.

pub mod check;
pub mod history;
pub mod plan;
pub mod tally;
