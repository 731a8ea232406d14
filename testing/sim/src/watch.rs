//! What is known of one connection that neither of its ends is told: the frames that the server said, the signals that
//! the client's program was given, and when its heartbeats are due.

use monolock_core::wire::{ServerFrame, decode_server};
use monolock_core::{Lease, ReleaseReason, Timestamp, Token};

use crate::clock::True;
use crate::oracle::{Breach, Oracle};

/// The shortest time between two heartbeats, unless a quarter of the lease is shorter (`docs/protocol.md`).
const FLOOR: f64 = 100e6;
/// The longest.
const CEILING: f64 = 60e9;
/// What rounding may make of it.
const ROUNDING: f64 = 10e3;

#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) lock: usize,
    pub(crate) lease: Option<Lease>,
    pub(crate) grant: Option<Grant>,
    /// When the engine ended the session, and why.
    pub(crate) ended: Option<(True, ReleaseReason)>,
    said: Said,
    heard: Heard,
    signals: Signals,
    /// The program has let go of the lock.
    pub(crate) released: bool,
    /// Until when the client believed, as of its last input.
    pub(crate) believed_until: Option<Timestamp>,
    /// When `max_hold` ends the hold, by the client's clock.
    pub(crate) hold_ends: Option<Timestamp>,
    /// What a client with bad manners is to be told.
    pub(crate) expects: Option<Expected>,
    /// When its next deadline is armed.
    pub(crate) armed: Option<Timestamp>,
}

/// A grant, as the world saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) life: u32,
    /// Grants of all lives are counted.
    pub(crate) ordinal: u64,
    /// Within an era tokens rise.
    pub(crate) era: u32,
    pub(crate) token: Token,
    pub(crate) at: True,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Code(u8),
    Silence,
}

#[derive(Debug, Default)]
struct Said {
    owed: usize,
    waiting: bool,
    token: Option<Token>,
    farewell: bool,
    /// How many `ACQUIRED` have followed a `WAITING`.
    pushed: u32,
}

/// The client's side, as `docs/protocol.md` tells it.
#[derive(Debug, Default)]
struct Heard {
    undecoded: Vec<u8>,
    waiting: bool,
    holding: bool,
    sent: Option<u64>,
    round_trip: Option<f64>,
    next_beat: Option<Beat>,
}

#[derive(Clone, Copy, Debug)]
enum Beat {
    At(f64),
    AtOnce,
    /// Too near to the border to tell.
    Unknown,
}

#[derive(Debug, Default)]
struct Signals {
    queued: bool,
    granted: bool,
    ended: bool,
}

fn breach<T>(oracle: Oracle, what: impl Into<String>) -> Result<T, Breach> {
    Err((oracle, what.into()))
}

impl Watch {
    /// The server has taken in what it has to answer.
    pub(crate) fn owes(&mut self, replies: usize) {
        self.said.owed += replies;
    }

    /// The server says a frame.
    pub(crate) fn says(&mut self, frame: &ServerFrame<'_>) -> Result<(), Breach> {
        let Said { owed, waiting, token, farewell, pushed } = &mut self.said;
        if *farewell {
            return breach(Oracle::Frames, format!("{frame:?} after the ERROR"));
        }
        if self.ended.is_some() && !matches!(frame, ServerFrame::Error { .. }) {
            return breach(Oracle::Frames, format!("{frame:?} after the session's end"));
        }
        let is_push = match *frame {
            ServerFrame::Waiting if token.is_some() => return breach(Oracle::Frames, "WAITING after ACQUIRED"),
            ServerFrame::Waiting => {
                *waiting = true;
                false
            }
            ServerFrame::Acquired { token: new } => match token.replace(new) {
                Some(old) if old != new => {
                    return breach(Oracle::Frames, format!("the token changed from {old:?} to {new:?}"));
                }
                Some(_) => false,
                None => *waiting,
            },
            ServerFrame::Error { .. } => {
                *farewell = true;
                return Ok(());
            }
        };
        *pushed += u32::from(*waiting && token.is_some());
        if !is_push {
            *owed = owed.checked_sub(1).ok_or_else(|| (Oracle::Frames, format!("{frame:?} answers nothing")))?;
        }
        Ok(())
    }

    /// An input has been answered.
    pub(crate) fn has_answered(&self) -> Result<(), Breach> {
        if self.said.owed > 0 && self.ended.is_none() {
            return breach(Oracle::Frames, format!("{} replies are missing", self.said.owed));
        }
        Ok(())
    }

    /// The client's machine sends a frame.
    pub(crate) fn sends(&mut self, now: Timestamp) -> Result<(), Breach> {
        let now = now.as_nanos();
        if self.heard.sent.replace(now).is_some() {
            return breach(Oracle::Rhythm, "a heartbeat went out while another was unanswered");
        }
        let early = match self.heard.next_beat.take() {
            Some(Beat::At(due)) => due - exact(now),
            Some(Beat::AtOnce | Beat::Unknown) | None => 0.0,
        };
        if early > ROUNDING {
            return breach(Oracle::Rhythm, format!("a heartbeat went out {:.3} ms early", early / 1e6));
        }
        Ok(())
    }

    /// The client's machine is handed bytes.
    pub(crate) fn receives(&mut self, now: Timestamp, bytes: &[u8]) {
        let Self { heard, lease, .. } = self;
        let mut undecoded = std::mem::take(&mut heard.undecoded);
        undecoded.extend_from_slice(bytes);
        let mut taken = 0;
        while let Ok(Some((frame, length))) = decode_server(&undecoded[taken..]) {
            taken += length;
            let is_push = match frame {
                ServerFrame::Waiting => {
                    heard.waiting = true;
                    false
                }
                ServerFrame::Acquired { .. } => !std::mem::replace(&mut heard.holding, true) && heard.waiting,
                ServerFrame::Error { .. } => true,
            };
            if !is_push && let (Some(sent), Some(lease)) = (heard.sent.take(), *lease) {
                heard.confirmed(now.as_nanos(), sent, lease);
            }
        }
        undecoded.drain(..taken);
        heard.undecoded = undecoded;
    }

    /// The client's machine wants to be woken at `next`; it gives up at `gives_up`.
    pub(crate) fn plans(&self, next: Timestamp, gives_up: Timestamp) -> Result<(), Breach> {
        let due = match (self.heard.sent, self.heard.next_beat) {
            (None, Some(Beat::At(due))) => due.min(exact(gives_up.as_nanos())),
            (Some(_), _) => exact(gives_up.as_nanos()),
            (None, Some(Beat::AtOnce | Beat::Unknown) | None) => return Ok(()),
        };
        let late = exact(next.as_nanos()) - due;
        if late.abs() > ROUNDING {
            return breach(Oracle::Rhythm, format!("the next wake-up is planned {:.3} ms late", late / 1e6));
        }
        Ok(())
    }

    pub(crate) fn is_told_queued(&mut self) -> Result<(), Breach> {
        let Signals { queued, granted, ended } = &mut self.signals;
        if std::mem::replace(queued, true) || *granted || *ended {
            return breach(Oracle::Signal, "a claim was queued twice, or after its grant or end");
        }
        Ok(())
    }

    pub(crate) fn is_told_granted(&mut self) -> Result<(), Breach> {
        let Signals { granted, ended, .. } = &mut self.signals;
        if std::mem::replace(granted, true) || *ended {
            return breach(Oracle::Signal, "a claim was granted twice, or after its end");
        }
        Ok(())
    }

    pub(crate) fn is_told_ended(&mut self) -> Result<(), Breach> {
        if std::mem::replace(&mut self.signals.ended, true) {
            return breach(Oracle::Signal, "a claim's end was told twice");
        }
        Ok(())
    }

    /// A push has just been said while a heartbeat is under way.
    pub(crate) fn push_crosses_heartbeat(&self) -> bool {
        self.said.pushed == 1 && self.heard.sent.is_some()
    }

    /// The beginning of a frame has come, and not its end.
    pub(crate) const fn is_torn(&self) -> bool {
        !self.heard.undecoded.is_empty()
    }
}

impl Heard {
    fn confirmed(&mut self, now: u64, sent: u64, lease: Lease) {
        let sample = exact(now.saturating_sub(sent));
        let round_trip = self.round_trip.map_or(sample, |smoothed| 0.2 * sample + 0.8 * smoothed);
        self.round_trip = Some(round_trip);
        let base = f64::from(lease.as_millis()) * 1e6 / 4.0;
        let slack = base - 2.0 * round_trip;
        self.next_beat = Some(if slack.abs() < ROUNDING {
            Beat::Unknown
        } else if slack < 0.0 {
            Beat::AtOnce
        } else {
            Beat::At(exact(sent) + slack.clamp(FLOOR.min(base), base).min(CEILING))
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "2^43 ns fit exactly, and more is beyond every world")]
fn exact(nanos: u64) -> f64 {
    nanos as f64
}
