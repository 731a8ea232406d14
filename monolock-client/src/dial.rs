//! Which address to try next, and how long: one is dead, another accepts and stays mute, a third one serves.
//!
//! Pure: it is told what came of each step. The connect timeout bounds the whole attempt; every candidate gets an even share of what is
//! left for those that are still to come, so nobody's silence uses up the time of the next.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::wire::ErrorClass;
use monolock_core::{LockName, Timestamp};

use crate::config::Config;
use crate::error::{Attempt, AttemptFailure, Error};
use crate::resolve::Found;
use crate::session::LossReason;

/// One attempt at reaching a server.
pub(crate) struct Dial {
    config: Arc<Config>,
    name: LockName,
    deadline: Timestamp,
    /// How many of the configured addresses have been looked up.
    looked_up: usize,
    /// What the last look-up found, how much of it has been tried, and when its share of the time is over.
    candidates: Arc<[SocketAddr]>,
    tried: usize,
    candidates_until: Timestamp,
    failures: Vec<Attempt>,
}

/// What to do next.
pub(crate) enum Step {
    /// Look this up and report to [`Dial::found`].
    LookUp { address: String, budget: Duration },
    /// Connect and wait for the first answer; report a failure to [`Dial::failed`].
    Connect { address: SocketAddr, budget: Duration },
    /// Nobody is left.
    Exhausted(Error),
}

impl Dial {
    pub(crate) fn new(now: Timestamp, config: &Arc<Config>, name: &LockName) -> Self {
        Self {
            config: Arc::clone(config),
            name: name.clone(),
            deadline: now.saturating_add(config.connect_timeout),
            looked_up: 0,
            candidates: Arc::default(),
            tried: 0,
            candidates_until: now,
            failures: Vec::new(),
        }
    }

    pub(crate) fn next_step(&mut self, now: Timestamp) -> Step {
        if let Some(&address) = self.candidates.get(self.tried) {
            let budget = share(self.candidates_until.since(now), self.candidates.len() - self.tried);
            self.tried += 1;
            return Step::Connect { address, budget };
        }
        if let Some(address) = self.config.addresses.get(self.looked_up) {
            let budget = share(self.deadline.since(now), self.config.addresses.len() - self.looked_up);
            self.looked_up += 1;
            self.candidates_until = now.saturating_add(budget);
            return Step::LookUp { address: address.clone(), budget };
        }
        Step::Exhausted(Error::unreachable(self.name.clone(), mem::take(&mut self.failures)))
    }

    /// The look-up came to this; `None`: to nothing in time.
    pub(crate) fn found(&mut self, address: String, budget: Duration, found: Option<Found>) {
        let failure = match found {
            Some(Ok(candidates)) if !candidates.is_empty() => {
                (self.candidates, self.tried) = (candidates, 0);
                return;
            }
            Some(Ok(_)) => AttemptFailure::NoAddress,
            Some(Err(error)) => AttemptFailure::Lookup(error),
            None => AttemptFailure::NoTime(budget),
        };
        self.failures.push(Attempt { address, failure });
    }

    /// This address did not take the claim in.
    ///
    /// # Errors
    /// Where the server said that no other one will either (a code from 0x10 up).
    pub(crate) fn failed(&mut self, address: SocketAddr, failure: AttemptFailure) -> Result<(), Error> {
        let address = address.to_string();
        if let AttemptFailure::Refused(LossReason::Server { code, reason }) = &failure
            && code.class() == ErrorClass::ClientError
        {
            return Err(Error::refused(self.name.clone(), address, *code, reason.clone()));
        }
        self.failures.push(Attempt { address, failure });
        Ok(())
    }
}

/// The share of `remaining` that the next of so many candidates gets.
fn share(remaining: Duration, candidates: usize) -> Duration {
    remaining / u32::try_from(candidates.max(1)).unwrap_or(u32::MAX)
}
