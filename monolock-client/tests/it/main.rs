//! What the client promises, by scenario.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod blocking;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod certificates;
#[cfg(feature = "tokio")]
mod driver;
mod examples;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod leaks;
mod machine;
#[cfg(feature = "tokio")]
mod readme;
#[cfg(feature = "tokio")]
mod real;
mod safety;
mod script;
#[cfg_attr(
    not(feature = "tokio"),
    expect(dead_code, reason = "without the async client, some parts of a server are not played")
)]
mod server;
#[cfg(all(feature = "tls", feature = "tokio"))]
mod tls;
