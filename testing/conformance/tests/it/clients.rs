//! The Rust client keeps every rule: on tokio with one thread, where `block` blocks what keeps the sessions; with
//! several; and without a runtime.

use std::ffi::OsString;

use crate::passes_all;

#[test]
fn the_tokio_client_on_one_thread_passes_every_case() {
    passes_all(&[env!("CARGO_BIN_EXE_rust-driver").into()]);
}

#[test]
fn the_tokio_client_on_threads_passes_every_case() {
    passes_all(&threads(&[]));
}

#[test]
fn the_blocking_client_passes_every_case() {
    passes_all(&threads(&["--blocking"]));
}

fn threads(arguments: &[&str]) -> Vec<OsString> {
    let driver = env!("CARGO_BIN_EXE_rust-threads-driver");
    [driver].iter().chain(arguments).map(OsString::from).collect()
}
