//! Handovers among contenders of any kind: monolock, the floor and the peers in one and the same way.
//!
//! Each contender has a thread, which asks, blocks until it is granted, and releases when all others wait again. So
//! whoever is next is woken by the system and by nothing else, and a server that does not promise an order can be
//! measured too.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::client::Claim;
use crate::target::Address;

/// One that wants the lock.
pub(crate) trait Contender: Send {
    /// Asks for it, and returns when it stands in the queue or has the lock, as far as the server tells.
    fn ask(&mut self) -> io::Result<()>;

    /// Blocks until it has the lock.
    fn wait(&mut self) -> io::Result<()>;

    /// Lets it go.
    fn release(&mut self) -> io::Result<()>;
}

/// How soon a lock is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As soon as all others wait: the cores are awake.
    Hot,
    /// After a pause: the cores have gone to sleep.
    Idle,
}

/// How long the cores have to fall asleep.
const REST: Duration = Duration::from_millis(2);

/// A contest that stands still for so long is over.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came of a contest.
#[derive(Debug, Default)]
pub(crate) struct Contest {
    /// From the release to the next one's grant, in microseconds.
    pub(crate) handovers: Vec<f64>,
    /// How many of the contenders had a turn.
    pub(crate) served: usize,
}

#[derive(Default)]
struct State {
    waiting: usize,
    released: Option<Instant>,
    contest: Contest,
    served: HashSet<usize>,
    over: bool,
    failure: Option<io::Error>,
}

struct Arena {
    contenders: usize,
    pace: Pace,
    most: usize,
    end: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

/// Lets them contend for so many handovers, or so long.
pub(crate) fn contest(
    contenders: Vec<Box<dyn Contender>>,
    pace: Pace,
    most: usize,
    longest: Duration,
) -> io::Result<Contest> {
    let arena = Arena {
        contenders: contenders.len(),
        pace,
        most,
        end: Instant::now() + longest,
        state: Mutex::default(),
        changed: Condvar::new(),
    };
    let arena = Arc::new(arena);
    let contend = |(number, mut contender): (usize, Box<dyn Contender>)| {
        let arena = Arc::clone(&arena);
        thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            if let Err(error) = arena.contend(number, contender.as_mut()) {
                arena.state.lock().failure.get_or_insert(error);
                arena.end();
            }
        })
    };
    let threads: Vec<_> = contenders.into_iter().enumerate().map(contend).collect::<io::Result<_>>()?;
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a contender has panicked"))?;
    }
    let State { mut contest, served, failure, .. } = std::mem::take(&mut *arena.state.lock());
    contest.served = served.len();
    // When it is over some are cut off.
    match failure {
        Some(error) if contest.handovers.is_empty() => Err(error),
        Some(_) | None => Ok(contest),
    }
}

impl Arena {
    fn contend(&self, number: usize, contender: &mut dyn Contender) -> io::Result<()> {
        while !self.state.lock().over {
            contender.ask()?;
            self.state.lock().waiting += 1;
            self.changed.notify_all();
            contender.wait()?;
            let granted = Instant::now();
            self.hold(number, granted);
            self.state.lock().released = Some(Instant::now());
            contender.release()?;
            self.rest_after_turn();
        }
        Ok(())
    }

    /// Notes the handover, and waits until all others are in the queue.
    fn hold(&self, number: usize, granted: Instant) {
        let mut state = self.state.lock();
        state.waiting -= 1;
        if let Some(released) = state.released.take()
            && !state.over
        {
            state.contest.handovers.push(granted.saturating_duration_since(released).as_secs_f64() * 1e6);
            state.served.insert(number);
        }
        if state.contest.handovers.len() >= self.most || granted >= self.end {
            state.over = true;
        }
        self.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        while !state.over && state.waiting + 1 < self.contenders {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                state.over = true;
            }
        }
        drop(state);
        if self.pace == Pace::Idle {
            thread::sleep(REST);
        }
    }

    /// Asks again only when the next one has the lock: what is measured is not to be disturbed.
    fn rest_after_turn(&self) {
        let mut state = self.state.lock();
        while !state.over && state.released.is_some() {
            if self.changed.wait_until(&mut state, self.end).timed_out() {
                state.over = true;
            }
        }
    }

    fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }
}

/// A contender that speaks monolock's protocol.
pub(crate) struct Session {
    address: Address,
    claim: Option<Claim>,
    granted: bool,
}

impl Session {
    pub(crate) fn boxed(address: &Address) -> Box<dyn Contender> {
        Box::new(Self { address: address.clone(), claim: None, granted: false })
    }
}

impl Contender for Session {
    fn ask(&mut self) -> io::Result<()> {
        let claim = self.claim.insert(Claim::make(&self.address)?);
        self.granted = claim.is_granted()?;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        match &mut self.claim {
            Some(claim) if !self.granted => claim.expect_acquired(),
            Some(_) | None => Ok(()),
        }
    }

    fn release(&mut self) -> io::Result<()> {
        self.claim = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A lock made of a channel: whoever has its one token holds it.
    struct Token {
        sender: Sender<()>,
        receiver: Arc<Mutex<Receiver<()>>>,
    }

    impl Contender for Token {
        fn ask(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn wait(&mut self) -> io::Result<()> {
            self.receiver.lock().recv().map_err(io::Error::other)
        }

        fn release(&mut self) -> io::Result<()> {
            self.sender.send(()).map_err(io::Error::other)
        }
    }

    #[test]
    fn as_many_handovers_are_measured_as_were_asked_for() {
        let (sender, receiver) = channel();
        sender.send(()).unwrap();
        let receiver = Arc::new(Mutex::new(receiver));
        let token =
            || Box::new(Token { sender: sender.clone(), receiver: Arc::clone(&receiver) }) as Box<dyn Contender>;
        let contest = contest((0..3).map(|_| token()).collect(), Pace::Hot, 20, PATIENCE).unwrap();
        assert_eq!(contest.handovers.len(), 20);
        assert!((1..=3).contains(&contest.served), "{contest:?}");
        assert!(contest.handovers.iter().all(|time| *time >= 0.0));
    }

    struct Broken;

    impl Contender for Broken {
        fn ask(&mut self) -> io::Result<()> {
            Err(io::Error::other("no server"))
        }

        fn wait(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn release(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_contender_that_fails_ends_the_contest_with_its_error() {
        let error = contest(vec![Box::new(Broken), Box::new(Broken)], Pace::Hot, 5, PATIENCE).unwrap_err();
        assert_eq!(error.to_string(), "no server");
    }
}
