//! The client's session machine under a hostile server and a driver that calls when it likes.

use std::io::ErrorKind;
use std::time::Duration;

use monolock_client::session::{Event, LossReason, Session, SessionConfig, Standing};
use monolock_core::{Lease, LockName, Timestamp};

use crate::protocol::{Start, server_start};

const NAME: &str = "jobs";

/// Plays a script of a driver's calls and a server's bytes.
///
/// The session stands where a naive reading of `docs/protocol.md` has it and gives up when that does; its deadline is
/// never in the past; at most one frame is unanswered; nothing happens after the end; and the cuts of the bytes change
/// nothing.
pub fn client(bytes: &[u8]) {
    let [lease, max_hold, script @ ..] = bytes else { return };
    let lease_ms = u32::try_from((1_u64 << (lease % 33)) - u64::from(lease >> 7)).unwrap_or(u32::MAX);
    let Some(lease) = Lease::from_millis(lease_ms) else { return };
    let config = SessionConfig {
        name: LockName::new(NAME).expect("it is short"),
        lease,
        max_hold: (*max_hold > 0).then(|| Duration::from_micros(1 << (max_hold % 40))),
    };
    Play::new(&config).play(script);
}

struct Play {
    session: Session,
    /// The same session, which is given each byte by itself.
    bytewise: Session,
    naive: Naive,
    events: Vec<Event>,
    now: Timestamp,
}

/// What may be known without the machine.
struct Naive {
    lease: Duration,
    max_hold: Option<Duration>,
    now: Timestamp,
    standing: &'static str,
    token: u64,
    undecoded: Vec<u8>,
    /// When the frame was sent that has no answer.
    unanswered: Option<Timestamp>,
    last_sent: Option<Timestamp>,
    confirmed: Timestamp,
    hold_ends: Option<Timestamp>,
    /// When the machine has last looked at the clock with all that it does then.
    settled: Timestamp,
    events: Vec<String>,
}

impl Play {
    fn new(config: &SessionConfig) -> Self {
        let now = Timestamp::from_millis(1000);
        Self {
            session: Session::new(now, config.clone()),
            bytewise: Session::new(now, config.clone()),
            naive: Naive {
                lease: config.lease.as_duration(),
                max_hold: config.max_hold,
                now,
                standing: "asking",
                token: 0,
                undecoded: Vec::new(),
                unanswered: None,
                last_sent: None,
                confirmed: now,
                hold_ends: None,
                settled: now,
                events: Vec::new(),
            },
            events: Vec::new(),
            now,
        }
    }

    fn play(mut self, mut script: &[u8]) {
        while let [step, argument, rest @ ..] = script {
            script = rest;
            match step % 12 {
                0 | 1 => self.now = self.now.saturating_add(Duration::from_micros(1 << (argument % 44))),
                2 => self.now = self.now.max(self.session.next_deadline().unwrap_or(self.now)),
                3 => {
                    let deadline = self.session.next_deadline().unwrap_or(self.now);
                    self.now = self.now.max(deadline.saturating_sub(Duration::from_nanos(1)));
                }
                // A clock that steps back.
                4 => self.now = self.now.saturating_sub(Duration::from_micros(1 << (argument % 24))),
                5 => {
                    let (bytes, rest) = script.split_at(usize::from(*argument).min(script.len()));
                    script = rest;
                    self.receive(bytes);
                }
                6 => self.receive(&[0x11]),
                7 => self.receive(&[0x12, 0, 0, 0, 0, 0, 0, 0, 7 + argument % 16 / 15]),
                8 | 9 => self.transmit(),
                10 => self.tick(),
                _ if argument % 16 == 0 => self.disconnect((*argument > 0).then_some(ErrorKind::ConnectionReset)),
                _ => self.beat(),
            }
            self.compare();
        }
    }

    /// What a good driver and a good server do.
    fn beat(&mut self) {
        self.now = self.now.max(self.session.next_deadline().unwrap_or(self.now));
        self.tick();
        self.transmit();
        if self.naive.unanswered.is_some() {
            if self.naive.standing == "queued" {
                self.receive(&[0x11]);
            } else {
                self.receive(&[&[0x12][..], &self.naive.token.max(7).to_be_bytes()].concat());
            }
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.session.receive(self.now, bytes, &mut self.events);
        let mut events = Vec::new();
        self.bytewise.tick(self.now, &mut events);
        for byte in bytes {
            self.bytewise.receive(self.now, &[*byte], &mut events);
        }
        self.naive.receive(self.now, bytes);
        assert!(self.events.ends_with(&events), "cuts change {events:?}");
        self.deadline_is_to_come();
    }

    fn tick(&mut self) {
        self.session.tick(self.now, &mut self.events);
        self.bytewise.tick(self.now, &mut Vec::new());
        self.naive.settle(self.now);
        self.deadline_is_to_come();
    }

    fn disconnect(&mut self, error: Option<ErrorKind>) {
        self.session.disconnected(self.now, error, &mut self.events);
        self.bytewise.disconnected(self.now, error, &mut Vec::new());
        self.naive.settle(self.now);
        self.naive.end("closed");
        assert_eq!(self.session.next_deadline(), None);
    }

    fn transmit(&mut self) {
        let (mut sent, mut sent_bytewise) = (Vec::new(), Vec::new());
        self.session.transmit(self.now, &mut sent);
        self.bytewise.transmit(self.now, &mut sent_bytewise);
        assert_eq!(sent, sent_bytewise);
        self.naive.sent(self.now, &sent);
    }

    fn deadline_is_to_come(&self) {
        let deadline = self.session.next_deadline();
        assert!(deadline.is_none_or(|deadline| deadline > self.naive.now), "{deadline:?} at {:?}", self.naive.now);
    }

    fn compare(&self) {
        let Self { session, bytewise, naive, events, .. } = self;
        let standing = match session.standing() {
            Standing::Asking => "asking",
            Standing::Queued => "queued",
            Standing::Holding { token } => {
                assert_eq!(token.get(), naive.token);
                "holding"
            }
            Standing::Over => "over",
        };
        assert_eq!(standing, naive.standing);
        assert_eq!(events.iter().map(told).collect::<Vec<_>>(), naive.events);
        let gives_up = (naive.standing != "over").then(|| naive.gives_up_at());
        assert_eq!(session.gives_up_at(), gives_up);
        assert_eq!(session.next_deadline().is_some(), gives_up.is_some(), "a deadline until the end");
        assert!(session.next_deadline() <= gives_up);
        assert_eq!(
            (session.standing(), session.next_deadline(), session.gives_up_at(), session.hold_ends_at()),
            (bytewise.standing(), bytewise.next_deadline(), bytewise.gives_up_at(), bytewise.hold_ends_at()),
            "cuts change nothing"
        );
    }
}

impl Naive {
    fn unconfirmed_at(&self) -> Timestamp {
        self.confirmed.saturating_add(self.lease * 4 / 5)
    }

    fn gives_up_at(&self) -> Timestamp {
        let unconfirmed = self.unconfirmed_at();
        self.hold_ends.map_or(unconfirmed, |ends| ends.min(unconfirmed))
    }

    fn settle(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.settled = self.now;
        if self.now >= self.gives_up_at() {
            let is_unconfirmed = self.gives_up_at() == self.unconfirmed_at();
            self.end(if is_unconfirmed { "timeout" } else { "max_hold" });
        }
    }

    fn receive(&mut self, now: Timestamp, bytes: &[u8]) {
        self.settle(now);
        self.undecoded.extend_from_slice(bytes);
        while self.standing != "over" {
            match server_start(&self.undecoded) {
                Start::More => break,
                Start::Wrong(_) => self.end("protocol_violation"),
                Start::Frame(taken) => {
                    let frame: Vec<u8> = self.undecoded.drain(..taken).collect();
                    self.take_in(&frame);
                }
            }
        }
        self.settle(now);
    }

    fn take_in(&mut self, frame: &[u8]) {
        let token = frame.iter().skip(1).fold(0, |number, &byte| number << 8 & 0xffff_ffff_ffff_ff00 | u64::from(byte));
        match (self.standing, frame[0]) {
            (_, 0x13) => self.end("server_error"),
            ("queued", 0x12) => self.grant(token),
            ("holding", 0x11) => self.end("protocol_violation"),
            ("holding", _) if token != self.token => self.end("protocol_violation"),
            (standing, kind) => {
                let Some(sent) = self.unanswered.take() else { return self.end("protocol_violation") };
                self.confirmed = sent;
                match (standing, kind) {
                    ("asking", 0x11) => {
                        self.standing = "queued";
                        self.events.push("queued".to_owned());
                    }
                    ("asking", _) => self.grant(token),
                    _ => {}
                }
            }
        }
    }

    fn grant(&mut self, token: u64) {
        (self.standing, self.token) = ("holding", token);
        self.hold_ends = self.max_hold.map(|max_hold| self.now.saturating_add(max_hold));
        self.events.push(format!("granted {token}"));
    }

    fn end(&mut self, why: &str) {
        let what = match self.standing {
            "over" => return,
            "asking" => "refused",
            _ => "lost",
        };
        self.standing = "over";
        self.events.push(format!("{what}: {why}"));
    }

    /// The machine has given these bytes to be sent.
    fn sent(&mut self, now: Timestamp, bytes: &[u8]) {
        self.now = self.now.max(now);
        let may_send = self.standing != "over" && self.now < self.gives_up_at();
        // A quarter of the lease after the last sending a heartbeat is due, if a tick has seen that.
        let latest = self.last_sent.map(|sent| sent.saturating_add((self.lease / 4).min(Duration::from_mins(1))));
        let must_send = may_send && self.unanswered.is_none() && latest.is_none_or(|latest| self.settled >= latest);
        assert!(bytes.is_empty() || may_send, "nothing is sent after the give-up instant");
        assert!(bytes.is_empty() || self.unanswered.is_none(), "one frame is unanswered at a time");
        assert!(!bytes.is_empty() || !must_send, "a heartbeat is due");
        if bytes.is_empty() {
            return;
        }
        if self.last_sent.is_none() {
            let lease_ms = u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX);
            let acquire = [&[0x01, 0x01][..], &lease_ms.to_be_bytes(), &[0, 4], NAME.as_bytes()].concat();
            assert_eq!(bytes, acquire);
            self.confirmed = self.now;
        } else {
            assert_eq!(bytes, [0x02]);
        }
        (self.unanswered, self.last_sent) = (Some(self.now), Some(self.now));
    }
}

fn told(event: &Event) -> String {
    match event {
        Event::Queued => "queued".to_owned(),
        Event::Granted { token } => format!("granted {token}"),
        Event::Refused { reason } => format!("refused: {}", why(reason)),
        Event::Lost { reason } => format!("lost: {}", why(reason)),
    }
}

/// The reason by its name; what is said to people must be sayable.
fn why(reason: &LossReason) -> &'static str {
    assert!(!reason.to_string().contains(char::is_control), "{reason:?}");
    reason.as_str()
}
