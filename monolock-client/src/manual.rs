//! The Rust of the manual, as tests of the documentation: it is compiled, and run where it needs no server.

#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;

#[doc = include_str!("../../docs/quick-start.md")]
struct QuickStart;
