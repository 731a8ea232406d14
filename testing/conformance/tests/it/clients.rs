//! The Rust client, by both of its drivers, keeps every rule.

use crate::passes_all;

#[test]
fn the_tokio_client_passes_every_case() {
    passes_all(&[env!("CARGO_BIN_EXE_rust-driver").into()], &["does not support", "this system", "here"]);
}

#[test]
fn the_blocking_client_passes_every_case() {
    passes_all(&[env!("CARGO_BIN_EXE_rust-blocking-driver").into()], &["does not support", "this system", "here"]);
}
