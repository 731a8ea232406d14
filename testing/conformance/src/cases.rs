//! The cases. A case is named after the scenario or the rule that it shows; what it asserts about time is an order of
//! events, with a margin of at least 100 ms.

mod addresses;
mod errors;
mod frames;
mod heartbeats;
mod inputs;
mod losing;
mod queue;
mod retrying;
mod tls;
mod work;

use std::fmt;

use crate::outcome::Outcome;
use crate::world::World;

/// One thing that a client must do.
pub struct Case {
    /// Its name, with the id of the scenario.
    pub name: &'static str,
    /// What is shown.
    pub about: &'static str,
    /// Plays the server and watches the client.
    pub run: fn(&World) -> Outcome,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn case(name: &'static str, about: &'static str, run: fn(&World) -> Outcome) -> Case {
    Case { name, about, run }
}

/// All cases, the long ones first, so that none is left over at the end.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    [
        heartbeats::CASES,
        work::CASES,
        retrying::CASES,
        losing::CASES,
        queue::CASES,
        addresses::CASES,
        tls::CASES,
        frames::CASES,
        errors::CASES,
        inputs::CASES,
    ]
    .into_iter()
    .flatten()
}
