//! A session together with its clock and those who wait for its outcome: what both drivers share.
//!
//! Each input reads the clock itself, right when it is made, and what it brought about is told before it returns: the
//! hold first, then whoever waits. So a driver only moves bytes and cannot forget to tell.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use crate::cancel::Cancel;
use crate::clock::Clock;
use crate::config::{Handle, OnQueued};
use crate::error::Error;
use crate::held::Held;
use crate::session::{Event, LossReason, Session, SessionConfig, Standing};
use crate::signal::Signal;

/// What acquiring came to.
pub(crate) type Outcome = Result<Held, Error>;

/// Whether a caller is ready to wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Queue,
}

pub(crate) struct Claim {
    session: Session,
    clock: Arc<dyn Clock>,
    cancel: Cancel,
    /// Who is to know when the wait in the queue begins; nobody, where the caller does not wait.
    on_queued: Option<OnQueued>,
    held: Option<Held>,
    outcome: Arc<Signal<Outcome>>,
    refused: Option<LossReason>,
    /// What one input brought about; kept for its memory.
    events: Vec<Event>,
}

impl Claim {
    /// A claim on a connection that has just been made.
    pub(crate) fn new(
        handle: &Handle,
        request: SessionConfig,
        patience: Patience,
        outcome: Arc<Signal<Outcome>>,
    ) -> Self {
        let Handle { config, cancel, on_queued, .. } = handle;
        let clock = Arc::clone(&config.clock);
        Self {
            session: Session::new(clock.now(), request),
            clock,
            cancel: cancel.clone(),
            on_queued: on_queued.clone().filter(|_| patience == Patience::Queue),
            held: None,
            outcome,
            refused: None,
            events: Vec::new(),
        }
    }

    /// Appends what is to be written now; see [`Session::transmit`].
    pub(crate) fn transmit(&mut self, out: &mut Vec<u8>) {
        self.session.transmit(self.clock.now(), out);
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.session.receive(self.clock.now(), bytes, &mut self.events);
        self.tell();
    }

    pub(crate) fn tick(&mut self) {
        self.session.tick(self.clock.now(), &mut self.events);
        self.tell();
    }

    pub(crate) fn disconnected(&mut self, error: Option<&io::Error>) {
        self.session.disconnected(self.clock.now(), error.map(io::Error::kind), &mut self.events);
        self.tell();
    }

    pub(crate) const fn standing(&self) -> Standing {
        self.session.standing()
    }

    /// Whether the connection is to be closed.
    pub(crate) fn is_over(&self) -> bool {
        self.standing() == Standing::Over || self.held.as_ref().is_some_and(|held| !held.is_held())
    }

    /// How long until [`tick`](Self::tick) is due; zero when it is, or when all is over.
    pub(crate) fn until_due(&self) -> Duration {
        self.session.next_deadline().map_or(Duration::ZERO, |deadline| deadline.since(self.clock.now()))
    }

    /// Why the session ended before its claim was taken in, where it did.
    pub(crate) fn take_refusal(&mut self) -> Option<LossReason> {
        self.refused.take()
    }

    fn tell(&mut self) {
        if let (Some(held), Some(instant)) = (&self.held, self.session.gives_up_at()) {
            held.believe_until(instant);
        }
        for event in self.events.drain(..) {
            match event {
                Event::Queued => {
                    if let Some(on_queued) = &self.on_queued {
                        on_queued.call(&self.session.config().name);
                    }
                }
                Event::Granted { token } => {
                    let held = Held::new(token, Arc::clone(&self.clock), self.cancel.clone(), &self.session);
                    self.held = Some(held.clone());
                    // Where nobody waits any more, the driver is already closing.
                    self.outcome.set(Ok(held));
                }
                Event::Refused { reason } => self.refused = Some(reason),
                Event::Lost { reason } => match &self.held {
                    Some(held) => held.end(reason),
                    None => {
                        self.outcome.set(Err(Error::lost(self.session.config().name.clone(), reason)));
                    }
                },
            }
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.session).finish()
    }
}

impl Drop for Claim {
    /// Whoever let this claim go without its end (an aborted task, a runtime that stops, a panic) leaves nobody
    /// waiting. A hold that was released, and an outcome that is known, are past being told.
    fn drop(&mut self) {
        let reason = LossReason::Closed { error: None };
        match (&self.held, self.standing()) {
            (Some(held), _) => held.end(reason),
            (None, Standing::Queued) => {
                self.outcome.set(Err(Error::lost(self.session.config().name.clone(), reason)));
            }
            (None, Standing::Asking | Standing::Holding { .. } | Standing::Over) => {}
        }
    }
}
