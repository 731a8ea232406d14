//! What is still to be said to one client.
//!
//! The protocol lets a server say only this: some `WAITING`, then some `ACQUIRED` with one token, then at most one
//! `ERROR`. So an outbox is two counters, a token and an ending, of a fixed size, and no order of pushes can put a
//! `WAITING` after an `ACQUIRED`.

use std::fmt;

use monolock_core::Token;
use monolock_core::wire::{ErrorCode, ProtocolError, ServerFrame};

const WAITING_BYTES: usize = 1;
const ACQUIRED_BYTES: usize = 9;

/// How many bytes of replies are encoded for one write. More are owed only to a client that does not read.
const BATCH_BYTES: usize = 512;

/// Frames that the socket has not wholly taken.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: u32,
    acquired: u32,
    token: Option<Token>,
    farewell: Parting,
    /// How many bytes of the first frame the socket has taken.
    taken: u16,
}

/// A frame that is said while the session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Waiting,
    Acquired(Token),
}

/// Why a session ends, where the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    ShuttingDown,
    ClosedByAdministrator,
    LimitReached,
    NotAuthorized,
    LeaseTooLong,
    Protocol(ProtocolError),
}

#[derive(Debug, Default)]
enum Parting {
    #[default]
    NotYet,
    /// The `ERROR` frame, in bytes.
    Owed(Box<[u8]>),
    Said,
}

impl Outbox {
    /// Adds a reply. One that comes after the farewell is moot.
    pub(crate) fn push(&mut self, reply: Reply) {
        if !matches!(self.farewell, Parting::NotYet) {
            return;
        }
        match reply {
            Reply::Waiting => {
                debug_assert!(self.token.is_none(), "a session never goes back from ACQUIRED to WAITING");
                self.waiting += 1;
            }
            Reply::Acquired(token) => {
                debug_assert!(self.token.is_none_or(|earlier| earlier == token), "a session has one grant");
                self.token = Some(token);
                self.acquired += 1;
            }
        }
    }

    /// Adds the last frame of all. The first farewell stands.
    pub(crate) fn bid(&mut self, farewell: Farewell) {
        if matches!(self.farewell, Parting::NotYet) {
            let mut bytes = Vec::new();
            let reason = farewell.to_string();
            ServerFrame::Error { code: farewell.code(), reason: reason.as_bytes() }.encode(&mut bytes);
            self.farewell = Parting::Owed(bytes.into_boxed_slice());
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0 && self.acquired == 0 && !matches!(self.farewell, Parting::Owed(_))
    }

    /// The next bytes for the socket: all of them, or a batch. Empty only if the outbox is.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let waiting = (self.waiting as usize).min(BATCH_BYTES);
        let acquired = (self.acquired as usize).min((BATCH_BYTES - waiting) / ACQUIRED_BYTES);
        let mut bytes = Vec::with_capacity(waiting + acquired * ACQUIRED_BYTES);
        (0..waiting).for_each(|_| ServerFrame::Waiting.encode(&mut bytes));
        if let Some(token) = self.token {
            (0..acquired).for_each(|_| ServerFrame::Acquired { token }.encode(&mut bytes));
        }
        let all = waiting == self.waiting as usize && acquired == self.acquired as usize;
        if all && let Parting::Owed(farewell) = &self.farewell {
            bytes.extend_from_slice(farewell);
        }
        bytes.drain(..usize::from(self.taken));
        bytes
    }

    /// The socket has taken so many of the bytes that [`encode`](Self::encode) gave.
    pub(crate) fn consume(&mut self, bytes: usize) {
        let mut bytes = bytes + usize::from(self.taken);
        take_frames(&mut self.waiting, WAITING_BYTES, &mut bytes);
        take_frames(&mut self.acquired, ACQUIRED_BYTES, &mut bytes);
        if let Parting::Owed(farewell) = &self.farewell
            && bytes >= farewell.len()
        {
            bytes -= farewell.len();
            self.farewell = Parting::Said;
        }
        self.taken = u16::try_from(bytes).expect("less than a frame is left over");
    }
}

impl Farewell {
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::ShuttingDown => ErrorCode::SERVER_SHUTTING_DOWN,
            Self::ClosedByAdministrator => ErrorCode::CLOSED_BY_ADMINISTRATOR,
            Self::LimitReached => ErrorCode::LIMIT_REACHED,
            Self::NotAuthorized => ErrorCode::NOT_AUTHORIZED,
            Self::LeaseTooLong => ErrorCode::LEASE_TOO_LONG,
            Self::Protocol(error) => error.code(),
        }
    }
}

impl Farewell {
    /// Whether it tells the client that its bytes were wrong, and not that it may not or cannot have the lock.
    pub(crate) const fn is_clients_fault(self) -> bool {
        match self {
            Self::Protocol(_) | Self::LeaseTooLong => true,
            Self::ShuttingDown | Self::ClosedByAdministrator | Self::LimitReached | Self::NotAuthorized => false,
        }
    }
}

impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShuttingDown => f.write_str("server shutting down"),
            Self::ClosedByAdministrator => f.write_str("closed by administrator"),
            Self::LimitReached => f.write_str("limit reached"),
            Self::NotAuthorized => f.write_str("not authorized for lock"),
            Self::LeaseTooLong => f.write_str("lease too long"),
            Self::Protocol(error) => error.fmt(f),
        }
    }
}

/// Counts off the frames of one kind that `bytes` cover.
fn take_frames(frames: &mut u32, frame_bytes: usize, bytes: &mut usize) {
    let whole = (*frames as usize).min(*bytes / frame_bytes);
    *frames -= u32::try_from(whole).expect("no more than there were");
    *bytes -= whole * frame_bytes;
}

#[cfg(test)]
mod tests {
    use monolock_core::Token;
    use monolock_core::wire::{ProtocolError, ServerFrame};
    use proptest::prelude::*;

    use super::{BATCH_BYTES, Farewell, Outbox, Reply};

    #[derive(Clone, Debug)]
    enum Step {
        /// So many replies are owed more.
        Push(usize),
        Promote,
        Bid,
        /// The socket takes so many bytes, or all that it is given.
        Write(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            40 => Just(Step::Push(1)),
            // More than a few batches hold, so that a farewell comes while some are still to be said.
            2 => (0..8 * BATCH_BYTES).prop_map(Step::Push),
            2 => Just(Step::Promote),
            1 => Just(Step::Bid),
            20 => (0..700_usize).prop_map(Step::Write),
        ]
    }

    proptest! {
        #[test]
        fn says_what_was_pushed_in_order_whatever_the_socket_takes(story in prop::collection::vec(step(), 0..300)) {
            let token = Token::new(0x0102_0304_0506_0708).unwrap();
            let (mut outbox, mut reply) = (Outbox::default(), Reply::Waiting);
            let (mut expected, mut said, mut ended) = (Vec::new(), Vec::new(), false);
            let mut told = story.into_iter().chain([Step::Bid]);
            while let Some(step) = told.next().or_else(|| (!outbox.is_empty()).then_some(Step::Write(usize::MAX))) {
                match step {
                    Step::Push(count) => {
                        for _ in 0..count {
                            outbox.push(reply);
                            match reply {
                                _ if ended => {}
                                Reply::Waiting => ServerFrame::Waiting.encode(&mut expected),
                                Reply::Acquired(token) => ServerFrame::Acquired { token }.encode(&mut expected),
                            }
                        }
                    }
                    Step::Promote => reply = Reply::Acquired(token),
                    Step::Bid => {
                        outbox.bid(Farewell::Protocol(ProtocolError::UnknownType(0x7f)));
                        if !ended {
                            let code = ProtocolError::UnknownType(0x7f).code();
                            ServerFrame::Error { code, reason: b"unknown message type: 0x7f" }.encode(&mut expected);
                        }
                        ended = true;
                    }
                    Step::Write(most) => {
                        let bytes = outbox.encode();
                        prop_assert_eq!(bytes.is_empty(), outbox.is_empty());
                        let taken = bytes.len().min(most);
                        said.extend_from_slice(&bytes[..taken]);
                        outbox.consume(taken);
                    }
                }
            }
            prop_assert!(outbox.is_empty());
            prop_assert_eq!(said, expected);
        }
    }
}
