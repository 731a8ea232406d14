//! What a case has at hand: the driver, servers, and the sentences with which it says what it expects.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::driver::{Driver, Event};
use crate::outcome::{Outcome, Stop, ensure, fail};
use crate::server::{Peer, SOON, Server, acquired, waiting};
use crate::timeline::Timeline;
use crate::tls::Authority;

/// How long what has to happen at once may take: on a machine that is busy with other things. What a client does later
/// for another reason, a give-up or a heartbeat, must come later than this.
pub const PROMPTLY: Duration = Duration::from_secs(2);

/// How much earlier than the server's own expiry a loss must have been told.
pub const MARGIN: Duration = Duration::from_millis(100);

/// The token of most grants.
pub const TOKEN: u64 = 42;

/// One case's world. Dropping it kills the driver.
#[derive(Debug)]
pub struct World {
    /// The client under test.
    pub driver: Driver,
    /// What happened so far.
    pub timeline: Timeline,
}

impl World {
    /// A server on a free port.
    pub fn server(&self) -> Server {
        Server::new(&self.timeline)
    }

    /// A certificate authority, and files for the driver.
    pub fn authority(&self) -> Authority {
        Authority::new()
    }

    /// Sends an operation.
    ///
    /// # Errors
    /// The driver reads no more.
    pub fn ask(&self, op: &Op) -> Outcome {
        self.driver.send(&op.0)
    }

    /// Sends an operation that has a name and an id alone.
    ///
    /// # Errors
    /// The driver reads no more.
    pub fn tell(&self, op: &str, id: u64) -> Outcome {
        self.driver.send(&json!({"op": op, "id": id}))
    }

    /// The next event of this id must be this one, and come in time. What comes a little late is waited for, to be
    /// told.
    ///
    /// # Errors
    /// Something else comes, or it comes late.
    pub fn expect_by(&self, id: u64, event: &str, by: Instant) -> Outcome<Event> {
        let expected = || format!("expected {event} of {id} by {}", self.timeline.clock(by));
        let Some(came) = self.driver.next(Some(id), by.max(Instant::now()) + Duration::from_secs(1)) else {
            return fail(format!("{}; nothing came{}", expected(), self.driver.last_words()));
        };
        if came.body["unsupported"] == true {
            return Err(Stop::Skipped("the driver does not support it".to_owned()));
        }
        ensure(came.body["event"] == event && came.at <= by, || {
            format!("{}; came {} at {}", expected(), came.body, self.timeline.clock(came.at))
        })?;
        Ok(came)
    }

    /// The next event of this id must be this one, and come within this time.
    ///
    /// # Errors
    /// Something else comes, or it comes late.
    pub fn expect(&self, id: u64, event: &str, within: Duration) -> Outcome<Event> {
        self.expect_by(id, event, Instant::now() + within)
    }

    /// The lock is acquired with this token.
    ///
    /// # Errors
    /// Something else comes.
    pub fn expect_acquired(&self, id: u64, token: u64) -> Outcome<Event> {
        let event = self.expect(id, "acquired", SOON)?;
        self.same(&event, "token", &json!(token.to_string()))?;
        Ok(event)
    }

    /// The acquiring fails with this kind, and this code where the server sent one.
    ///
    /// # Errors
    /// Something else comes, or it comes late.
    pub fn expect_error(&self, id: u64, kind: &str, code: Option<u8>, within: Duration) -> Outcome<Event> {
        let event = self.expect(id, "error", within)?;
        self.same(&event, "kind", &json!(kind))?;
        self.same(&event, "code", &json!(code))?;
        Ok(event)
    }

    /// The lock is lost for this reason.
    ///
    /// # Errors
    /// Something else comes, or it comes late.
    pub fn expect_lost(&self, id: u64, reason: &str, code: Option<u8>, by: Instant) -> Outcome<Event> {
        let event = self.expect_by(id, "lost", by)?;
        self.same(&event, "reason", &json!(reason))?;
        self.same(&event, "code", &json!(code))?;
        Ok(event)
    }

    /// Asks whether the lock is held, and sees that the answer is this.
    ///
    /// # Errors
    /// It is not.
    pub fn expect_held(&self, id: u64, held: bool) -> Outcome<Event> {
        self.tell("is_held", id)?;
        let event = self.expect(id, "is_held", SOON)?;
        self.same(&event, "held", &json!(held))?;
        Ok(event)
    }

    /// The loss by the clock is told, and the question that was asked before is answered with no, in whatever order,
    /// but in time: a hold that was revived would be lost later.
    ///
    /// # Errors
    /// Something else comes.
    pub fn expect_lost_and_not_held(&self, id: u64, by: Instant) -> Outcome {
        let (mut lost, mut answered) = (false, false);
        while !(lost && answered) {
            let Some(event) = self.driver.next(Some(id), by) else {
                let by = self.timeline.clock(by);
                return fail(format!("expected lost and is_held by {by}; lost came: {lost}, is_held came: {answered}"));
            };
            if event.body["event"] == "lost" && !lost {
                self.same(&event, "reason", &json!("timeout"))?;
                lost = true;
            } else {
                self.same(&event, "event", &json!("is_held"))?;
                self.same(&event, "held", &json!(false))?;
                answered = true;
            }
        }
        Ok(())
    }

    /// Nothing is said of this id for so long.
    ///
    /// # Errors
    /// Something is.
    pub fn quiet(&self, id: u64, during: Duration) -> Outcome {
        match self.driver.next(Some(id), Instant::now() + during) {
            None => Ok(()),
            Some(Event { at, body }) => {
                fail(format!("expected no event of {id}; came {body} at {}", self.timeline.clock(at)))
            }
        }
    }

    /// A field of an event must be this.
    ///
    /// # Errors
    /// It is not.
    pub fn same(&self, event: &Event, field: &str, expected: &Value) -> Outcome {
        ensure(event.body.get(field).unwrap_or(&Value::Null) == expected, || {
            format!("expected {field} {expected}; came {} at {}", event.body, self.timeline.clock(event.at))
        })
    }

    /// Acquires a free lock: the connection, and when the `ACQUIRE` came.
    ///
    /// # Errors
    /// It does not go as it should.
    pub fn hold(&self, server: &Server, op: &Op) -> Outcome<(Peer, Instant)> {
        self.ask(op)?;
        let peer = self.accept(server)?;
        let (at, ..) = peer.expect_acquire()?;
        peer.send(&acquired(TOKEN));
        self.expect_acquired(op.id(), TOKEN)?;
        Ok((peer, at))
    }

    /// Queues for a lock that another has: the connection, and when the `ACQUIRE` came.
    ///
    /// # Errors
    /// It does not go as it should.
    pub fn queue(&self, server: &Server, op: &Op) -> Outcome<(Peer, Instant)> {
        self.ask(op)?;
        let peer = self.accept(server)?;
        let (at, ..) = peer.expect_acquire()?;
        peer.send(&waiting());
        Ok((peer, at))
    }

    /// The next connection; a driver that does not support what was asked for is told from one that does not connect.
    ///
    /// # Errors
    /// None comes.
    pub fn accept(&self, server: &Server) -> Outcome<Peer> {
        server.accept(SOON).map_err(|stop| {
            let unread = self.driver.take_unread();
            if unread.iter().any(|event| event.body["unsupported"] == true) {
                return Stop::Skipped("the driver does not support it".to_owned());
            }
            match (stop, unread.first()) {
                (Stop::Failed(what), Some(event)) => {
                    Stop::Failed(format!("{what}; the driver said {} at {}", event.body, self.timeline.clock(event.at)))
                }
                (stop, _) => stop,
            }
        })
    }

    /// Releases the lock: the connection closes, and the release is told.
    ///
    /// # Errors
    /// It does not go as it should.
    pub fn release(&self, id: u64, peer: &Peer) -> Outcome {
        self.tell("release", id)?;
        self.expect(id, "released", PROMPTLY)?;
        peer.expect_close(PROMPTLY)?;
        Ok(())
    }
}

/// An operation for the driver.
#[derive(Clone, Debug)]
pub struct Op(Value);

impl Op {
    /// Acquires `jobs` with this lease and id, waiting for its turn.
    pub fn acquire(id: u64, server: &Server, lease_ms: u64) -> Self {
        Self::at(id, &[server.address()], lease_ms)
    }

    /// The same, of a server with these addresses.
    pub fn at(id: u64, addresses: &[String], lease_ms: u64) -> Self {
        Self(json!({
            "op": "acquire", "id": id, "addresses": addresses, "name": "jobs", "lease_ms": lease_ms, "mode": "wait",
            "wait_ms": null, "connect_timeout_ms": null, "max_hold_ms": null, "tls": null,
        }))
    }

    /// As work under the lock.
    #[must_use]
    pub fn work(self) -> Self {
        self.with("op", "do")
    }

    /// Trying again where that makes sense.
    #[must_use]
    pub fn retry(self) -> Self {
        self.with("mode", "retry")
    }

    /// Not waiting.
    #[must_use]
    pub fn only_try(self) -> Self {
        self.with("mode", "try")
    }

    /// With this field.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0[field] = value.into();
        self
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.0["id"].as_u64().expect("an operation of a case has an id")
    }
}
