//! A client to be examined: deliberately simple, for this suite alone, and able to have one bug at a time.
//!
//! `MONOLOCK_CONFORMANCE_BUG` names the bug. Without it the specimen keeps every rule. The suite has to find each of
//! them by a case that it names, or the suite is decoration. One thread a claim, which looks at everything every few
//! milliseconds.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a thread sleeps at most before it looks again.
const SLICE: Duration = Duration::from_millis(4);

/// Says whether the specimen has this bug.
fn has_bug(name: &str) -> bool {
    std::env::var("MONOLOCK_CONFORMANCE_BUG").is_ok_and(|bug| bug == name)
}

fn main() {
    say(&json!({"event": "ready", "client": "specimen", "version": env!("CARGO_PKG_VERSION")}));
    let mut claims = HashMap::<u64, Arc<Claim>>::new();
    let mut threads = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let op: Value = serde_json::from_str(&line).expect("the harness sends JSON");
        let id = op["id"].as_u64().unwrap_or_default();
        match op["op"].as_str().unwrap_or_default() {
            "exit" => break,
            "acquire" | "do" => {
                let claim = Arc::new(Claim { id, work: op["op"] == "do", ..Claim::default() });
                claims.insert(id, Arc::clone(&claim));
                threads.push(thread::spawn(move || claim.run(&op)));
            }
            "block" => say(&json!({"event": "unblocked"})),
            other => {
                if let Some(claim) = claims.get(&id) {
                    claim.take(other, &op);
                }
            }
        }
    }
    for claim in claims.values() {
        claim.cancelled.store(true, Ordering::Relaxed);
        claim.let_go.store(true, Ordering::Relaxed);
    }
    for thread in threads {
        thread.join().expect("a claim ends");
    }
}

fn say(event: &Value) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

/// What an id stands for, seen from both threads.
#[derive(Default)]
struct Claim {
    id: u64,
    work: bool,
    cancelled: AtomicBool,
    let_go: AtomicBool,
    finished: Mutex<Option<bool>>,
    held: Mutex<Hold>,
}

/// What is believed of the hold.
#[derive(Default)]
struct Hold {
    until: Option<Instant>,
    stream: Option<TcpStream>,
    told: bool,
}

/// Why a claim came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Timeout,
    Closed,
    Server(u8),
    Violation,
    MaxHold,
}

/// Why nothing was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    kind: &'static str,
    code: Option<u8>,
}

const fn refusal(kind: &'static str) -> Refusal {
    Refusal { kind, code: None }
}

impl End {
    const fn word(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::Server(_) => "server_error",
            Self::Violation => "protocol_violation",
            Self::MaxHold => "max_hold",
        }
    }

    const fn code(self) -> Option<u8> {
        match self {
            Self::Server(code) => Some(code),
            Self::Timeout | Self::Closed | Self::Violation | Self::MaxHold => None,
        }
    }
}

fn is_final(code: Option<u8>) -> bool {
    if has_bug("lists_codes") {
        return code.is_some_and(|code| (0x10..=0x18).contains(&code));
    }
    code.is_some_and(|code| code >= 0x10) && !has_bug("retries_client_errors")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim {
    /// From the main thread.
    fn take(&self, op: &str, body: &Value) {
        let id = self.id;
        match op {
            "is_held" => say(&json!({"event": "is_held", "id": id, "held": self.is_held()})),
            "cancel" if has_bug("cancels_late") => {
                thread::sleep(Duration::from_secs(5));
                self.cancelled.store(true, Ordering::Relaxed);
            }
            "cancel" => self.cancelled.store(true, Ordering::Relaxed),
            "finish" => *lock(&self.finished) = Some(body["result"] == "ok"),
            "release" => {
                self.let_go.store(true, Ordering::Relaxed);
                let mut hold = lock(&self.held);
                hold.until = None;
                if let Some(stream) = hold.stream.take().filter(|_| !has_bug("releases_without_closing")) {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                say(&json!({"event": "released", "id": id}));
            }
            other => eprintln!("unknown operation {other:?}"),
        }
    }

    fn is_held(&self) -> bool {
        let until = lock(&self.held).until;
        until.is_some_and(|until| Instant::now() < until)
    }

    fn run(&self, op: &Value) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            let (again, session) = match self.acquire(op) {
                Ok(session) => (has_bug("reacquires_silently") && rounds < 3, session),
                Err(refusal) => return self.refuse(op, refusal),
            };
            let ended = if self.work { self.do_work(session) } else { self.keep(session) };
            if !(again && ended.is_some()) {
                return;
            }
        }
    }

    fn refuse(&self, op: &Value, Refusal { kind, code }: Refusal) {
        let id = self.id;
        say(&if self.work {
            json!({"event": "done", "id": id, "outcome": "error", "kind": kind, "work_failed": false, "lost": null, "code": code})
        } else {
            json!({"event": "error", "id": id, "kind": kind, "code": code, "unsupported": !op["tls"].is_null()})
        });
    }

    /// Holds until it is released or lost.
    fn keep(&self, mut session: Session) -> Option<End> {
        let id = self.id;
        let token = session.token.unwrap_or_default();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the bug"
        )]
        let token = if has_bug("token_is_a_double") { token as f64 as u64 } else { token };
        say(&json!({"event": "acquired", "id": id, "token": token.to_string()}));
        while !self.let_go.load(Ordering::Relaxed) {
            if let Some(end) = session.step(self) {
                // A socket that the release shut is no loss.
                if self.let_go.load(Ordering::Relaxed) {
                    return None;
                }
                self.end(&session);
                let times = if has_bug("tells_the_loss_twice") { 2 } else { 1 };
                for _ in 0..times {
                    say(&json!({"event": "lost", "id": id, "reason": end.word(), "code": end.code()}));
                }
                return Some(end);
            }
        }
        if has_bug("releases_without_closing") {
            thread::sleep(Duration::from_secs(6));
        }
        None
    }

    fn end(&self, session: &Session) {
        let mut hold = lock(&self.held);
        *hold = Hold { told: true, ..Hold::default() };
        let _ = session.stream.shutdown(Shutdown::Both);
    }

    /// Keeps the lock until the work, which is a flag here, has ended.
    fn do_work(&self, mut session: Session) -> Option<End> {
        let id = self.id;
        say(&json!({"event": "started", "id": id, "token": session.token.unwrap_or_default().to_string()}));
        let (mut asked, mut lost) = (false, None);
        let result = loop {
            if let Some(result) = *lock(&self.finished) {
                break result;
            }
            if self.let_go.load(Ordering::Relaxed) {
                break false;
            }
            if lost.is_none() {
                lost = session.step(self);
            } else {
                thread::sleep(SLICE);
            }
            let cancelled = self.cancelled.load(Ordering::Relaxed);
            if !asked && (cancelled || lost.is_some() && !has_bug("work_is_not_told")) {
                asked = true;
                say(&json!({"event": "stop_requested", "id": id}));
                if lost.is_some() || has_bug("releases_before_the_work_ends") {
                    let _ = session.stream.shutdown(Shutdown::Both);
                }
            }
        };
        self.end(&session);
        let kind = lost.filter(|_| result).map(|_| "lost");
        let (word, code) = (lost.map(End::word), lost.and_then(End::code));
        say(&if result && lost.is_none() {
            json!({"event": "done", "id": id, "outcome": "ok"})
        } else {
            json!({"event": "done", "id": id, "outcome": "error", "kind": kind, "work_failed": !result, "lost": word, "code": code})
        });
        lost
    }

    fn acquire(&self, op: &Value) -> Result<Session, Refusal> {
        let request = Request::new(op)?;
        let mut backoff = Duration::from_millis(100);
        let mut was_at_once = false;
        loop {
            let error = match self.attempt(&request) {
                Ok(session) => return Ok(session),
                Err(error) => error,
            };
            let worth = matches!(error.kind, "unreachable" | "lost")
                || has_bug("retries_client_errors") && error.code.is_some();
            let worth = worth || has_bug("lists_codes") && !is_final(error.code) && error.code.is_some();
            if !request.retry || !worth || is_final(error.code) {
                return Err(error);
            }
            let at_once = error.code == Some(0x01) && !was_at_once;
            let ceiling = if at_once { Duration::from_millis(100) } else { backoff };
            if at_once {
                was_at_once = true;
            } else {
                backoff = (backoff * 2).min(Duration::from_secs(5));
            }
            let delay = ceiling.mul_f64(fastrand::f64());
            let delay = if has_bug("no_jitter") && at_once { Duration::ZERO } else { delay };
            let delay = if has_bug("no_backoff") { Duration::from_millis(1) } else { delay };
            let until = Instant::now() + delay;
            while Instant::now() < until {
                self.look(&request)?;
                thread::sleep(SLICE.min(until.saturating_duration_since(Instant::now())));
            }
        }
    }

    /// Whether it is still worth going on.
    fn look(&self, request: &Request) -> Result<(), Refusal> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(refusal("cancelled"));
        }
        match request.wait_until {
            Some(until) if Instant::now() >= until => Err(refusal("wait_timeout")),
            _ => Ok(()),
        }
    }

    /// Connects to the first address that takes the claim in, and waits for the turn.
    fn attempt(&self, request: &Request) -> Result<Session, Refusal> {
        self.look(request)?;
        let deadline = Instant::now() + request.connect_timeout;
        let addresses: Vec<SocketAddr> =
            request.addresses.iter().flat_map(|address| address.to_socket_addrs().into_iter().flatten()).collect();
        let mut code = None;
        for (tried, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
            match self.attempt_one(request, *address, until) {
                Ok(session) => return self.wait(request, session),
                Err(error) if error.kind != "unreachable" => return Err(error),
                Err(error) => code = error.code.or(code),
            }
            if has_bug("first_address_only") {
                break;
            }
        }
        Err(Refusal { kind: "unreachable", code })
    }

    fn attempt_one(&self, request: &Request, address: SocketAddr, until: Instant) -> Result<Session, Refusal> {
        let budget = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let (sender, connected) = channel();
        thread::spawn(move || sender.send(TcpStream::connect_timeout(&address, budget)));
        let stream = loop {
            self.look(request)?;
            match connected.recv_timeout(SLICE) {
                Ok(Ok(stream)) => break stream,
                Ok(Err(_)) => return Err(refusal("unreachable")),
                Err(_) if Instant::now() >= until => return Err(refusal("unreachable")),
                Err(_) => {}
            }
        };
        let mut session = Session::begin(request, stream).map_err(|_| refusal("unreachable"))?;
        while session.standing == Standing::Asking {
            self.look(request)?;
            if Instant::now() >= until {
                return Err(refusal("unreachable"));
            }
            match session.step(self) {
                None => {}
                Some(end) if session.standing != Standing::Asking => {
                    return Err(Refusal { kind: "lost", code: end.code() });
                }
                Some(End::Server(0x18)) => return Err(Refusal { kind: "denied", code: Some(0x18) }),
                Some(End::Server(code)) if code >= 0x10 => return Err(Refusal { kind: "invalid", code: Some(code) }),
                Some(end) => return Err(Refusal { kind: "unreachable", code: end.code() }),
            }
        }
        Ok(session)
    }

    fn wait(&self, request: &Request, mut session: Session) -> Result<Session, Refusal> {
        while session.standing == Standing::Queued {
            if request.only_try {
                return Err(refusal("contended"));
            }
            self.look(request)?;
            if let Some(end) = session.step(self) {
                return Err(Refusal { kind: "lost", code: end.code() });
            }
        }
        Ok(session)
    }
}

struct Request {
    addresses: Vec<String>,
    name: String,
    lease_ms: u32,
    retry: bool,
    only_try: bool,
    wait_until: Option<Instant>,
    connect_timeout: Duration,
    max_hold: Option<Duration>,
}

impl Request {
    fn new(op: &Value) -> Result<Self, Refusal> {
        let millis = |field: &str| op[field].as_u64().map(Duration::from_millis);
        let lease_ms = match op["lease_ms"].as_u64().and_then(|lease_ms| u32::try_from(lease_ms).ok()) {
            Some(lease_ms) if lease_ms >= 20 => lease_ms,
            _ if has_bug("lease_is_not_checked") => 1000,
            _ => return Err(refusal("invalid")),
        };
        let name = op["name"].as_str().unwrap_or_default().to_owned();
        if !op["tls"].is_null() || name.is_empty() || name.len() > 255 {
            return Err(refusal("invalid"));
        }
        let addresses = op["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Ok(Self {
            addresses: addresses.map(str::to_owned).collect(),
            name,
            lease_ms,
            retry: op["mode"] == "retry",
            only_try: op["mode"] == "try",
            wait_until: millis("wait_ms").map(|wait| Instant::now() + wait),
            connect_timeout: millis("connect_timeout_ms").unwrap_or(Duration::from_secs(5)),
            max_hold: millis("max_hold_ms"),
        })
    }
}

/// A read that came back without anything, and says nothing about the connection.
const fn is_passing(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Asking,
    Queued,
    Holding,
}

/// A session, and the socket that it runs on.
struct Session {
    stream: TcpStream,
    lease: Duration,
    max_hold: Option<Duration>,
    standing: Standing,
    token: Option<u64>,
    bytes: VecDeque<u8>,
    /// When the unanswered frame was sent.
    unanswered: Option<Instant>,
    /// When the last confirmed frame was sent.
    confirmed: Instant,
    next: Instant,
    round_trip: Option<Duration>,
    hold_ends: Option<Instant>,
}

impl Session {
    fn begin(request: &Request, stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        let name_len = u16::try_from(request.name.len()).expect("the name was checked");
        let mut acquire = vec![0x01, 0x01];
        acquire.extend_from_slice(&request.lease_ms.to_be_bytes());
        acquire.extend_from_slice(&name_len.to_be_bytes());
        acquire.extend_from_slice(request.name.as_bytes());
        let now = Instant::now();
        (&stream).write_all(&acquire)?;
        Ok(Self {
            stream,
            lease: Duration::from_millis(u64::from(request.lease_ms)),
            max_hold: request.max_hold,
            standing: Standing::Asking,
            token: None,
            bytes: VecDeque::new(),
            unanswered: Some(now),
            confirmed: now,
            next: now,
            round_trip: None,
            hold_ends: None,
        })
    }

    fn gives_up_at(&self) -> Instant {
        let lease = if has_bug("gives_up_late") { self.lease * 3 / 2 } else { self.lease * 4 / 5 };
        let gives_up = self.confirmed + lease;
        self.hold_ends.map_or(gives_up, |ends| ends.min(gives_up))
    }

    /// Looks at the clock, at the schedule, at the socket, and at the clock again. `Some`: it is over.
    fn step(&mut self, claim: &Claim) -> Option<End> {
        if let Some(end) = self.late().filter(|_| !has_bug("reads_before_the_clock")) {
            return Some(end);
        }
        let free = self.unanswered.is_none() || has_bug("several_unanswered");
        if free && Instant::now() >= self.next && self.standing != Standing::Asking && !has_bug("never_heartbeats") {
            let now = Instant::now();
            if (&self.stream).write_all(&[0x02]).is_err() {
                return self.read().or(Some(End::Closed));
            }
            self.unanswered = Some(now);
            self.next = now + self.lease / 4;
        }
        let ended = self.read();
        let ended = if has_bug("reads_before_the_clock") { ended.or_else(|| self.read_on()) } else { ended };
        let end = self.late().or(ended);
        let mut hold = lock(&claim.held);
        let over = end.is_some() || claim.let_go.load(Ordering::Relaxed) || hold.told;
        if self.standing == Standing::Holding && !over {
            hold.until = Some(self.gives_up_at());
            if hold.stream.is_none() {
                hold.stream = self.stream.try_clone().ok();
            }
        }
        end
    }

    /// Reads until a read takes no longer than it should: what came while the process stood still lies in the socket by
    /// now.
    fn read_on(&mut self) -> Option<End> {
        loop {
            let begun = Instant::now();
            let ended = self.read();
            if ended.is_some() || begun.elapsed() < Duration::from_millis(100) {
                return ended;
            }
        }
    }

    fn late(&self) -> Option<End> {
        let (now, gives_up) = (Instant::now(), self.gives_up_at());
        let max_hold = self.hold_ends.is_some_and(|ends| now >= ends);
        (now >= gives_up).then_some(if max_hold { End::MaxHold } else { End::Timeout })
    }

    fn read(&mut self) -> Option<End> {
        let mut bytes = [0; 512];
        let read = (&self.stream).read(&mut bytes);
        if self.late().is_some() && !has_bug("reads_before_the_clock") {
            return None;
        }
        let deaf = self.standing == Standing::Holding && has_bug("loses_its_reader");
        match read {
            Ok(0) | Err(_) if deaf => {
                thread::sleep(SLICE);
                None
            }
            Ok(0) => Some(End::Closed),
            Ok(read) => {
                self.bytes.extend(&bytes[..read]);
                let ended = self.decode();
                if has_bug("reads_packets") {
                    self.bytes.clear();
                }
                ended
            }
            Err(error) if is_passing(error.kind()) => None,
            Err(_) => Some(End::Closed),
        }
    }

    fn decode(&mut self) -> Option<End> {
        loop {
            let ended = match (self.bytes.front()?, self.bytes.len()) {
                (0x11, _) => {
                    self.bytes.pop_front();
                    self.waiting()
                }
                (0x12, 9..) => {
                    let token = self.bytes.drain(..9).skip(1).fold(0, |token, byte| token << 8 | u64::from(byte));
                    self.acquired(token)
                }
                (0x13, 3..) if self.bytes.len() >= 3 + usize::from(self.bytes[2]) => Some(End::Server(self.bytes[1])),
                (0x12 | 0x13, _) => return None,
                _ => Some(End::Violation),
            };
            if ended.is_some() {
                return ended;
            }
            if has_bug("reads_packets") {
                return None;
            }
        }
    }

    fn waiting(&mut self) -> Option<End> {
        if self.standing == Standing::Holding {
            if has_bug("ignores_waiting_after_acquired") {
                self.confirm();
                return None;
            }
            return Some(End::Violation);
        }
        self.standing = Standing::Queued;
        self.confirm()
    }

    fn acquired(&mut self, token: u64) -> Option<End> {
        let was = self.standing;
        if token == 0 || self.token.is_some_and(|held| held != token) {
            return Some(End::Violation);
        }
        self.standing = Standing::Holding;
        self.token = Some(token);
        if was != Standing::Holding {
            self.hold_ends = self.max_hold.map(|max_hold| Instant::now() + max_hold);
        }
        // The push answers nothing.
        if was == Standing::Queued && !has_bug("push_is_an_ack") {
            return None;
        }
        self.confirm().filter(|_| was != Standing::Queued)
    }

    fn confirm(&mut self) -> Option<End> {
        let Some(sent) = self.unanswered.take() else { return Some(End::Violation) };
        let now = Instant::now();
        let sample = now - sent;
        let round_trip = self.round_trip.map_or(sample, |known| (sample + known * 4) / 5);
        self.round_trip = Some(round_trip);
        let from_receipt = has_bug("gives_up_from_the_receipt") || has_bug("reads_before_the_clock");
        self.confirmed = if from_receipt { now } else { sent };
        let base = self.lease / 4;
        let interval = base.saturating_sub(round_trip * 2);
        self.next = if interval.is_zero() {
            now
        } else if has_bug("interval_from_the_receipt") {
            now + base
        } else {
            sent + interval.clamp(Duration::from_millis(100).min(base), base).min(Duration::from_mins(1))
        };
        None
    }
}
