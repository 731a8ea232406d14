//! What the client promises, by scenario.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod blocking;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod certificates;
#[cfg(feature = "tokio")]
mod driver;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod leaks;
mod machine;
mod safety;
mod script;
mod server;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod tls;
