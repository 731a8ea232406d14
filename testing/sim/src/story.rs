//! What happened, in words for people and as a number for machines.
//!
//! Every step is part of the history's hash, told or not; words are made only where somebody reads them.

use std::fmt;
use std::hash::Hasher;

use fnv::FnvHasher;

use crate::clock::True;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    World,
    Operator,
    Server,
    Resource,
    Host(usize),
    /// A claim of a machine.
    Slot(usize, usize),
}

#[derive(Default)]
pub(crate) struct Story {
    hasher: FnvHasher,
    told: Option<Vec<String>>,
}

impl Story {
    pub(crate) fn new(is_told: bool) -> Self {
        Self { hasher: FnvHasher::default(), told: is_told.then(Vec::new) }
    }

    /// Something happened. `number` tells apart what one sentence could mean.
    pub(crate) fn tell(&mut self, at: True, who: Who, number: u64, words: impl FnOnce() -> String) {
        self.mix(at);
        self.mix(number);
        if let Some(told) = &mut self.told {
            told.push(format!(
                "{:>5}.{:06} s  {:<12} {}",
                at / 1_000_000_000,
                at / 1000 % 1_000_000,
                who.to_string(),
                words()
            ));
        }
    }

    /// Makes a number part of the history.
    pub(crate) fn mix(&mut self, number: u64) {
        self.hasher.write_u64(number);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.told.unwrap_or_default()
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::World => f.write_str("—"),
            Self::Operator => f.write_str("operator"),
            Self::Server => f.write_str("server"),
            Self::Resource => f.write_str("resource"),
            Self::Host(host) => write!(f, "client-{}", host + 1),
            Self::Slot(host, slot) => {
                let letter = char::from(b'a' + u8::try_from(slot % 26).unwrap_or(0));
                write!(f, "client-{}/{letter}", host + 1)
            }
        }
    }
}

/// A span of time for people.
pub(crate) fn span(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{} µs", nanos / 1000),
        1_000_000..10_000_000_000 => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} s", nanos / 1_000_000_000),
    }
}
