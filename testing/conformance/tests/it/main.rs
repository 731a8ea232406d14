//! The golden vectors, the suite against the Rust client, and the suite's own proof.

mod vectors;
