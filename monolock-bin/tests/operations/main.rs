//! The server among the tools of those who run it: certificates and clients of OpenSSL, a Prometheus, logrotate, systemd, a
//! wall clock that steps.
//!
//! These tests need those tools, so they are asked for by a feature; `cargo xtask test operations` runs them.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

#[path = "../it/stage.rs"]
#[expect(dead_code, reason = "some of it is for the other tests of this crate")]
mod stage;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "some of it is for the other tests of this crate")]
mod support;

mod access;
mod clock;
mod dashboards;
mod high_availability;
mod pki;
mod prometheus;
mod reload;
mod rotation;
mod systemd;
mod tls;
mod tls_client;
mod walk_through;
mod wall_clock;
