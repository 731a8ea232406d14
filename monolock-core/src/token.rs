//! Fencing tokens: one strictly rising sequence for all locks of a server.
//!
//! The rule is `max(last + 1, unix_second << 20)` (`PROTOCOL.md`, "Tokens"). No two grants share a token and a later grant has the
//! larger one, whatever thread it came from.

use core::fmt;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

/// How far a second of wall time moves the sequence: 2^20 grants.
const SECOND_BITS: u32 = 20;

/// The last second whose floor leaves the sequence room to count on: the year 280 000.
const LAST_SECOND: u64 = (1 << 43) - 1;

/// A fencing token: larger than that of any earlier grant. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The token with this number; `None` for zero, which no server grants.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Where tokens come from: shared by all engines of one server.
///
/// It starts at 1. A driver with a wall clock calls [`lift_to_unix_second`](Self::lift_to_unix_second) before each input that may
/// grant, so that tokens go on rising across restarts.
#[derive(Debug)]
pub struct TokenSequence {
    next: AtomicU64,
}

impl TokenSequence {
    /// A sequence whose first token is 1.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(1) }
    }

    /// Takes the next token.
    ///
    /// # Panics
    /// After 2^63 grants: the sequence must not wrap.
    pub fn next(&self) -> Token {
        // One variable has one order of modification that all threads agree on; nothing else is published through it.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Token::new(number).expect("the sequence starts at 1 and is never exhausted")
    }

    /// Makes the next token at least `unix_second << 20`; never lowers it, so a wall clock that steps back does no harm.
    pub fn lift_to_unix_second(&self, unix_second: u64) {
        let floor = unix_second.min(LAST_SECOND) << SECOND_BITS;
        // Almost every call finds the floor below: a load leaves the cache line shared.
        if self.next.load(Ordering::Relaxed) < floor {
            self.next.fetch_max(floor, Ordering::Relaxed);
        }
    }
}

impl Default for TokenSequence {
    fn default() -> Self {
        Self::new()
    }
}
