//! Which address to try next, and how long: one is dead, another accepts and stays mute, a third one serves.
//!
//! Pure: it is told what came of each step. The connect timeout bounds the whole attempt; every candidate gets an even
//! share of what is left for those that are still to come, so nobody's silence uses up the time of the next.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use monolock_core::wire::ErrorClass;
use monolock_core::{LockName, Timestamp};

use crate::config::Config;
use crate::error::{Attempt, AttemptFailure, Error};
use crate::resolve::Found;
use crate::security::Security;
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
    /// Connect, shake hands, and wait for the first answer; report a failure to [`Dial::failed`].
    Connect { address: SocketAddr, security: Security, budget: Duration },
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
            // Candidates are of the server that was looked up last.
            let security = self.config.servers[self.looked_up - 1].security.clone();
            return Step::Connect { address, security, budget };
        }
        if let Some(server) = self.config.servers.get(self.looked_up) {
            let budget = share(self.deadline.since(now), self.config.servers.len() - self.looked_up);
            self.looked_up += 1;
            self.candidates_until = now.saturating_add(budget);
            return Step::LookUp { address: server.address.clone(), budget };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Builder;

    fn dial(addresses: &[&str], connect_timeout: Duration) -> Dial {
        let (first, rest) = addresses.split_first().unwrap();
        let builder = Builder::<()>::new((*first).to_owned()).connect_timeout(connect_timeout);
        let builder = rest.iter().fold(builder, |builder, address| builder.address(*address));
        let config = builder.into_config().unwrap();
        Dial::new(Timestamp::ORIGIN, &config, &LockName::new("jobs").unwrap())
    }

    /// Looks up what comes next, finding these.
    fn look_up(dial: &mut Dial, now: Timestamp, found: &[&str]) {
        let Step::LookUp { address, budget } = dial.next_step(now) else { panic!("a look-up comes next") };
        let found = found.iter().map(|literal| literal.parse().unwrap()).collect();
        dial.found(address, budget, Some(Ok(found)));
    }

    fn connect(dial: &mut Dial, now: Timestamp) -> (SocketAddr, Duration) {
        let Step::Connect { address, budget, .. } = dial.next_step(now) else { panic!("a connection comes next") };
        (address, budget)
    }

    #[test]
    fn b46_each_candidate_has_an_even_share_of_what_is_left() {
        let mut dial = dial(&["one:1", "two:2"], Duration::from_secs(8));
        look_up(&mut dial, Timestamp::ORIGIN, &["10.0.0.1:1", "10.0.0.2:1"]);
        let (first, budget) = connect(&mut dial, Timestamp::ORIGIN);
        assert_eq!(budget, Duration::from_secs(2));
        dial.failed(first, AttemptFailure::NoTime(budget)).unwrap();
        // It used less than its share: the next one has the rest.
        let (second, budget) = connect(&mut dial, Timestamp::from_millis(1000));
        assert_eq!(budget, Duration::from_secs(3));
        dial.failed(second, AttemptFailure::NoTime(budget)).unwrap();
        look_up(&mut dial, Timestamp::from_millis(4000), &["10.0.0.3:2"]);
        let (third, budget) = connect(&mut dial, Timestamp::from_millis(4500));
        assert_eq!(budget, Duration::from_millis(3500));
        dial.failed(third, AttemptFailure::NoTime(budget)).unwrap();
        let Step::Exhausted(error) = dial.next_step(Timestamp::from_millis(8000)) else { panic!("nobody is left") };
        for address in [first, second, third] {
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
    }

    #[test]
    fn b46_a_name_without_addresses_leaves_the_turn_to_the_next() {
        let mut dial = dial(&["one:1", "two:2"], Duration::from_secs(8));
        look_up(&mut dial, Timestamp::ORIGIN, &[]);
        look_up(&mut dial, Timestamp::ORIGIN, &["10.0.0.3:2"]);
        assert_eq!(connect(&mut dial, Timestamp::ORIGIN).1, Duration::from_secs(8));
    }
}
