//! Worlds that are broken on purpose, so that each oracle can be seen to find something.
//!
//! These are test doubles of the drivers around the engine and the session machine. No command line reaches them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::rng::Rng;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The clocks of all clients are slow by a third.
    SlowClients,
    /// The client's driver takes the time of a sending after the answer is in.
    StampsFromReceipt,
    /// The client's program asks no clock: what it was once told it believes.
    BelievesUntilTold,
    /// The client's driver tells its program of an end twice.
    TellsTwice,
    /// The client's driver sends two heartbeats at a time.
    SendsTwice,
    /// The server's driver ends a holder's claim at any error of its socket.
    ErrorsEndClaims,
    /// The server's clock is fast by two fifths, so that it promotes before the old holder's lease is out.
    ExpiresEarly,
    /// The server's driver never wakes up by itself.
    NeverWakes,
    /// The server's driver is woken at once, over and over.
    SpinsAtWakeUp,
    /// The server's driver answers each heartbeat twice.
    AnswersTwice,
    /// The server's driver promises a grace and keeps none.
    NoGrace,
    /// The server's driver begins its tokens at 1 at each start.
    TokensBeginAnew,
    /// The server's driver answers what breaks the protocol with another code.
    WrongCode,
    /// The server's driver does not close what is over.
    KeepsConnections,
    /// The resource does not remember tokens.
    ForgetfulResource,
    /// The world draws from outside its seed.
    Entropy,
}

impl Broken {
    pub(crate) fn stir(rng: &mut Rng) {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        (0..RUNS.fetch_add(1, Ordering::Relaxed) % 1000).for_each(|_| {
            rng.next();
        });
    }
}
