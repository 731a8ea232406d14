//! The container image: built twice, and run as people run it, by podman.
//!
//! Podman has a storage, a configuration and networks of the test's own, so that nothing of the machine is touched.
//! `cargo xtask test image` also puts it into namespaces of its own, with which everything goes that it leaves behind.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

#[path = "../operations/pki.rs"]
#[expect(dead_code, reason = "some of it is for the tests of TLS")]
mod pki;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "some of it is for the other tests of this crate")]
mod support;
#[path = "../operations/wall_clock.rs"]
mod wall_clock;

mod compose;
mod engine;
mod kubernetes;
mod page;
mod running;
mod systemd;
mod what_it_is;
