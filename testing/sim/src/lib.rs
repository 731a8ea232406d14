//! The engine, the wire format and the client's session machine of monolock, the very code that ships, in one
//! deterministic world.
//!
//! A seed decides everything: how many machines there are, how fast their clocks run, what the network does, who stops,
//! crashes, sleeps and comes back, and what each program wants. Time is virtual. What is promised is watched in true
//! time by [oracles](Oracle); the first broken promise ends the world. The README tells what the world is like, what is
//! watched and what is not.
//!
//! ```
//! let report = monolock_sim::simulate(7);
//! assert_eq!(report.violation, None);
//! assert_eq!(report.hash, monolock_sim::simulate(7).hash);
//! ```

mod belief;
mod broken;
mod client;
mod clock;
mod faults;
mod ledger;
mod lives;
mod manners;
pub mod many;
mod marks;
mod network;
mod oracle;
mod plan;
mod resource;
mod rng;
mod server;
mod story;
mod watch;
mod world;

pub use broken::Broken;
pub use ledger::{Asked, Ledger};
pub use marks::{Mark, Marks};
pub use oracle::{Breach, Failure, Oracle, Violation};
pub use plan::Profile;

use crate::world::World;

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// What decided it.
    pub seed: u64,
    /// What kind of world it was.
    pub profile: Profile,
    /// How many events there were.
    pub steps: u64,
    /// How long it lasted, in nanoseconds of its own time.
    pub virtual_nanos: u64,
    /// Its history, as one number.
    pub hash: u64,
    /// The interesting things that happened.
    pub marks: Marks,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// What happened, line by line, if it was to be told.
    pub story: Vec<String>,
}

/// Lives through the world of a seed.
pub fn simulate(seed: u64) -> Report {
    World::new(seed, false, None).run(seed)
}

/// Lives through the world of a seed and tells what happens.
pub fn tell(seed: u64) -> Report {
    World::new(seed, true, None).run(seed)
}

/// Lives through a world in which something is broken on purpose, to see that it is found.
pub fn simulate_broken(seed: u64, broken: Broken) -> Report {
    World::new(seed, false, Some(broken)).run(seed)
}
