//! The client machines: programs that want locks, and the driver between the session machine and the sockets.
//!
//! The machine is `monolock_client::session::Session` itself. The driver does what the shipped ones do: on waking it
//! hands over what lies in the socket, or the time alone, then writes what the machine owes, and is woken at its
//! deadline. What a program believes is what `Held::is_held` would answer: the machine says that it holds, and the clock
//! is before the give-up instant.

use std::time::Duration;

use monolock_client::session::{Event as Told, LossReason, Session, SessionConfig, Standing};
use monolock_core::wire::{ErrorClass, ErrorCode};
use monolock_core::{Lease, Timestamp};

use crate::broken::Broken;
use crate::clock::{Clock, MS, SECOND};
use crate::marks::mark;
use crate::network::{CLIENT, Conn, ConnId, Packet};
use crate::oracle::Oracle;
use crate::plan::{HostPlan, LONG_LEASE_MS, Manners, Patience, SlotPlan};
use crate::resource::Write;
use crate::story::{Who, span};
use crate::watch::{Expected, Grant};
use crate::world::{Event, World};

const FIRST_BACKOFF: u64 = 100 * MS;
const LAST_BACKOFF: u64 = 5 * SECOND;
/// How long a client that has said that it will send nothing more listens on.
const PARTING: u64 = 5 * SECOND;
/// Shorter leases than this may be impossible to keep, whatever the network does.
const KEEPABLE_LEASE_MS: u32 = 1000;

/// A client's machine and its one process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) clock: Clock,
    pub(crate) drift: i64,
    pub(crate) link: Link,
    pub(crate) paused: u32,
    pub(crate) asleep: bool,
    pub(crate) powered: bool,
    pub(crate) alive: bool,
    pub(crate) deferred: Vec<Event>,
}

/// Its way to the server and back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) delay: [u64; 2],
    pub(crate) jitter: u64,
    pub(crate) extra: u64,
    /// How many cuts lie on it, each way.
    pub(crate) cut: [u32; 2],
}

/// A claim that a program makes over and over.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) host: usize,
    pub(crate) plan: SlotPlan,
    state: State,
    /// Counted up whenever what was planned for it is void.
    epoch: u32,
    quest: u32,
    backoff: u64,
    conn: Option<ConnId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It wants nothing for now.
    Thinking,
    /// It wants the lock, and tries again soon.
    Between,
    Trying,
    Done,
}

/// What a program does of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    Begin,
    Attempt,
    NoAnswer,
    Release,
    /// It asks whether it holds, and if so decides to write.
    Look,
    Write,
    Parted(ConnId),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    Contended,
    WaitedLong,
    Failed(Option<ErrorCode>),
}

impl Host {
    pub(crate) fn new(plan: &HostPlan) -> Self {
        Self {
            clock: Clock::new(plan.clock_shows, plan.drift),
            drift: plan.drift,
            link: Link { delay: plan.delay, jitter: plan.jitter, extra: 0, cut: [0, 0] },
            paused: 0,
            asleep: false,
            powered: true,
            alive: true,
            deferred: Vec::new(),
        }
    }

    /// Its process does nothing.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.paused > 0 || self.asleep
    }

    pub(crate) const fn is_on_the_net(&self) -> bool {
        self.powered && !self.asleep
    }
}

impl Slot {
    pub(crate) fn new(plan: &SlotPlan) -> Self {
        Self {
            host: plan.host,
            plan: plan.clone(),
            state: State::Thinking,
            epoch: 0,
            quest: 0,
            backoff: FIRST_BACKOFF,
            conn: None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// It wants nothing more. Void is what it had planned.
    pub(crate) fn finish(&mut self) {
        self.state = State::Done;
        self.epoch += 1;
    }

    pub(crate) fn is_thinking(&self) -> bool {
        self.state == State::Thinking
    }
}

impl World {
    pub(crate) fn act(&mut self, slot: usize, after: u64, what: What) {
        let epoch = self.slots[slot].epoch;
        self.schedule(self.t + after, Event::Act { slot, epoch, what });
    }

    pub(crate) fn who(&self, id: ConnId) -> Who {
        let slot = self.conns[id].slot;
        Who::Slot(self.slots[slot].host, slot)
    }

    pub(crate) fn acts(&mut self, slot: usize, epoch: u32, what: What) {
        if let What::Parted(id) = what {
            self.close(id, CLIENT);
            return;
        }
        if epoch != self.slots[slot].epoch || !self.hosts[self.slots[slot].host].alive {
            return;
        }
        match what {
            What::Begin => self.begins(slot),
            What::Attempt => self.attempts(slot),
            What::NoAnswer => self.no_answer(slot),
            What::Release => self.releases(slot),
            What::Look => self.looks(slot),
            What::Write => self.writes_now(slot),
            What::Parted(_) => {}
        }
    }

    fn begins(&mut self, slot: usize) {
        let Slot { quest, backoff, plan, .. } = &mut self.slots[slot];
        *quest += 1;
        *backoff = FIRST_BACKOFF;
        if let Patience::Limit(limit) = plan.patience {
            let (quest, at) = (*quest, self.t + limit);
            self.schedule(at, Event::WaitLimit { slot, quest });
        }
        self.attempts(slot);
    }

    fn attempts(&mut self, slot: usize) {
        let host = self.slots[slot].host;
        let SlotPlan { lock, lease_ms, connect_timeout, manners, .. } = self.slots[slot].plan;
        let id = self.conns.len();
        let mut conn = Conn::new(host, slot);
        conn.watch.lock = lock;
        if manners == Manners::Bad {
            conn.watch.expects = Some(Expected::Silence);
        }
        self.conns.push(conn);
        self.slots[slot].state = State::Trying;
        self.slots[slot].conn = Some(id);
        self.slots[slot].epoch += 1;
        let who = self.who(id);
        self.tell(who, 20, || {
            let lease = span(u64::from(lease_ms) * MS);
            let manner = if manners == Manners::Bad { ", with bad manners" } else { "" };
            format!("connects for lock {lock}, lease {lease}{manner}")
        });
        self.send(id, CLIENT, Packet::Syn);
        self.act(slot, connect_timeout, What::NoAnswer);
    }

    /// The attempt took too long: no connection, or no first answer.
    fn no_answer(&mut self, slot: usize) {
        let Some(id) = self.slots[slot].conn else { return };
        let answered = self.conns[id].session.as_ref().is_some_and(|session| session.standing() != Standing::Asking);
        if self.conns[id].watch.expects.is_some() {
            self.bad_client_is_done(slot, id);
        } else if !answered {
            self.marks.hit(mark!("no answer within the connect timeout"));
            self.ends_attempt(slot, Outcome::Failed(None));
        }
    }

    pub(crate) fn wait_is_over(&mut self, slot: usize, quest: u32) {
        let Slot { quest: present, state, conn, .. } = &self.slots[slot];
        if *present != quest || !matches!(state, State::Between | State::Trying) {
            return;
        }
        let standing = conn.and_then(|id| self.conns[id].session.as_ref()).map(Session::standing);
        match standing {
            Some(Standing::Holding { .. }) => return,
            Some(Standing::Queued) => self.marks.hit(mark!("wait limit passed in the queue")),
            Some(Standing::Asking | Standing::Over) | None => {}
        }
        self.ends_attempt(slot, Outcome::WaitedLong);
    }

    /// The program lets go.
    fn releases(&mut self, slot: usize) {
        let Some(id) = self.slots[slot].conn else { return };
        let who = self.who(id);
        self.tell(who, 21, || "releases the lock".into());
        self.ends_attempt(slot, Outcome::Held);
    }

    fn looks(&mut self, slot: usize) {
        let Some(id) = self.slots[slot].conn else { return };
        let Some(every) = self.slots[slot].plan.write_every else { return };
        if self.believes(id) {
            // Between the look and the write there is room for a pause.
            let gap = if self.rng.chance(100) { self.rng.below(SECOND) } else { self.rng.below(MS) };
            self.act(slot, gap, What::Write);
        }
        self.act(slot, every, What::Look);
    }

    fn writes_now(&mut self, slot: usize) {
        let Some(id) = self.slots[slot].conn else { return };
        let Some(grant) = self.held_grant(id) else { return };
        let lock = self.conns[id].watch.lock;
        let write = self.writes.len();
        self.writes.push(Write { id, lock, grant });
        let delay = self.rng.magnitude(MS / 10, self.plan.write_delay);
        self.schedule(self.t + delay, Event::WriteLands { write });
    }

    /// The grant of a session whose program was told of it.
    fn held_grant(&self, id: ConnId) -> Option<Grant> {
        let Standing::Holding { token } = self.conns[id].session.as_ref()?.standing() else { return None };
        self.conns[id].watch.grant.filter(|grant| grant.token == token)
    }

    /// A session of a client is due.
    pub(crate) fn session_due(&mut self, id: ConnId, at: Timestamp) {
        if self.conns[id].watch.armed == Some(at) {
            self.conns[id].watch.armed = None;
            self.client_turn(id);
        }
    }

    /// The client's driver takes one step: it reads or looks at the clock, then it writes.
    pub(crate) fn client_turn(&mut self, id: ConnId) {
        let slot = self.conns[id].slot;
        if !self.conns[id].ends[CLIENT].open {
            return;
        }
        if self.slots[slot].conn != Some(id) {
            self.listens_on(id);
            return;
        }
        if self.conns[id].watch.expects.is_some() {
            self.bad_client_turn(slot, id);
            return;
        }
        let now = self.hosts[self.conns[id].host].clock.at(self.t);
        if !self.conns[id].ends[CLIENT].established {
            if self.conns[id].ends[CLIENT].failed.is_some() {
                self.ends_attempt(slot, Outcome::Failed(None));
            }
            return;
        }
        let mut session = match self.conns[id].session.take() {
            Some(session) => session,
            None => self.new_session(slot, now),
        };
        self.conns[id].watch.lease = Some(session.config().lease);
        let mut told = Vec::new();
        let was_due = session.next_deadline().is_some_and(|due| due <= now);
        self.reads(id, &mut session, now, &mut told);
        self.sends(id, &mut session, now, was_due);
        self.conns[id].session = Some(session);
        self.belief_changed(id, now);
        let again = self.conns[id].is_readable(CLIENT);
        for event in told {
            self.program_is_told(slot, id, event);
        }
        if again && self.conns[id].ends[CLIENT].open {
            self.call(id, CLIENT);
        }
    }

    fn new_session(&self, slot: usize, now: Timestamp) -> Session {
        let SlotPlan { lock, lease_ms, max_hold, .. } = self.slots[slot].plan;
        let config = SessionConfig {
            name: self.names[lock].clone(),
            lease: Lease::from_millis(lease_ms).expect("no lease is 0"),
            max_hold: max_hold.map(Duration::from_nanos),
        };
        Session::new(now, config)
    }

    fn reads(&mut self, id: ConnId, session: &mut Session, now: Timestamp, told: &mut Vec<Told>) {
        let most = if self.rng.chance(150) { 1 + self.rng.index(12) } else { usize::MAX };
        let mut bytes = Vec::new();
        let conn = &mut self.conns[id];
        let end = &mut conn.ends[CLIENT];
        end.read(most, &mut bytes);
        let is_over = end.inbox.is_empty().then_some((end.ended, end.failed));
        let before = session.standing();
        if !bytes.is_empty() {
            if matches!(before, Standing::Over) || session.gives_up_at().is_some_and(|ends| now >= ends) {
                self.marks.hit(mark!("late reply after giving up"));
            }
            session.receive(now, &bytes, told);
            let watch = &mut self.conns[id].watch;
            watch.receives(now, &bytes);
            if watch.is_torn() {
                self.marks.hit(mark!("torn frame at the client"));
            }
        }
        match is_over {
            Some((_, Some(error))) => session.disconnected(now, Some(error), told),
            Some((true, None)) => session.disconnected(now, None, told),
            Some((false, None)) if bytes.is_empty() => session.tick(now, told),
            Some((false, None)) | None => {}
        }
        if self.broken == Some(Broken::TellsTwice)
            && let Some(lost @ Told::Lost { .. }) = told.last().cloned()
        {
            told.push(lost);
        }
    }

    fn sends(&mut self, id: ConnId, session: &mut Session, now: Timestamp, was_due: bool) {
        let mut bytes = Vec::new();
        let mut stamp = now;
        if self.broken == Some(Broken::StampsFromReceipt) {
            stamp = now.saturating_add(session.config().lease.as_duration() / 3);
        }
        session.transmit(stamp, &mut bytes);
        if self.broken == Some(Broken::SendsTwice) && bytes.len() == 1 {
            bytes.push(bytes[0]);
        }
        let frames = if bytes.len() > 2 { 1 } else { bytes.len() };
        for _ in 0..frames {
            let checked = self.conns[id].watch.sends(now);
            self.check(checked);
        }
        self.send_bytes(id, CLIENT, &bytes);
        let (Some(next), Some(gives_up)) = (session.next_deadline(), session.gives_up_at()) else { return };
        if was_due && next <= now {
            self.breach(Oracle::Progress, "a session was due, and is due again at once".into());
        }
        let planned = self.conns[id].watch.plans(next, gives_up);
        self.check(planned);
        if self.conns[id].watch.armed.is_none_or(|armed| next != armed) {
            self.conns[id].watch.armed = Some(next);
            let due = self.hosts[self.conns[id].host].clock.when(next, self.t);
            let late = self.lateness();
            self.schedule(due + late, Event::Due { id, at: next });
        }
    }

    fn program_is_told(&mut self, slot: usize, id: ConnId, event: Told) {
        let who = self.who(id);
        match event {
            Told::Queued => {
                let checked = self.conns[id].watch.is_told_queued();
                self.check(checked);
                self.tell(who, 22, || "waits in the queue".into());
                if self.slots[slot].plan.patience == Patience::Try {
                    self.marks.hit(mark!("try found the lock taken"));
                    self.ends_attempt(slot, Outcome::Contended);
                }
            }
            Told::Granted { token } => {
                let checked = self.conns[id].watch.is_told_granted();
                self.check(checked);
                self.tell(who, 23, || format!("holds the lock, {token:?}"));
                if self.conns[id].watch.grant.is_none_or(|grant| grant.token != token) {
                    self.breach(Oracle::Protocol, format!("a client was told of {token:?}, which it was not granted"));
                }
                let lock = self.conns[id].watch.lock;
                self.believers[lock].push(id);
                let now = self.hosts[self.slots[slot].host].clock.at(self.t);
                let max_hold = self.slots[slot].plan.max_hold.map(Duration::from_nanos);
                self.conns[id].watch.hold_ends = max_hold.map(|most| now.saturating_add(most));
                let (shortest, longest) = self.slots[slot].plan.hold;
                let hold = self.rng.between(shortest, longest);
                self.act(slot, hold, What::Release);
                let first = self.rng.below(20 * MS);
                self.act(slot, first, What::Look);
                self.slots[slot].backoff = FIRST_BACKOFF;
                self.belief_changed(id, now);
                self.grant_reaches_client(id);
            }
            Told::Refused { reason } => {
                let checked = self.conns[id].watch.is_told_ended();
                self.check(checked);
                self.tell(who, 24, || format!("is refused: {reason}"));
                self.heeds_reason(&reason);
                self.ends_attempt(slot, Outcome::Failed(reason.server_code()));
            }
            Told::Lost { reason } => {
                let checked = self.conns[id].watch.is_told_ended();
                self.check(checked);
                let held = self.believers[self.conns[id].watch.lock].contains(&id);
                self.tell(who, 25, || {
                    format!("{}: {reason}", if held { "has lost the lock" } else { "has lost its place in the queue" })
                });
                self.heeds_reason(&reason);
                self.notes_loss(id, held, &reason);
                if held {
                    self.ends_attempt(slot, Outcome::Held);
                } else {
                    self.ends_attempt(slot, Outcome::Failed(reason.server_code()));
                }
            }
        }
    }

    fn heeds_reason(&mut self, reason: &LossReason) {
        if let LossReason::ProtocolViolation(violation) = reason {
            self.breach(Oracle::Protocol, format!("a client finds the server at fault: {violation}"));
        }
    }

    fn notes_loss(&mut self, id: ConnId, held: bool, reason: &LossReason) {
        let is_counted = self.conns[id].watch.ended.is_none();
        match (held, reason) {
            (true, LossReason::Timeout) => {
                self.marks.hit(mark!("holder gave up"));
                if is_counted {
                    self.marks.hit(mark!("holder gave up while the server still counted it"));
                }
            }
            (false, LossReason::Timeout) => self.marks.hit(mark!("waiter gave up in the queue")),
            (true, LossReason::Closed { .. }) => self.marks.hit(mark!("holder lost its connection")),
            (_, LossReason::Server { code, .. }) if *code == ErrorCode::SERVER_SHUTTING_DOWN => {
                self.marks.hit(mark!("told of a controlled stop"));
            }
            (_, LossReason::MaxHold) => self.marks.hit(mark!("max_hold passed")),
            _ => {}
        }
    }

    /// An attempt is over: the connection is closed, and the program goes on.
    pub(crate) fn ends_attempt(&mut self, slot: usize, outcome: Outcome) {
        if let Some(id) = self.slots[slot].conn.take() {
            self.lets_go(id);
            let holds = outcome == Outcome::Held;
            if holds && self.conns[id].ends[CLIENT].failed.is_none() && self.rng.chance(100) {
                self.marks.hit(mark!("half-close"));
                self.shut_sending(id, CLIENT);
                self.act(slot, PARTING, What::Parted(id));
            } else {
                self.close(id, CLIENT);
            }
        }
        let Slot { plan, backoff, .. } = &mut self.slots[slot];
        let again = match outcome {
            Outcome::Held | Outcome::Contended | Outcome::WaitedLong => false,
            Outcome::Failed(code) => {
                code.is_none_or(|code| code.class() == ErrorClass::ServerCondition) && plan.patience != Patience::Try
            }
        };
        let (ceiling, think) = (*backoff, plan.think);
        let stays = plan.lease_ms >= KEEPABLE_LEASE_MS;
        *backoff = (*backoff * 2).min(LAST_BACKOFF);
        self.slots[slot].epoch += 1;
        if again && (!self.healed || stays) {
            self.slots[slot].state = State::Between;
            let after = self.rng.below(ceiling);
            self.act(slot, after, What::Attempt);
        } else if self.healed {
            self.slots[slot].state = State::Done;
        } else {
            self.slots[slot].state = State::Thinking;
            let after = self.rng.between(think.0, think.1);
            self.act(slot, after, What::Begin);
        }
    }

    /// Calls off what waits on a dead connection for longer than anybody would let it.
    pub(crate) fn restart_stuck_clients(&mut self) {
        for slot in 0..self.slots.len() {
            let is_long = self.slots[slot].plan.lease_ms > LONG_LEASE_MS;
            if is_long && self.slots[slot].conn.is_some_and(|id| self.conns[id].dark) {
                self.tell(Who::Operator, 29, || "has a client begin anew that waits on a dead connection".into());
                self.ends_attempt(slot, Outcome::WaitedLong);
            }
        }
    }

    /// Nobody believes in this claim any more.
    fn lets_go(&mut self, id: ConnId) {
        let lock = self.conns[id].watch.lock;
        self.believers[lock].retain(|&believer| believer != id);
        self.conns[id].session = None;
        self.conns[id].watch.released = true;
    }

    /// A client that sends nothing more waits for the other end to be closed.
    fn listens_on(&mut self, id: ConnId) {
        let end = &mut self.conns[id].ends[CLIENT];
        end.inbox.clear();
        if end.ended || end.failed.is_some() {
            self.close(id, CLIENT);
        }
    }

    /// The process dies. Its system closes its sockets, unless the machine is off as well.
    pub(crate) fn client_dies(&mut self, host: usize, has_power: bool) {
        if !self.hosts[host].alive {
            return;
        }
        self.hosts[host].alive = false;
        self.hosts[host].deferred.clear();
        self.hosts[host].paused = 0;
        self.marks.hit(if has_power { mark!("client killed") } else { mark!("client lost its power") });
        self.tell(Who::Host(host), 26, || if has_power { "is killed".into() } else { "loses its power".into() });
        for id in 0..self.conns.len() {
            if self.conns[id].host != host || !self.conns[id].ends[CLIENT].open {
                continue;
            }
            self.lets_go(id);
            if has_power {
                self.close(id, CLIENT);
            } else {
                self.vanish(id, CLIENT);
            }
        }
        for slot in &mut self.slots {
            if slot.host == host && slot.state != State::Done {
                slot.conn = None;
                slot.epoch += 1;
                slot.quest += 1;
                slot.state = State::Thinking;
            }
        }
    }

    /// The process is started again, and knows nothing of before.
    pub(crate) fn client_starts(&mut self, host: usize) {
        if self.hosts[host].alive {
            return;
        }
        self.hosts[host].alive = true;
        self.hosts[host].powered = true;
        self.tell(Who::Host(host), 27, || "is started again".into());
        for slot in 0..self.slots.len() {
            if self.slots[slot].host == host && self.slots[slot].is_thinking() {
                if self.healed {
                    self.slots[slot].finish();
                } else {
                    let after = self.rng.below(SECOND);
                    self.act(slot, after, What::Begin);
                }
            }
        }
    }
}
