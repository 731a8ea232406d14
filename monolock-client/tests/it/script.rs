//! A story told to the session machine, line by line: `<instant> <input> -> <what comes of it>`.
//!
//! After each input the machine is asked for what it wants to send, so a line shows events and frames together. Inputs:
//! `start`, `tick`, `closed`, `deadline` (a question), and frames as the server sends them (`waiting`, `acquired=41`,
//! `error=02`, `bytes=7f`), glued in the order given.

use std::time::Duration;

use monolock_client::session::{Event, Session, SessionConfig};
use monolock_client::{Lease, LockName, LossReason, ProtocolViolation, Timestamp};

pub(crate) fn session(lease: Duration) -> Session {
    session_with(lease, None)
}

pub(crate) fn session_with(lease: Duration, max_hold: Option<Duration>) -> Session {
    let config =
        SessionConfig { name: LockName::new("jobs").unwrap(), lease: Lease::try_from(lease).unwrap(), max_hold };
    Session::new(Timestamp::ORIGIN, config)
}

/// Tells the story to a session with this lease.
#[track_caller]
pub(crate) fn check(lease: Duration, story: &str) {
    check_session(session(lease), story);
}

/// Tells the story to this session.
#[track_caller]
pub(crate) fn check_session(mut session: Session, story: &str) {
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (input, expected) = line.split_once("->").unwrap_or((line, ""));
        let came = tell(&mut session, input);
        assert_eq!(came, expected.trim(), "in the line: {line}");
    }
}

fn tell(session: &mut Session, input: &str) -> String {
    let mut words = input.split_whitespace();
    let now = instant(words.next().unwrap());
    let verb = words.next().unwrap();
    let mut events = Vec::new();
    match verb {
        "start" => {}
        "deadline" => {
            let deadline = session.next_deadline();
            return deadline.map_or("none".to_owned(), |deadline| format!("{deadline:?}"));
        }
        "tick" => session.tick(now, &mut events),
        "closed" => session.disconnected(now, None, &mut events),
        first => {
            let bytes: Vec<u8> = std::iter::once(first).chain(words).flat_map(frame).collect();
            session.receive(now, &bytes, &mut events);
        }
    }
    let mut sent = Vec::new();
    session.transmit(now, &mut sent);
    let mut came: Vec<String> = events.iter().map(render).collect();
    match sent.first() {
        None => {}
        Some(0x01) => came.push("sends ACQUIRE".to_owned()),
        Some(_) => came.push(if sent == [0x02] { "sends HEARTBEAT".to_owned() } else { format!("sends {sent:x?}") }),
    }
    came.join("; ")
}

pub(crate) fn frame(word: &str) -> Vec<u8> {
    let (kind, value) = word.split_once('=').unwrap_or((word, ""));
    match kind {
        "waiting" => vec![0x11],
        "acquired" => [&[0x12][..], &value.parse::<u64>().unwrap().to_be_bytes()].concat(),
        "error" => vec![0x13, u8::from_str_radix(value, 16).unwrap(), 3, b'w', b'h', b'y'],
        "bytes" => vec![u8::from_str_radix(value, 16).unwrap()],
        _ => panic!("no such input: {word}"),
    }
}

pub(crate) fn render(event: &Event) -> String {
    match event {
        Event::Queued => "queued".to_owned(),
        Event::Granted { token } => format!("granted {token}"),
        Event::Refused { reason } => format!("refused: {}", render_reason(reason)),
        Event::Lost { reason } => format!("lost: {}", render_reason(reason)),
    }
}

/// Short where the reason has no data, so that stories fit on a line; else as people read it.
fn render_reason(reason: &LossReason) -> String {
    let short = match reason {
        LossReason::Timeout => "timeout",
        LossReason::Closed { error: None } => "closed",
        LossReason::MaxHold => "max hold",
        LossReason::ProtocolViolation(ProtocolViolation::UnknownFrame(_)) => "unknown frame",
        LossReason::ProtocolViolation(ProtocolViolation::WaitingAfterAcquired) => "waiting after acquired",
        LossReason::ProtocolViolation(ProtocolViolation::TokenChanged { .. }) => "token changed",
        LossReason::ProtocolViolation(ProtocolViolation::Unsolicited) => "unsolicited",
        LossReason::Server { code, reason } => return format!("server {code} {reason}"),
        LossReason::Closed { error: Some(_) } | LossReason::ProtocolViolation(_) | _ => return reason.to_string(),
    };
    short.to_owned()
}

fn instant(text: &str) -> Timestamp {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
    let number: f64 = number.parse().unwrap();
    let seconds = match unit {
        "ms" => number / 1e3,
        "us" => number / 1e6,
        "s" | "" => number,
        "min" => number * 60.0,
        _ => panic!("no such unit: {text}"),
    };
    Timestamp::ORIGIN.saturating_add(Duration::from_secs_f64(seconds))
}
