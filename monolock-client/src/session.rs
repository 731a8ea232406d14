//! The one place that knows the rules of a session, as a client must keep them (`docs/protocol.md`, "What a client must
//! do").
//!
//! [`Session`] is pure: it opens no socket, reads no clock and draws no randomness, so the drivers and the simulator
//! run the very same rules. Every input looks at the clock before it looks at anything else, so a session that has
//! given up can be revived by nothing; and it gives up no later than 0.8 leases after the sending of the last confirmed
//! frame, which is before the server does.

use std::time::Duration;
use std::{error, fmt, io, mem};

use monolock_core::wire::{
    ClientFrame, ErrorCode, MAX_SERVER_FRAME_BYTES, ServerFrame, UnknownServerFrame, decode_server,
};
use monolock_core::{Lease, LockName, Timestamp, Token};

/// The longest time between two heartbeats, however long the lease: middleboxes drop flows that are idle for a few
/// minutes.
pub const HEARTBEAT_CEILING: Duration = Duration::from_mins(1);

/// The shortest time between two heartbeats, where a quarter of the lease is not shorter still.
pub const HEARTBEAT_FLOOR: Duration = Duration::from_millis(100);

/// What a session is for.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The lock.
    pub name: LockName,
    /// How long the session may be silent before the server drops it.
    pub lease: Lease,
    /// How long a hold may last before it counts as lost, counted from the grant's receipt. `None`: as long as it is
    /// confirmed.
    pub max_hold: Option<Duration>,
}

/// One claim on one lock, from `ACQUIRE` to its end.
///
/// A driver opens a connection, makes a `Session`, and then, for as long as [`next_deadline`](Self::next_deadline) says
/// something: writes what [`transmit`](Self::transmit) gives, hands what it reads to [`receive`](Self::receive), and
/// calls [`tick`](Self::tick) at the deadline. After every input, `transmit` may have something new. A stepping-back
/// `now` counts as standing still.
///
/// ```
/// use monolock_client::session::{Event, Session, SessionConfig};
/// use monolock_core::{Lease, LockName, Timestamp, Token};
///
/// let config = SessionConfig {
///     name: LockName::new("jobs").unwrap(),
///     lease: Lease::from_millis(10_000).unwrap(),
///     max_hold: None,
/// };
/// let mut session = Session::new(Timestamp::ORIGIN, config);
/// let mut bytes = Vec::new();
/// session.transmit(Timestamp::ORIGIN, &mut bytes);
/// assert_eq!(bytes[0], 0x01, "ACQUIRE");
///
/// let mut events = Vec::new();
/// let acquired = [0x12, 0, 0, 0, 0, 0, 0, 0, 41];
/// session.receive(Timestamp::from_millis(3), &acquired, &mut events);
/// assert_eq!(events, [Event::Granted { token: Token::new(41).unwrap() }]);
/// // 0.8 leases from the sending of the ACQUIRE, not from the receipt of the answer.
/// assert_eq!(session.gives_up_at(), Some(Timestamp::from_millis(8_000)));
/// ```
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    /// The latest instant that any input brought.
    now: Timestamp,
    standing: Standing,
    /// A frame that is to be sent and that [`Session::transmit`] has not taken yet.
    owed: Option<Owed>,
    /// When the one frame that waits for its reply was sent.
    unanswered: Option<Timestamp>,
    /// When the last confirmed frame was sent; until there is one, when `ACQUIRE` was.
    confirmed: Timestamp,
    next_beat: Timestamp,
    /// The smoothed round-trip time; `None` before the first sample.
    round_trip: Option<Duration>,
    /// When `max_hold` is over.
    hold_ends: Option<Timestamp>,
    /// The beginning of a frame whose rest has not come: less than [`MAX_SERVER_FRAME_BYTES`].
    undecoded: Vec<u8>,
}

impl Session {
    /// A session that has just connected and owes its `ACQUIRE`.
    pub fn new(now: Timestamp, config: SessionConfig) -> Self {
        Self {
            config,
            now,
            standing: Standing::Asking,
            owed: Some(Owed::Acquire),
            unanswered: None,
            confirmed: now,
            next_beat: now,
            round_trip: None,
            hold_ends: None,
            undecoded: Vec::new(),
        }
    }

    /// Takes in bytes from the server, cut and glued as the network pleases.
    pub fn receive(&mut self, now: Timestamp, bytes: &[u8], events: &mut Vec<Event>) {
        self.settle(now, events);
        let mut buffer = mem::take(&mut self.undecoded);
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_over() {
            // A full buffer holds at least one whole frame, so each round takes something out.
            let room = MAX_SERVER_FRAME_BYTES - buffer.len();
            let (head, tail) = rest.split_at(rest.len().min(room));
            buffer.extend_from_slice(head);
            rest = tail;
            let decoded = self.decode(&buffer, events);
            buffer.drain(..decoded);
        }
        self.undecoded = buffer;
        self.settle(now, events);
    }

    /// Lets time pass. Early it does nothing; when due, the deadline moves on or the session ends.
    pub fn tick(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        self.settle(now, events);
    }

    /// The connection is gone: the server closed it (`error` is `None`), or reading or writing failed.
    pub fn disconnected(&mut self, now: Timestamp, error: Option<io::ErrorKind>, events: &mut Vec<Event>) {
        self.settle(now, events);
        self.end(LossReason::Closed { error }, events);
    }

    /// Appends the bytes that are to be written now, if any, and counts `now` as the moment of their sending: take the
    /// time before the system call, not after it.
    pub fn transmit(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        self.now = self.now.max(now);
        if self.gives_up_at().is_none_or(|ends| self.now >= ends) {
            return;
        }
        match self.owed.take() {
            None => return,
            Some(Owed::Acquire) => {
                let SessionConfig { name, lease, .. } = &self.config;
                ClientFrame::Acquire { lease: *lease, name: name.as_name_ref() }.encode(out);
                self.confirmed = self.now;
            }
            Some(Owed::Heartbeat) => ClientFrame::Heartbeat.encode(out),
        }
        self.unanswered = Some(self.now);
    }

    /// When [`tick`](Self::tick) is to be called next; `None` when the session is over.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        let ends = self.gives_up_at()?;
        Some(if self.may_beat() { ends.min(self.next_beat) } else { ends })
    }

    /// When the session ends unless something is confirmed before: 0.8 leases after the sending of the last confirmed
    /// frame, or at the end of `max_hold`. From this instant on the lock must not be believed in. `None` when the
    /// session is over.
    pub fn gives_up_at(&self) -> Option<Timestamp> {
        if self.is_over() {
            return None;
        }
        let unconfirmed = self.unconfirmed_at();
        Some(self.hold_ends.map_or(unconfirmed, |ends| ends.min(unconfirmed)))
    }

    /// When `max_hold` ends the hold; `None` without a hold or without that limit.
    pub const fn hold_ends_at(&self) -> Option<Timestamp> {
        self.hold_ends
    }

    /// Where the session stands.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// What the session is for.
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    const fn is_over(&self) -> bool {
        matches!(self.standing, Standing::Over)
    }

    /// At most one frame is unanswered at a time.
    const fn may_beat(&self) -> bool {
        self.owed.is_none() && self.unanswered.is_none()
    }

    fn unconfirmed_at(&self) -> Timestamp {
        self.confirmed.saturating_add(self.config.lease.as_duration() * 4 / 5)
    }

    /// Does what is due by `now`.
    fn settle(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        self.now = self.now.max(now);
        let Some(ends) = self.gives_up_at() else { return };
        if self.now >= ends {
            let reason = if ends == self.unconfirmed_at() { LossReason::Timeout } else { LossReason::MaxHold };
            self.end(reason, events);
        } else if self.may_beat() && self.now >= self.next_beat {
            self.owed = Some(Owed::Heartbeat);
        }
    }

    /// Takes the whole frames at the start of `bytes` in, and says how many bytes they are.
    fn decode(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> usize {
        let mut decoded = 0;
        while !self.is_over() {
            match decode_server(&bytes[decoded..]) {
                Ok(Some((frame, frame_bytes))) => {
                    decoded += frame_bytes;
                    self.take_in(frame, events);
                }
                Ok(None) => return decoded,
                Err(unknown) => self.violated(ProtocolViolation::UnknownFrame(unknown), events),
            }
        }
        bytes.len()
    }

    fn take_in(&mut self, frame: ServerFrame<'_>, events: &mut Vec<Event>) {
        match (self.standing, frame) {
            (Standing::Over, _) => {}
            (_, ServerFrame::Error { code, reason }) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.end(LossReason::Server { code, reason }, events);
            }
            (Standing::Asking, ServerFrame::Waiting) => {
                if self.confirm(events) {
                    self.standing = Standing::Queued;
                    events.push(Event::Queued);
                }
            }
            (Standing::Asking, ServerFrame::Acquired { token }) => {
                if self.confirm(events) {
                    self.grant(token, events);
                }
            }
            // The push: it answers nothing, so it confirms nothing. A heartbeat under way is answered by the next
            // frame.
            (Standing::Queued, ServerFrame::Acquired { token }) => self.grant(token, events),
            (Standing::Holding { .. }, ServerFrame::Waiting) => {
                self.violated(ProtocolViolation::WaitingAfterAcquired, events);
            }
            (Standing::Holding { token: held }, ServerFrame::Acquired { token }) if token != held => {
                self.violated(ProtocolViolation::TokenChanged { held, received: token }, events);
            }
            (Standing::Queued, ServerFrame::Waiting) | (Standing::Holding { .. }, ServerFrame::Acquired { .. }) => {
                self.confirm(events);
            }
        }
    }

    /// The frame that was under way has its reply. Says whether there was one; a reply to nothing ends the session.
    fn confirm(&mut self, events: &mut Vec<Event>) -> bool {
        let Some(sent) = self.unanswered.take() else {
            self.violated(ProtocolViolation::Unsolicited, events);
            return false;
        };
        self.confirmed = sent;
        let sample = self.now.since(sent);
        let round_trip = self.round_trip.map_or(sample, |smoothed| (sample + smoothed * 4) / 5);
        self.round_trip = Some(round_trip);
        self.next_beat = match heartbeat_interval(self.config.lease, round_trip) {
            Interval::FromSending(interval) => sent.saturating_add(interval),
            Interval::AtOnce => self.now,
        };
        true
    }

    fn grant(&mut self, token: Token, events: &mut Vec<Event>) {
        self.standing = Standing::Holding { token };
        self.hold_ends = self.config.max_hold.map(|max_hold| self.now.saturating_add(max_hold));
        events.push(Event::Granted { token });
    }

    fn violated(&mut self, violation: ProtocolViolation, events: &mut Vec<Event>) {
        self.end(LossReason::ProtocolViolation(violation), events);
    }

    fn end(&mut self, reason: LossReason, events: &mut Vec<Event>) {
        let standing = mem::replace(&mut self.standing, Standing::Over);
        self.owed = None;
        match standing {
            Standing::Asking => events.push(Event::Refused { reason }),
            Standing::Queued | Standing::Holding { .. } => events.push(Event::Lost { reason }),
            Standing::Over => {}
        }
    }
}

/// Where a session stands. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The server has not answered yet.
    Asking,
    /// In the queue.
    Queued,
    /// The session owns the lock.
    Holding {
        /// The grant's fencing token.
        token: Token,
    },
    /// Refused or lost: the connection is to be closed.
    Over,
}

/// What happened to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server put the session into the queue.
    Queued,
    /// The lock is this session's.
    Granted {
        /// The grant's fencing token.
        token: Token,
    },
    /// The session ended before the server had taken its claim in.
    Refused {
        /// Why.
        reason: LossReason,
    },
    /// The session ended in the queue or while it held the lock.
    Lost {
        /// Why.
        reason: LossReason,
    },
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Nothing was confirmed for 0.8 leases, counted from the sending of the last confirmed frame.
    Timeout,
    /// The connection ended.
    Closed {
        /// How reading or writing failed; `None` where the server closed the connection in good order.
        error: Option<io::ErrorKind>,
    },
    /// The server sent an `ERROR`.
    Server {
        /// Its code.
        code: ErrorCode,
        /// Its reason, for people. `Display` escapes it.
        reason: String,
    },
    /// The server sent what the protocol forbids.
    ProtocolViolation(ProtocolViolation),
    /// The hold lasted as long as `max_hold` allows.
    MaxHold,
}

impl LossReason {
    /// Its name, the same in every monolock client.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed { .. } => "closed",
            Self::Server { .. } => "server_error",
            Self::ProtocolViolation(_) => "protocol_violation",
            Self::MaxHold => "max_hold",
        }
    }

    /// The code of the server's `ERROR`, where that ended the session.
    pub const fn server_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Server { code, .. } => Some(*code),
            Self::Timeout | Self::Closed { .. } | Self::ProtocolViolation(_) | Self::MaxHold => None,
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the server confirmed nothing for 0.8 of the lease"),
            Self::Closed { error: None } => f.write_str("the server closed the connection"),
            Self::Closed { error: Some(error) } => write!(f, "the connection failed: {error}"),
            Self::Server { code, reason } => write!(f, "the server said {code}: {}", reason.escape_debug()),
            Self::ProtocolViolation(violation) => write!(f, "the server broke the protocol: {violation}"),
            Self::MaxHold => f.write_str("the hold lasted longer than max_hold"),
        }
    }
}

impl error::Error for LossReason {}

/// What a server sent that no server may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// Bytes that are no frame of this version.
    UnknownFrame(UnknownServerFrame),
    /// A `WAITING` after an `ACQUIRED`: a holder never goes back into the queue.
    WaitingAfterAcquired,
    /// Two `ACQUIRED` of one session with different tokens.
    TokenChanged {
        /// The token of the grant.
        held: Token,
        /// The token that came later.
        received: Token,
    },
    /// A reply to nothing.
    Unsolicited,
}

impl fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFrame(unknown) => fmt::Display::fmt(unknown, f),
            Self::WaitingAfterAcquired => f.write_str("WAITING after ACQUIRED"),
            Self::TokenChanged { held, received } => write!(f, "the token changed from {held} to {received}"),
            Self::Unsolicited => f.write_str("a reply to nothing"),
        }
    }
}

/// A frame that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Acquire,
    Heartbeat,
}

/// When the next heartbeat goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interval {
    /// So long after the sending of the last frame.
    FromSending(Duration),
    /// As soon as the answer is in.
    AtOnce,
}

fn heartbeat_interval(lease: Lease, round_trip: Duration) -> Interval {
    let base = lease.as_duration() / 4;
    let Some(interval) = base.checked_sub(round_trip * 2).filter(|interval| !interval.is_zero()) else {
        return Interval::AtOnce;
    };
    Interval::FromSending(interval.clamp(HEARTBEAT_FLOOR.min(base), base).min(HEARTBEAT_CEILING))
}
