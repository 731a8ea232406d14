//! Fencing tokens: one strictly rising sequence for all locks of a server.
//!
//! The rule is `max(last + 1, unix_second << 20)` (`docs/protocol.md`, "Tokens"). No two grants share a token and a
//! later grant has the larger one, whatever thread it came from.

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
/// It starts at 1 and has no end. A driver with a wall clock calls [`lift_to_unix_second`](Self::lift_to_unix_second)
/// before each input that may grant, so that tokens go on rising across restarts. A driver that writes down how far
/// tokens may have got gives the sequence an [end](Self::reserve_below) that is no further; engines grant nothing when
/// it is reached, until there is a new one.
#[derive(Debug)]
pub struct TokenSequence {
    next: AtomicU64,
    end: AtomicU64,
}

impl TokenSequence {
    /// A sequence whose first token is 1.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(1), end: AtomicU64::new(u64::MAX) }
    }

    /// A sequence that begins with `first`, and has no token until [`reserve_below`](Self::reserve_below) gives it
    /// some.
    pub const fn starting_at(first: Token) -> Self {
        Self { next: AtomicU64::new(first.get()), end: AtomicU64::new(0) }
    }

    /// Takes the next token; `None` at the end of what is reserved.
    pub fn next(&self) -> Option<Token> {
        // One variable has one order of modification that all threads agree on; nothing else is published through it.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number < self.end.load(Ordering::Relaxed) { Token::new(number) } else { None }
    }

    /// Whether there is a next token, as far as no other thread takes it.
    pub fn has_next(&self) -> bool {
        self.upcoming() < self.end.load(Ordering::Relaxed)
    }

    /// The number that the next token will have, at the least.
    pub fn upcoming(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Lets tokens below `end` be taken.
    pub fn reserve_below(&self, end: u64) {
        self.end.store(end, Ordering::Relaxed);
    }

    /// Makes the next token at least this number.
    pub fn lift_to(&self, number: u64) {
        self.next.fetch_max(number, Ordering::Relaxed);
    }

    /// Makes the next token at least `unix_second << 20`; never lowers it, so a wall clock that steps back does no
    /// harm. Beyond what is reserved it lifts nothing, so one that steps forward does not use up the reserve.
    pub fn lift_to_unix_second(&self, unix_second: u64) {
        let floor = Self::at_unix_second(unix_second);
        // Almost every call finds the floor below: a load leaves the cache line shared.
        if self.next.load(Ordering::Relaxed) < floor && floor < self.end.load(Ordering::Relaxed) {
            self.next.fetch_max(floor, Ordering::Relaxed);
        }
    }

    /// The least number that a token granted in this second of wall time has.
    pub const fn at_unix_second(unix_second: u64) -> u64 {
        let second = if unix_second < LAST_SECOND { unix_second } else { LAST_SECOND };
        second << SECOND_BITS
    }
}

impl Default for TokenSequence {
    fn default() -> Self {
        Self::new()
    }
}
