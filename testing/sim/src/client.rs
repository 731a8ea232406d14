//! The client machines: programs that want locks, and the driver between the session machine and the sockets.
//!
//! The machine is `monolock_client::session::Session` itself. The driver does what the shipped ones do: on waking it
//! hands over what lies in the socket, or the time alone, then writes what the machine owes, and is woken at its
//! deadline. What a program believes is what `Held::is_held` would answer: the machine says that it holds, and the clock
//! is before the give-up instant.

use std::time::Duration;

use monolock_client::session::{Event as Told, LossReason, Session, SessionConfig, Standing};
use monolock_core::wire::{ErrorClass, ErrorCode, ServerFrame, decode_server};
use monolock_core::{Lease, ReleaseReason, Timestamp};

use crate::marks::mark;
use crate::broken::Broken;
use crate::clock::{Clock, MS, SECOND, True};
use crate::network::{CLIENT, Conn, ConnId, Packet};
use crate::oracle::Oracle;
use crate::plan::{HostPlan, Manners, Patience, Profile, SlotPlan};
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
enum Outcome {
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
        let Slot { host, plan, .. } = &self.slots[slot];
        let (host, lock, connect_timeout, manners) = (*host, plan.lock, plan.connect_timeout, plan.manners);
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
        self.story.mix(20 + slot as u64);
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
                let lock = self.conns[id].watch.lock;
                self.believers[lock].push(id);
                let (shortest, longest) = self.slots[slot].plan.hold;
                let hold = self.rng.between(shortest, longest);
                self.act(slot, hold, What::Release);
                let first = self.rng.below(20 * MS);
                self.act(slot, first, What::Look);
                self.slots[slot].backoff = FIRST_BACKOFF;
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
    fn ends_attempt(&mut self, slot: usize, outcome: Outcome) {
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

    /// What its program would be told if it asked now whether it holds the lock.
    pub(crate) fn believes(&self, id: ConnId) -> bool {
        let conn = &self.conns[id];
        let Some(session) = &conn.session else { return false };
        let now = self.hosts[conn.host].clock.at(self.t);
        let knows_better = self.broken != Some(Broken::BelievesUntilTold);
        matches!(session.standing(), Standing::Holding { .. })
            && session.gives_up_at().is_some_and(|ends| now < ends || !knows_better)
    }

    /// An input may have moved the give-up instant on; a belief that had ended must not begin again.
    fn belief_changed(&mut self, id: ConnId, now: Timestamp) {
        let believes = self.believes(id);
        let until = self.conns[id].session.as_ref().and_then(Session::gives_up_at).filter(|_| believes);
        let before = std::mem::replace(&mut self.conns[id].watch.believed_until, until);
        if believes && before.is_some_and(|before| before <= now) {
            self.breach(Oracle::GiveUp, "a client that had given up believes again".into());
        }
        if let (true, Some(until)) = (believes, until) {
            self.belief_meets_server(id, until);
        }
    }

    /// A client with bad manners: it says what is forbidden, and looks at what it is told.
    fn bad_client_turn(&mut self, slot: usize, id: ConnId) {
        let end = &self.conns[id].ends[CLIENT];
        if end.failed.is_some() || end.ended && end.inbox.len() < 3 {
            self.bad_client_is_done(slot, id);
            return;
        }
        if end.established && self.conns[id].watch.armed.is_none() {
            self.conns[id].watch.armed = Some(Timestamp::ORIGIN);
            let (bytes, expected, shuts) = self.bad_words(slot);
            self.conns[id].watch.expects = Some(expected);
            self.send_bytes(id, CLIENT, &bytes);
            if shuts {
                self.shut_sending(id, CLIENT);
            }
        } else if end.ended {
            self.bad_client_is_done(slot, id);
        }
    }

    fn bad_words(&mut self, slot: usize) -> (Vec<u8>, Expected, bool) {
        let SlotPlan { lock, lease_ms, .. } = self.slots[slot].plan;
        let lease = Lease::from_millis(lease_ms).expect("no lease is 0");
        let mut acquire = Vec::new();
        monolock_core::wire::ClientFrame::Acquire { lease, name: self.names[lock].as_name_ref() }.encode(&mut acquire);
        let too_long = self.plan.server.max_lease_ms.is_some_and(|most| lease_ms > most);
        let mut junk = vec![0x7f];
        junk.extend((0..600).map(|_| 0x02));
        match self.rng.below(10) {
            0 => (vec![2], Expected::Code(0x11), false),
            1 => (vec![1, 2], Expected::Code(0x10), false),
            2 => (junk, Expected::Code(0x13), false),
            3 => (vec![1, 1, 0, 0, 0, 0], Expected::Code(0x17), false),
            4 => (vec![1, 1, 0, 0, 0, 1, 0, 0], Expected::Code(0x14), false),
            5 => (vec![1, 1, 0, 0, 0, 1, 1, 0], Expected::Code(0x15), false),
            6 => (vec![1, 1, 0, 0, 0, 1, 0, 1, 0xff], Expected::Code(0x16), false),
            7 => {
                let twice = [acquire.as_slice(), acquire.as_slice()].concat();
                (twice, Expected::Code(if too_long { 0x19 } else { 0x12 }), false)
            }
            8 => (Vec::new(), Expected::Silence, false),
            _ => (acquire[..acquire.len() - 1].to_vec(), Expected::Silence, true),
        }
    }

    fn bad_client_is_done(&mut self, slot: usize, id: ConnId) {
        let mut said = Vec::new();
        self.conns[id].ends[CLIENT].read(usize::MAX, &mut said);
        let mut rest = said.as_slice();
        let mut code = None;
        while let Ok(Some((frame, length))) = decode_server(rest) {
            if let ServerFrame::Error { code: told, .. } = frame {
                code = Some(told);
            }
            rest = &rest[length..];
        }
        let who = self.who(id);
        self.tell(who, 28, || match code {
            Some(code) => format!("broke the protocol, and is told {code}"),
            None => "broke the protocol, and is told nothing".into(),
        });
        let expected = self.conns[id].watch.expects;
        let was_asked = self.conns[id].watch.armed.is_some();
        let calm = self.plan.profile == Profile::Calm && self.conns[id].ends[CLIENT].ended;
        match (code, expected) {
            (Some(code), Some(Expected::Code(expected))) if code.0 == expected => self.marks.hit(mark!("protocol error told")),
            // What a server says to anybody.
            (Some(code), _) if code.class() == ErrorClass::ServerCondition => {}
            (Some(code), _) => self.breach(Oracle::Protocol, format!("a client was told {code} for {expected:?}")),
            (None, Some(Expected::Code(expected))) if calm && was_asked => {
                self.breach(Oracle::Protocol, format!("an ERROR {expected:#04x} did not arrive"));
            }
            (None, _) => {}
        }
        self.ends_attempt(slot, Outcome::WaitedLong);
    }
}

/// What the oracles of belief ask.
impl World {
    /// The engine has granted a lock: nobody else may believe in it.
    pub(crate) fn grant_meets_believers(&mut self, id: ConnId) {
        let lock = self.conns[id].watch.lock;
        for other in self.believers[lock].clone() {
            if other != id && self.believes(other) {
                self.two_believe(other, id, "the server granted a lock in which another client believes");
            }
        }
    }

    /// A client has heard of its grant: nobody else may believe in that lock.
    fn grant_reaches_client(&mut self, id: ConnId) {
        let lock = self.conns[id].watch.lock;
        if !self.believes(id) {
            return;
        }
        for other in self.believers[lock].clone() {
            if other != id && self.believes(other) {
                self.two_believe(other, id, "two clients believe in one lock");
            }
        }
    }

    /// The old holder still believes while there is a new one. It may, where the documentation says so.
    fn two_believe(&mut self, one: ConnId, two: ConnId, what: &str) {
        let ordinal = |id: ConnId| self.conns[id].watch.grant.map_or(0, |grant| grant.ordinal);
        let (old, new) = if ordinal(one) <= ordinal(two) { (one, two) } else { (two, one) };
        let Some(old_grant) = self.conns[old].watch.grant else { return };
        let new_life = self.conns[new].watch.grant.map_or(old_grant.life, |grant| grant.life);
        let by_force = matches!(self.conns[old].watch.ended, Some((_, ReleaseReason::Force)));
        let names = format!("{} and {}", self.who(old), self.who(new));
        if old_grant.life != new_life {
            let grace = self.lives[new_life as usize - 1].grace;
            let lease_ns = self.conns[old].watch.lease.map_or(0, |lease| u64::from(lease.as_millis()) * MS);
            if grace >= lease_ns && grace > 0 {
                self.breach(Oracle::Exclusion, format!("{what} in spite of the grace: {names}"));
            }
            self.marks.hit(mark!("overlap across a restart"));
        } else if by_force {
            self.marks.hit(mark!("overlap after a forced release"));
        } else {
            self.breach(Oracle::Exclusion, format!("{what}: {names}"));
        }
    }

    /// The engine has ended a grant: its client must not believe in it any more, but for the two cases in which the
    /// server takes it away from a living client.
    pub(crate) fn release_meets_believer(&mut self, id: ConnId, reason: ReleaseReason) {
        if self.believes(id) && !matches!(reason, ReleaseReason::Force | ReleaseReason::Shutdown) {
            let who = self.who(id);
            self.breach(Oracle::GiveUp, format!("{who} still believed when the server let go ({reason})"));
        }
    }

    /// A client believes until `until` by its clock: the server must count it, or have died or let go by force less than
    /// 0.8 leases ago.
    fn belief_meets_server(&mut self, id: ConnId, until: Timestamp) {
        let watch = &self.conns[id].watch;
        let Some(grant) = watch.grant else {
            self.breach(Oracle::GiveUp, "a client believes and was never granted the lock".into());
            return;
        };
        let died = self.lives[grant.life as usize - 1].ended;
        let let_go = watch.ended.map(|(at, _)| at);
        let (Some(since), Some(lease)) = (let_go.or(died), watch.lease) else { return };
        if let Some((_, reason)) = watch.ended
            && !matches!(reason, ReleaseReason::Force | ReleaseReason::Shutdown)
        {
            let who = self.who(id);
            self.breach(Oracle::GiveUp, format!("{who} believes and the server has let go ({reason})"));
            return;
        }
        let host = &self.hosts[self.conns[id].host];
        let ends: True = host.clock.when(until, self.t);
        let window = Clock::true_nanos(-50, u64::from(lease.as_millis()) * MS / 5 * 4);
        if ends > since.saturating_add(window) {
            let who = self.who(id);
            self.breach(Oracle::GiveUp, format!("{who} would believe for {} after the server let go", span(ends - since)));
        }
    }
}
