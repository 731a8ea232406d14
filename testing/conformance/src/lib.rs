//! A conformance suite for monolock clients, whatever they are written in.
//!
//! Each [`Case`] starts the client under test as a process, tells it over the driver protocol what to do ([`driver`]),
//! and plays the server that it talks to ([`server`]): to the millisecond, and not always well. What a client must do
//! is said in `docs/protocol.md`; how a stranger runs the suite, in `docs/writing-a-client.md`.
//!
//! ```no_run
//! let command = ["my-driver".into()];
//! for report in monolock_conformance::run(&command, monolock_conformance::cases(), 8) {
//!     println!("{report}");
//! }
//! ```

pub mod cases;
pub mod driver;
pub mod outcome;
pub mod server;
pub mod timeline;
pub mod tls;
pub mod world;

mod stalls;
mod suite;

pub use cases::{Case, cases};
pub use suite::{Report, Verdict, run};
