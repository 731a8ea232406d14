//! The server's driver: sockets on one side, the engine on the other.
//!
//! `monolock-net` is made of tasks over real sockets and cannot run here. This is a small driver of its own, written
//! from `docs/protocol.md`, that keeps the same rules: a deadline for the first frame; the end of the stream and a
//! reset end a claim at once, any other error of a socket leaves a holder its claim until the lease is out; an `ERROR`,
//! a bounded time of listening, the close; one wake-up at the engine's next deadline; a grace after the start; tokens
//! lifted to the wall clock's second before each input, and reserved in a file where there is one.

use std::io::ErrorKind;
use std::sync::Arc;

use fnv::FnvBuildHasher;
use monolock_core::wire::{ClientFrame, ErrorCode, Phase, ServerFrame, decode_client};
use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, ReleaseReason, SessionId, Standing, Timestamp, Token, TokenSequence,
};

use crate::broken::Broken;
use crate::clock::{Clock, MS, SECOND, True, Wall};
use crate::ledger::Asked;
use crate::marks::mark;
use crate::network::{CLIENT, ConnId, SERVER, Stage};
use crate::oracle::Oracle;
use crate::plan::{ServerPlan, TokenFile};
use crate::story::{Who, span};
use crate::watch::Grant;
use crate::world::{Event, World};

/// How long a client that was sent an `ERROR` is listened to.
const DRAIN_TIME: u64 = SECOND;
/// How much is read at a time.
const READ_BYTES: usize = 128;

pub(crate) type Engine = LockEngine<FnvBuildHasher>;

/// The server's machine and its process.
pub(crate) struct Server {
    pub(crate) clock: Clock,
    pub(crate) wall: Wall,
    pub(crate) drift: i64,
    pub(crate) paused: u32,
    pub(crate) asleep: bool,
    pub(crate) asleep_since: True,
    pub(crate) powered: bool,
    /// Since when its process has not stood still.
    pub(crate) running_since: True,
    pub(crate) life: u32,
    pub(crate) running: Option<Running>,
    /// The connections of the present life.
    pub(crate) conns: Vec<ConnId>,
    pub(crate) deferred: Vec<Event>,
    /// The mark in the token file, as far as it is on the disk.
    pub(crate) mark: Option<u64>,
    pub(crate) disk_is_full: u32,
}

pub(crate) struct Running {
    pub(crate) engine: Engine,
    pub(crate) tokens: Arc<TokenSequence>,
    /// The end of what is reserved in the file.
    pub(crate) reserved: u64,
    pub(crate) origin: Timestamp,
    pub(crate) grants_from: Timestamp,
    pub(crate) conns: Vec<Option<ConnId>>,
    pub(crate) armed: Timestamp,
    pub(crate) stopping: bool,
}

/// One life of the server's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) ended: Option<True>,
    pub(crate) grace: u64,
    pub(crate) last_wall: u64,
}

impl Server {
    pub(crate) fn new(plan: &ServerPlan) -> Self {
        Self {
            clock: Clock::new(plan.clock_shows, plan.drift),
            wall: Wall::default(),
            drift: plan.drift,
            paused: 0,
            asleep: false,
            asleep_since: 0,
            powered: true,
            running_since: 0,
            life: 0,
            running: None,
            conns: Vec::new(),
            deferred: Vec::new(),
            mark: None,
            disk_is_full: 0,
        }
    }

    pub(crate) const fn is_stopped(&self) -> bool {
        self.paused > 0 || self.asleep
    }

    pub(crate) const fn is_on_the_net(&self) -> bool {
        self.powered && !self.asleep
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.stopping)
    }

    /// It runs and holds nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.engine.session_count() == 0)
    }
}

impl World {
    /// One input to the engine, and what comes of it.
    pub(crate) fn input<T>(
        &mut self,
        asked: Asked,
        input: impl FnOnce(&mut Engine, Timestamp, &mut Effects) -> T,
    ) -> Option<T> {
        let (now, wall) = (self.server_now(), self.server.wall.at(self.t));
        let running = self.server.running.as_mut()?;
        if self.broken != Some(Broken::TokensBeginAnew) {
            running.tokens.lift_to_unix_second(wall / SECOND);
        }
        if let Some(life) = self.lives.last_mut() {
            life.last_wall = life.last_wall.max(wall);
        }
        self.ledger.asks(asked);
        let mut effects = Effects::new();
        let outcome = input(&mut running.engine, now, &mut effects);
        self.route(now, effects);
        Some(outcome)
    }

    /// The time since the start, by the machine's clock.
    fn server_now(&self) -> Timestamp {
        let origin = self.server.running.as_ref().map_or(Timestamp::ORIGIN, |running| running.origin);
        Timestamp::ORIGIN.saturating_add(self.server.clock.at(self.t).since(origin))
    }

    /// Everything that an input brought about is on its way: the model agrees, and the wake-up is set.
    pub(crate) fn settled(&mut self) {
        let now = self.server_now();
        let Some(running) = &self.server.running else { return };
        let may_grant = now >= running.grants_from && running.tokens.has_next() && !running.stopping;
        let settled = self.ledger.settled(now, may_grant, &running.engine);
        let is_waited_for = now < running.grants_from && running.engine.lock_count() > 0;
        if is_waited_for && running.engine.next_deadline().is_none_or(|next| next > running.grants_from) {
            self.breach(Oracle::Progress, "nobody is woken at the end of the grace".into());
        }
        self.check(settled);
        self.arm();
    }

    /// A timer of the system goes by the machine's clock, whatever becomes of that.
    pub(crate) fn arm_anew(&mut self) {
        if let Some(running) = &mut self.server.running {
            running.armed = Timestamp::MAX;
        }
        self.arm();
    }

    fn arm(&mut self) {
        if self.broken == Some(Broken::NeverWakes) {
            return;
        }
        let Some(running) = &mut self.server.running else { return };
        let deadline = running.engine.next_deadline().unwrap_or(Timestamp::MAX);
        if deadline < running.armed {
            running.armed = deadline;
            let (origin, life) = (running.origin, self.server.life);
            let own = Timestamp::from_nanos(origin.as_nanos().saturating_add(deadline.as_nanos()));
            let due = self.server.clock.when(own, self.t);
            let at = if self.broken == Some(Broken::SpinsAtWakeUp) { self.t } else { due + self.lateness() };
            self.schedule(at, Event::Expiry { life, armed: deadline });
        }
    }

    /// The one wake-up. The clock is asked, whatever the timer was set to.
    pub(crate) fn expiry(&mut self, life: u32, armed: Timestamp) {
        if life != self.server.life {
            return;
        }
        let Some(running) = &mut self.server.running else { return };
        if running.armed != armed {
            return;
        }
        running.armed = Timestamp::MAX;
        self.input(Asked::Nothing, Engine::tick);
        self.settled();
    }

    fn route(&mut self, now: Timestamp, mut effects: Effects) {
        for effect in effects.drain() {
            if let Effect::Released { reason: ReleaseReason::Expired, .. }
            | Effect::Withdrawn { reason: ReleaseReason::Expired, .. } = effect
            {
                self.expires_in_time(now, effect.session());
            }
            let checked = self.ledger.effect(now, &effect);
            self.check(checked);
            if self.violation.is_some() {
                return;
            }
            let session = effect.session();
            let Some(running) = &mut self.server.running else { return };
            let Some(id) = running.conns.get(session.index()).copied().flatten() else { continue };
            match effect {
                Effect::Granted { token, .. } => {
                    self.note_grant(id, token);
                    self.say(id, &ServerFrame::Acquired { token });
                }
                Effect::Queued { ahead, .. } => {
                    if ahead == 0 {
                        self.marks.hit(mark!("claim queued while nothing is granted"));
                    }
                    let who = self.who(id);
                    self.tell(Who::Server, 4, || format!("queues {who} behind {ahead}"));
                    self.say(id, &ServerFrame::Waiting);
                }
                Effect::Confirmed { standing, .. } => {
                    self.say_standing(id, standing);
                    if self.broken == Some(Broken::AnswersTwice) {
                        self.say_standing(id, standing);
                    }
                }
                Effect::Released { reason, .. } | Effect::Withdrawn { reason, .. } => {
                    running.conns[session.index()] = None;
                    self.note_end(id, matches!(effect, Effect::Released { .. }), reason);
                    match reason {
                        ReleaseReason::Expired => self.close_server_end(id),
                        ReleaseReason::Force => {
                            self.farewell(id, ErrorCode::CLOSED_BY_ADMINISTRATOR, b"closed by administrator");
                        }
                        ReleaseReason::Shutdown => {
                            self.farewell(id, ErrorCode::SERVER_SHUTTING_DOWN, b"server shutting down");
                        }
                        ReleaseReason::Graceful | ReleaseReason::IoTimeout | ReleaseReason::ProtocolError => {}
                    }
                }
            }
        }
    }

    /// A lease that is out is noticed by the one wake-up, as late as timers are; later only where the process stood
    /// still.
    fn expires_in_time(&mut self, now: Timestamp, session: SessionId) {
        let Some(overdue) = self.ledger.overdue(now, session) else { return };
        let allowed = self.plan.timer_lateness + self.plan.timer_lateness / 2 + 2 * MS;
        let was_due = self.t.saturating_sub(overdue + overdue / 10);
        if overdue > allowed && was_due > self.server.running_since {
            self.breach(Oracle::Lease, format!("a lease was out for {} before anybody noticed", span(overdue)));
        }
    }

    fn say_standing(&mut self, id: ConnId, standing: Standing) {
        match standing {
            Standing::Waiting => self.say(id, &ServerFrame::Waiting),
            Standing::Holding(token) => self.say(id, &ServerFrame::Acquired { token }),
        }
    }

    /// Says a frame: it is on its way before anything else happens.
    fn say(&mut self, id: ConnId, frame: &ServerFrame<'_>) {
        let checked = self.conns[id].watch.says(frame);
        self.check(checked);
        if matches!(frame, ServerFrame::Acquired { .. }) && self.conns[id].watch.push_crosses_heartbeat() {
            self.marks.hit(mark!("push crosses a heartbeat"));
        }
        let mut bytes = std::mem::take(&mut self.conns[id].outbox);
        bytes.clear();
        frame.encode(&mut bytes);
        self.send_bytes(id, SERVER, &bytes);
        self.conns[id].outbox = bytes;
    }

    /// The last word: sends it, says that nothing follows, and listens for a while.
    pub(crate) fn farewell(&mut self, id: ConnId, code: ErrorCode, reason: &[u8]) {
        if matches!(self.conns[id].stage, Stage::Draining | Stage::Closed) {
            return;
        }
        let who = self.who(id);
        self.tell(Who::Server, 5 + u64::from(code.0), || {
            format!("tells {who} {code}: {}", String::from_utf8_lossy(reason))
        });
        self.say(id, &ServerFrame::Error { code, reason });
        self.shut_sending(id, SERVER);
        self.conns[id].stage = Stage::Draining;
        let drained = self.t + DRAIN_TIME;
        self.schedule(drained, Event::DrainOver { id });
        self.call(id, SERVER);
    }

    pub(crate) fn drain_is_over(&mut self, id: ConnId) {
        if self.conns[id].stage == Stage::Draining {
            self.close_server_end(id);
        }
    }

    fn close_server_end(&mut self, id: ConnId) {
        if self.broken == Some(Broken::KeepsConnections) {
            return;
        }
        self.conns[id].stage = Stage::Closed;
        self.close(id, SERVER);
    }

    pub(crate) fn first_frame_overdue(&mut self, id: ConnId) {
        if self.conns[id].stage == Stage::First && self.conns[id].life == self.server.life {
            self.marks.hit(mark!("first frame overdue"));
            self.close_server_end(id);
        }
    }

    /// The server's task of a connection looks at its socket.
    pub(crate) fn server_reads(&mut self, id: ConnId) {
        if self.conns[id].life != self.server.life || self.server.running.is_none() {
            return;
        }
        match self.conns[id].stage {
            Stage::Closed | Stage::Mute(_) => return,
            Stage::Backlog => {
                self.conns[id].stage = Stage::First;
                self.schedule(self.t + self.plan.server.io_timeout, Event::FirstFrame { id });
            }
            Stage::First | Stage::Attending(_) | Stage::Draining => {}
        }
        let most = if self.rng.chance(200) { 1 + self.rng.index(9) } else { READ_BYTES };
        let conn = &mut self.conns[id];
        let mut bytes = std::mem::take(&mut conn.unread);
        let taken = conn.ends[SERVER].read(most, &mut bytes);
        conn.unread = bytes;
        let is_over =
            conn.ends[SERVER].inbox.is_empty() && (conn.ends[SERVER].ended || conn.ends[SERVER].failed.is_some());
        if taken > 0 {
            self.server_heeds(id);
        }
        if is_over {
            self.server_end_is_over(id);
        }
        if self.conns[id].is_readable(SERVER) && !is_over {
            self.call(id, SERVER);
        }
    }

    fn server_heeds(&mut self, id: ConnId) {
        let unread = std::mem::take(&mut self.conns[id].unread);
        let taken = match self.conns[id].stage {
            Stage::First => self.first_frame(id, &unread),
            Stage::Attending(session) => self.later_frames(id, session, &unread),
            Stage::Draining | Stage::Backlog | Stage::Mute(_) | Stage::Closed => unread.len(),
        };
        let mut unread = unread;
        unread.drain(..taken);
        self.conns[id].unread = unread;
        // What came with the first frame is heeded too.
        if taken > 0 && !self.conns[id].unread.is_empty() {
            self.server_heeds(id);
        }
    }

    fn first_frame(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        match decode_client(Phase::First, bytes) {
            Ok(None) => {
                self.marks.hit(mark!("torn frame at the server"));
                0
            }
            Ok(Some((ClientFrame::Acquire { lease, name }, taken))) => {
                let lock = self.names.iter().position(|known| known.as_name_ref() == name);
                let too_long = self.plan.server.max_lease_ms.is_some_and(|most| lease.as_millis() > most);
                match lock {
                    _ if too_long => {
                        self.marks.hit(mark!("lease too long"));
                        self.farewell(id, ErrorCode::LEASE_TOO_LONG, b"lease too long");
                    }
                    Some(lock) => self.claim(id, lock, lease),
                    None => self.breach(Oracle::Protocol, format!("a lock of an unknown name: {name:?}")),
                }
                taken
            }
            Ok(Some((ClientFrame::Heartbeat, taken))) => taken,
            Err(error) => {
                self.protocol_error(id, None, error.code(), &error.to_string());
                bytes.len()
            }
        }
    }

    fn claim(&mut self, id: ConnId, lock: usize, lease: Lease) {
        // The past first: a session that ends by it may leave its index to the new one.
        self.input(Asked::Nothing, Engine::tick);
        let now = self.server_now();
        let name = self.names[lock].clone();
        let Some(running) = &mut self.server.running else { return };
        let mut effects = Effects::new();
        let request = Acquire { name: name.as_name_ref(), lease };
        match running.engine.acquire(now, request, &mut effects) {
            Ok(session) => {
                let index = session.index();
                if index >= running.conns.len() {
                    running.conns.resize(index + 1, None);
                }
                running.conns[index] = Some(id);
                let lease_ns = u64::from(lease.as_millis()) * MS;
                let arrives = self.ledger.arrives(now, session, lock, lease_ns);
                self.check(arrives);
                let watch = &mut self.conns[id].watch;
                watch.lock = lock;
                watch.lease = Some(lease);
                watch.owes(1);
                self.conns[id].stage = Stage::First;
                self.route(now, effects);
                if self.conns[id].stage == Stage::First {
                    self.conns[id].stage = Stage::Attending(session);
                }
                self.settled();
                let answered = self.conns[id].watch.has_answered();
                self.check(answered);
            }
            Err(error) => self.breach(Oracle::Protocol, format!("a claim was refused: {error}")),
        }
    }

    fn later_frames(&mut self, id: ConnId, session: SessionId, bytes: &[u8]) -> usize {
        let mut heartbeats = 0;
        let broken = loop {
            match decode_client(Phase::Later, &bytes[heartbeats..]) {
                Ok(None) => break None,
                Ok(Some((_, taken))) => heartbeats += taken,
                Err(error) => break Some(error),
            }
        };
        for _ in 0..heartbeats {
            self.heartbeat(id, session);
        }
        if let Some(error) = broken {
            self.protocol_error(id, Some(session), error.code(), &error.to_string());
            return bytes.len();
        }
        heartbeats
    }

    fn heartbeat(&mut self, id: ConnId, session: SessionId) {
        self.conns[id].watch.owes(1);
        let taken_in =
            self.input(Asked::Nothing, |engine, now, effects| engine.heartbeat(now, session, effects).is_ok());
        let Some(taken_in) = taken_in else { return };
        let checked = self.ledger.heartbeat(self.server_now(), session, taken_in);
        self.check(checked);
        self.story.mix(6 + u64::from(taken_in));
        if !taken_in {
            self.marks.hit(mark!("heartbeat too late"));
        }
        self.settled();
        let answered = self.conns[id].watch.has_answered();
        self.check(answered);
    }

    fn protocol_error(&mut self, id: ConnId, session: Option<SessionId>, code: ErrorCode, reason: &str) {
        if self.conns[id].watch.expects.is_none() {
            self.breach(Oracle::Protocol, format!("the server finds a client at fault: {reason}"));
        }
        if let Some(session) = session {
            self.end(session, ReleaseReason::ProtocolError);
        }
        let code = if self.broken == Some(Broken::WrongCode) { ErrorCode(0x1f) } else { code };
        self.farewell(id, code, reason.as_bytes());
    }

    /// Ends a claim; nothing happens where it has ended.
    pub(crate) fn end(&mut self, session: SessionId, why: ReleaseReason) {
        self.input(Asked::End(session, why), |engine, now, effects| {
            let _ended_already = engine.release(now, session, why, effects);
        });
        if self.ledger.lives(session) {
            self.breach(Oracle::Pairing, "a release did not end its session".into());
        }
        self.settled();
    }

    /// The stream of a connection has ended, or its socket has failed.
    fn server_end_is_over(&mut self, id: ConnId) {
        let failed = self.conns[id].ends[SERVER].failed;
        // The client's own doing, or its system's; anything else proves nothing.
        let is_proof = matches!(failed, None | Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe));
        match self.conns[id].stage {
            Stage::Attending(session) if is_proof || self.broken == Some(Broken::ErrorsEndClaims) => {
                self.conns[id].stage = Stage::Closed;
                self.end(session, ReleaseReason::Graceful);
                self.close_server_end(id);
            }
            Stage::Attending(session) => {
                self.marks.hit(mark!("socket of a claim failed"));
                let waits = self
                    .server
                    .running
                    .as_ref()
                    .and_then(|running| running.engine.session(session))
                    .is_some_and(|session| session.standing() == Standing::Waiting);
                if waits {
                    self.conns[id].stage = Stage::Closed;
                    self.end(session, ReleaseReason::IoTimeout);
                    self.close_server_end(id);
                } else {
                    self.marks.hit(mark!("holder kept its claim over a failed socket"));
                    self.conns[id].stage = Stage::Mute(session);
                }
            }
            Stage::First | Stage::Backlog | Stage::Draining => self.close_server_end(id),
            Stage::Mute(_) | Stage::Closed => {}
        }
    }

    /// Sets everything down about a grant, and asks whether somebody else still believes.
    fn note_grant(&mut self, id: ConnId, token: Token) {
        self.grants += 1;
        let grant = Grant { life: self.server.life, ordinal: self.grants, era: self.era, token, at: self.t };
        let lock = self.conns[id].watch.lock;
        self.conns[id].watch.grant = Some(grant);
        let second = self.server.wall.at(self.t) / SECOND;
        // With a token file the sequence is lifted no further than what is reserved.
        if self.plan.server.token_file == TokenFile::None && token.get() < TokenSequence::at_unix_second(second) {
            self.breach(Oracle::Tokens, format!("{token:?} is below the tokens of its second"));
        }
        let who = self.who(id);
        self.tell(Who::Server, 7, || format!("grants lock {lock} to {who}, {token:?}"));
        self.story.mix(token.get());
        if !self.conns[id].ends[SERVER].open || self.conns[id].ends[SERVER].failed.is_some() {
            self.marks.hit(mark!("grant to a dead connection"));
        } else if !self.conns[id].ends[CLIENT].open || self.conns[id].dark {
            self.marks.hit(mark!("grant to a waiter that is gone"));
        }
        self.grant_meets_believers(id);
    }

    fn note_end(&mut self, id: ConnId, held: bool, reason: ReleaseReason) {
        self.conns[id].watch.ended = Some((self.t, reason));
        let who = self.who(id);
        let number = 100 + u64::from(held);
        self.tell(Who::Server, number, || {
            format!("{} {who} ({reason})", if held { "takes the lock from" } else { "drops from the queue" })
        });
        match (held, reason) {
            (false, ReleaseReason::Expired) => self.marks.hit(mark!("waiter dropped by expiry")),
            (true, ReleaseReason::Expired) => self.marks.hit(mark!("holder dropped by expiry")),
            (true, ReleaseReason::Force) => self.marks.hit(mark!("forced release")),
            (false, ReleaseReason::Force) => self.marks.hit(mark!("kick")),
            (true, ReleaseReason::Graceful) => self.marks.hit(mark!("release")),
            (false, ReleaseReason::Graceful) => self.marks.hit(mark!("waiter left the queue")),
            (true, ReleaseReason::Shutdown) => self.marks.hit(mark!("controlled stop under a holder")),
            (_, ReleaseReason::Shutdown | ReleaseReason::IoTimeout | ReleaseReason::ProtocolError) => {}
        }
        if held {
            self.release_meets_believer(id, reason);
        }
    }
}
