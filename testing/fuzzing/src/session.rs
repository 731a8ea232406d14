//! Sessions of a server, from their bytes to its engine: up to four clients that send anything, leave anyhow, and meet
//! an administrator.
//!
//! The server runs as it ships, on a runtime whose clock stands still unless the script moves it, so one script has
//! one history. A naive server is told the same and says what each client hears; nothing less may come, and nothing
//! more.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use monolock_net::fuzzing::Hall;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::protocol::{Start, client_start, server_start};
use crate::streams::{ClientEnd, connect};

/// How long the server waits for a first frame, in milliseconds.
const IO_TIMEOUT_MS: u64 = 5000;

/// A script has at the most so many steps.
const STEPS: usize = 150;

/// How often the tasks have their turn before they have done all that they can. Three would do: a socket is seen to be
/// readable, its task reads and writes to all whom it concerns, and one that was ended by it goes.
const TURNS: usize = 8;

/// Plays a script of clients' and an administrator's doings against a server.
///
/// No panic, no byte that the protocol does not call for, no session left behind.
pub fn session(bytes: &[u8]) {
    runtime().block_on(async {
        let mut world = World::new();
        world.play(bytes).await;
        world.leave().await;
    });
}

/// One whose clock is moved by hand.
pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    builder.build().expect("the system has descriptors left")
}

/// Lets all tasks do what they can.
pub(crate) async fn settle() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

struct World {
    hall: Hall,
    expiry: JoinHandle<()>,
    seats: [Option<Client>; 4],
    now_ms: u64,
    is_closed: bool,
    arrivals: u64,
    connections: u16,
    /// The largest token that was heard.
    newest_token: u64,
}

/// A client, and what the naive server knows of it.
struct Client {
    end: ClientEnd,
    task: JoinHandle<()>,
    peer: SocketAddr,
    opened_ms: u64,
    /// What was sent and is no whole frame yet.
    unread: Vec<u8>,
    claim: Option<Claim>,
    /// What it is about to hear.
    expected: Vec<Word>,
    token: Option<u64>,
}

#[derive(Clone, Debug)]
struct Claim {
    name: String,
    lease_ms: u64,
    last_seen_ms: u64,
    arrival: u64,
    holds: bool,
}

/// What a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Waiting,
    Acquired,
    Error(u8),
    End,
}

impl World {
    fn new() -> Self {
        let hall = Hall::new(Duration::from_millis(IO_TIMEOUT_MS));
        let expiry = tokio::spawn(hall.expire());
        Self {
            hall,
            expiry,
            seats: [const { None }; 4],
            now_ms: 0,
            is_closed: false,
            arrivals: 0,
            connections: 0,
            newest_token: 0,
        }
    }

    async fn play(&mut self, mut script: &[u8]) {
        let mut next = || {
            let (&first, rest) = script.split_first()?;
            script = rest;
            Some(first)
        };
        for _ in 0..STEPS {
            let Some(step) = next() else { return };
            let (seat, argument) = (usize::from(step & 3), next().unwrap_or_default());
            match step >> 2 & 15 {
                0..5 => {
                    let bytes: Vec<u8> = (0..argument).map_while(|_| next()).collect();
                    self.send(seat, &bytes);
                }
                5 | 6 => self.send(seat, &acquire(argument)),
                7 => self.send(seat, &vec![0x02; argument.into()]),
                8 => self.send(seat, &[0x02]),
                9 => self.half_close(seat),
                10 => self.drop_client(seat).await,
                11 | 12 => self.let_pass(self.pause(seat, argument)).await,
                13 => self.force_release(seat).await,
                14 => self.kick(seat).await,
                _ => self.close(),
            }
            self.listen().await;
        }
    }

    /// Everybody leaves, and nothing is left.
    async fn leave(mut self) {
        for seat in 0..self.seats.len() {
            self.drop_client(seat).await;
            self.listen().await;
        }
        assert_eq!(self.hall.counts(), (0, 0), "locks and sessions are left behind");
        self.expiry.abort();
    }

    fn send(&mut self, seat: usize, bytes: &[u8]) {
        if self.seats[seat].is_none() && !self.is_closed {
            self.connect(seat);
        }
        let Some(client) = &mut self.seats[seat] else { return };
        client.end.send(bytes);
        client.unread.extend_from_slice(bytes);
        self.read(seat);
    }

    fn connect(&mut self, seat: usize) {
        let (end, stream) = connect().expect("the system has descriptors left");
        self.connections += 1;
        let peer = (Ipv4Addr::LOCALHOST, self.connections).into();
        let task = tokio::spawn(self.hall.serve(stream, peer));
        let (opened_ms, unread, expected) = (self.now_ms, Vec::new(), Vec::new());
        self.seats[seat] = Some(Client { end, task, peer, opened_ms, unread, claim: None, expected, token: None });
    }

    /// Takes in what a client has sent.
    fn read(&mut self, seat: usize) {
        while let Some(client) = self.seats[seat].as_mut().filter(|client| !client.is_told_off()) {
            match client_start(client.claim.is_none(), &client.unread) {
                Start::More => return,
                Start::Frame(taken) => {
                    let frame: Vec<u8> = client.unread.drain(..taken).collect();
                    match &mut client.claim {
                        Some(claim) => {
                            claim.last_seen_ms = self.now_ms;
                            client.expected.push(if claim.holds { Word::Acquired } else { Word::Waiting });
                        }
                        None => self.claim(seat, &frame),
                    }
                }
                Start::Wrong(code) => {
                    client.expected.extend([Word::Error(code.expect("a client is told its code")), Word::End]);
                    self.end_claim(seat);
                }
            }
        }
    }

    fn claim(&mut self, seat: usize, frame: &[u8]) {
        let name = String::from_utf8(frame[8..].to_vec()).expect("the naive reading has looked");
        let lease_ms = frame[2..6].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let holds = self.claims().all(|(_, claim)| claim.name != name);
        self.arrivals += 1;
        let claim = Claim { name, lease_ms, last_seen_ms: self.now_ms, arrival: self.arrivals, holds };
        let client = self.seats[seat].as_mut().expect("somebody has sent the frame");
        client.claim = Some(claim);
        client.expected.push(if holds { Word::Acquired } else { Word::Waiting });
    }

    fn half_close(&mut self, seat: usize) {
        let Some(client) = &mut self.seats[seat] else { return };
        client.end.half_close();
        client.expected.push(Word::End);
        self.end_claim(seat);
    }

    /// How many milliseconds are to pass: up to some seat's deadline, just short of it, or so many.
    fn pause(&self, seat: usize, argument: u8) -> u64 {
        let client = self.seats[seat].as_ref();
        let deadline = client.map_or(self.now_ms, |client| match &client.claim {
            Some(claim) => claim.deadline_ms(),
            None => client.opened_ms + IO_TIMEOUT_MS,
        });
        match argument {
            0..128 => 1 << (argument % 24),
            128..192 => deadline - self.now_ms,
            192.. => (deadline - self.now_ms).saturating_sub(1),
        }
    }

    async fn let_pass(&mut self, pause_ms: u64) {
        tokio::time::advance(Duration::from_millis(pause_ms)).await;
        self.now_ms += pause_ms;
        let mut out_of_time: Vec<_> = (0..self.seats.len())
            .filter(|&seat| {
                self.seats[seat].as_ref().is_some_and(|client| {
                    let opened_until = client.opened_ms + IO_TIMEOUT_MS;
                    client.claim.as_ref().map_or(opened_until, Claim::deadline_ms) <= self.now_ms
                })
            })
            .collect();
        // Nobody is promoted whose time is up as well.
        out_of_time.sort_by_key(|&seat| !self.seats[seat].as_ref().is_some_and(Client::waits));
        for seat in out_of_time {
            self.seats[seat].as_mut().expect("it was there").expected.push(Word::End);
            self.end_claim(seat);
        }
    }

    async fn force_release(&mut self, seat: usize) {
        let Some(claim) = self.seats[seat].as_ref().and_then(|client| client.claim.clone()) else { return };
        let path = format!("/api/locks/{}/release", encoded(&claim.name));
        assert_eq!(self.ask("POST", &path).await["name"], claim.name);
        let holder = self.claims().find(|(_, other)| other.holds && other.name == claim.name);
        let holder = holder.expect("a claimed lock is held").0;
        self.dismiss(holder, 0x02);
    }

    async fn kick(&mut self, seat: usize) {
        let Some(client) = self.seats[seat].as_ref().filter(|client| client.waits()) else { return };
        let name = client.claim.as_ref().map_or("", |claim| &claim.name);
        let path = format!("/api/locks/{}/waiters/{}", encoded(name), client.peer);
        assert_eq!(self.ask("DELETE", &path).await["name"], name);
        self.dismiss(seat, 0x02);
    }

    async fn ask(&self, method: &str, path: &str) -> Value {
        let (status, body) = self.hall.ask(method, path).await.expect("it is a request");
        let body = serde_json::from_slice(&body).expect("the answer is JSON");
        assert_eq!(status, 200, "{method} {path}: {body}");
        body
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.hall.close();
        // Nobody is promoted by it.
        for client in self.seats.iter_mut().flatten() {
            client.claim = None;
            client.expected.extend([Word::Error(0x01), Word::End]);
        }
    }

    fn dismiss(&mut self, seat: usize, code: u8) {
        self.seats[seat].as_mut().expect("it has a claim").expected.extend([Word::Error(code), Word::End]);
        self.end_claim(seat);
    }

    /// A claim is over; the next in the queue has the lock.
    fn end_claim(&mut self, seat: usize) {
        let Some(ended) = self.seats[seat].as_mut().and_then(|client| client.claim.take()) else { return };
        if ended.holds {
            let queue = self.claims().filter(|(_, claim)| claim.name == ended.name);
            let Some((next, _)) = queue.min_by_key(|(_, claim)| claim.arrival) else { return };
            let next = self.seats[next].as_mut().expect("it has a claim");
            next.claim.as_mut().expect("it has a claim").holds = true;
            next.expected.push(Word::Acquired);
        }
    }

    fn claims(&self) -> impl Iterator<Item = (usize, &Claim)> {
        let seats = self.seats.iter().enumerate();
        seats.filter_map(|(seat, client)| Some((seat, client.as_ref()?.claim.as_ref()?)))
    }

    /// Everybody hears what is said, and nothing else. Who was told that it is over goes.
    async fn listen(&mut self) {
        settle().await;
        let before = self.newest_token;
        let mut fresh = Vec::new();
        for seat in 0..self.seats.len() {
            let Some(client) = &mut self.seats[seat] else { continue };
            let (words, tokens) = client.hear();
            assert_eq!(words, std::mem::take(&mut client.expected), "what client {seat} hears");
            for token in tokens {
                if client.token.is_none() {
                    assert!(token > before, "token {token} after {before}");
                    assert!(!fresh.contains(&token), "token {token} twice");
                    fresh.push(token);
                }
                assert_eq!(*client.token.get_or_insert(token), token, "a session has one token");
            }
            if words.last() == Some(&Word::End) {
                self.drop_client(seat).await;
            }
        }
        self.newest_token = fresh.into_iter().fold(before, u64::max);
    }

    /// A client is gone, as if its process had been killed; its task at the server ends with that.
    async fn drop_client(&mut self, seat: usize) {
        self.end_claim(seat);
        let Some(Client { end, task, .. }) = self.seats[seat].take() else { return };
        drop(end);
        settle().await;
        assert!(task.is_finished(), "a session is served on whose client is gone");
        task.await.expect("a session's task does not panic");
    }
}

impl Client {
    /// Whether it is to hear that it is over: what it sends from now on is not looked at.
    fn is_told_off(&self) -> bool {
        self.expected.last() == Some(&Word::End)
    }

    fn waits(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| !claim.holds)
    }

    /// What the server has said, and the tokens in it.
    fn hear(&mut self) -> (Vec<Word>, Vec<u64>) {
        let (bytes, is_all) = self.end.hear();
        let (mut rest, mut words, mut tokens) = (&bytes[..], Vec::new(), Vec::new());
        while let Start::Frame(taken) = server_start(rest) {
            words.push(match rest[0] {
                0x11 => Word::Waiting,
                0x12 => {
                    tokens.push(rest[1..9].iter().fold(0, |number, &byte| number << 8 | u64::from(byte)));
                    Word::Acquired
                }
                _ => Word::Error(rest[1]),
            });
            rest = &rest[taken..];
        }
        assert!(rest.is_empty(), "frames are said whole: {rest:02x?}");
        words.extend(is_all.then_some(Word::End));
        (words, tokens)
    }
}

impl Claim {
    const fn deadline_ms(&self) -> u64 {
        self.last_seen_ms + self.lease_ms
    }
}

/// An `ACQUIRE` for one of a few locks, with a lease of some length.
fn acquire(choice: u8) -> Vec<u8> {
    let name = ["a", "b", "a/b", "\u{0}é"][usize::from(choice & 3)];
    let lease_ms = 1_u32 << (choice >> 2 & 31);
    [&[0x01, 0x01][..], &lease_ms.to_be_bytes(), &[0, u8::try_from(name.len()).unwrap_or_default()], name.as_bytes()]
        .concat()
}

/// A name for a path, each of its bytes as a number.
pub(crate) fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |path, byte| path + &format!("%{byte:02x}"))
}
