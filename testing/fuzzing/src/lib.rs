//! What the fuzz targets check, one function a target.
//!
//! A function takes any bytes, makes of them what a stranger could send, and panics where monolock does not do what a
//! naive reading of `docs/protocol.md` says. The targets in `fuzz/` are one line each over these functions; the tests
//! of this crate call them with every file of `fuzz/corpus` and `fuzz/regressions`, so that neither can rot.
//!
//! No check looks at a clock or draws a number: the same bytes take the same way in every run.

mod acl;
mod admin_path;
mod client;
mod protocol;
mod session;
mod streams;
mod token_file;
mod wire;

#[path = "../../../monolock-core/tests/it/story.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "a test's module; stories are told here and never shrunk")]
mod story;

#[path = "../../../monolock-core/tests/it/model.rs"]
#[expect(clippy::unwrap_used, reason = "a test's module")]
mod model;

pub use acl::acl;
pub use admin_path::admin_path;
pub use client::client;
pub use session::session;
pub use token_file::token_file;
pub use wire::wire;

/// The engine does what its naive model does.
pub fn engine(bytes: &[u8]) {
    model::agree(&story::Story::draw(&mut story::Bytes(bytes), bytes.len() / 4), |_| ());
}

/// What is called with an input; it panics where something is wrong.
pub type Check = fn(&[u8]);

/// Every target, by the name of its file in `fuzz/fuzz_targets`.
pub const TARGETS: [(&str, Check); 7] = [
    ("acl", acl),
    ("admin_path", admin_path),
    ("client", client),
    ("engine", engine),
    ("session", session),
    ("token_file", token_file),
    ("wire", wire),
];
