//! Connections as the systems at both ends keep them: bytes in order or not at all, retransmission and stall, resets,
//! ends that nobody hears of.

use std::collections::VecDeque;
use std::io::ErrorKind;

use monolock_client::session::Session;
use monolock_core::SessionId;

use crate::clock::{MS, SECOND, True};
use crate::marks::mark;
use crate::watch::Watch;
use crate::world::{Event, World};

/// The index of a connection.
pub(crate) type ConnId = usize;

/// One of the two ends of a connection; as an index too.
pub(crate) type Side = usize;
pub(crate) const CLIENT: Side = 0;
pub(crate) const SERVER: Side = 1;

const FIRST_RETRY: u64 = 200 * MS;
const FIRST_SYN_RETRY: u64 = SECOND;
const LAST_RETRY: u64 = 8 * SECOND;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) host: usize,
    pub(crate) slot: usize,
    pub(crate) ends: [End; 2],
    /// From each end to the other.
    pub(crate) paths: [Path; 2],
    /// Nothing passes any more, in neither direction.
    pub(crate) dark: bool,
    /// Which of the server's lives took it in.
    pub(crate) life: u32,
    pub(crate) stage: Stage,
    /// What the server has read and not understood yet.
    pub(crate) unread: Vec<u8>,
    /// What the server is about to send.
    pub(crate) outbox: Vec<u8>,
    pub(crate) session: Option<Session>,
    pub(crate) watch: Watch,
}

/// What the server's task of a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The system has it; nobody has accepted it.
    Backlog,
    First,
    Attending(SessionId),
    /// The socket has failed; a holder's claim stands until its lease is out.
    Mute(SessionId),
    /// The `ERROR` is out; what comes is thrown away.
    Draining,
    Closed,
}

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each says something else that is true of a socket or not")]
pub(crate) struct End {
    /// The process has it open.
    pub(crate) open: bool,
    pub(crate) established: bool,
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) ended: bool,
    pub(crate) failed: Option<ErrorKind>,
    /// Somebody will look at it.
    pub(crate) is_called: bool,
    /// The end of the stream has been sent.
    shut: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Path {
    flight: VecDeque<(True, Packet)>,
    stalled: VecDeque<Packet>,
    /// The data of both, in order.
    bytes: VecDeque<u8>,
    last_arrival: True,
    stalled_since: True,
    retry_after: u64,
    /// Nothing more is sent on it.
    dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Syn,
    SynAck,
    Data(usize),
    Fin,
    Rst,
}

impl Conn {
    pub(crate) fn new(host: usize, slot: usize) -> Self {
        let mut conn = Self {
            host,
            slot,
            ends: [End::default(), End::default()],
            paths: [Path::default(), Path::default()],
            dark: false,
            life: 0,
            stage: Stage::Closed,
            unread: Vec::new(),
            outbox: Vec::new(),
            session: None,
            watch: Watch::default(),
        };
        conn.ends[CLIENT].open = true;
        conn
    }

    /// Whether an end has something for its process.
    pub(crate) fn is_readable(&self, side: Side) -> bool {
        let end = &self.ends[side];
        end.open && (!end.inbox.is_empty() || end.ended || end.failed.is_some())
    }
}

impl End {
    /// Takes up to so many bytes.
    pub(crate) fn read(&mut self, most: usize, into: &mut Vec<u8>) -> usize {
        let taken = self.inbox.len().min(most);
        into.extend(self.inbox.drain(..taken));
        taken
    }
}

impl World {
    /// Whether a packet would pass just now.
    fn passes(&self, id: ConnId, from: Side) -> bool {
        let conn = &self.conns[id];
        let host = &self.hosts[conn.host];
        !conn.dark && host.is_on_the_net() && self.server.is_on_the_net() && host.link.cut[from] == 0
    }

    /// Hands a packet to the system that sends it. A system whose machine is off sends nothing.
    pub(crate) fn send(&mut self, id: ConnId, from: Side, packet: Packet) {
        let path = &mut self.conns[id].paths[from];
        if path.dead {
            if let Packet::Data(bytes) = packet {
                path.bytes.truncate(path.bytes.len() - bytes);
            }
            return;
        }
        if packet == Packet::Rst {
            path.dead = true;
            path.give_up();
            // A reset is sent once and never again.
            if self.passes(id, from) && !self.rng.chance(self.loss) {
                self.launch(id, from, packet);
            }
            return;
        }
        if !path.stalled.is_empty() {
            path.stalled.push_back(packet);
        } else if self.passes(id, from) && !self.rng.chance(self.loss) {
            self.launch(id, from, packet);
        } else {
            self.marks.hit(mark!("packet lost"));
            if from == SERVER && matches!(packet, Packet::Data(_)) {
                self.marks.hit(mark!("reply lost"));
            }
            let first = if matches!(packet, Packet::Syn) { FIRST_SYN_RETRY } else { FIRST_RETRY };
            self.stall(id, from, packet, first);
        }
    }

    pub(crate) fn send_bytes(&mut self, id: ConnId, from: Side, bytes: &[u8]) {
        if bytes.is_empty() || self.conns[id].paths[from].dead || self.conns[id].ends[from].shut {
            return;
        }
        self.conns[id].paths[from].bytes.extend(bytes);
        self.send(id, from, Packet::Data(bytes.len()));
    }

    fn launch(&mut self, id: ConnId, from: Side, packet: Packet) {
        let conn = &mut self.conns[id];
        let link = &self.hosts[conn.host].link;
        let delay = link.delay[from] + self.rng.below(link.jitter + 1) + link.extra;
        let path = &mut conn.paths[from];
        let arrives = (self.t + delay).max(path.last_arrival);
        path.last_arrival = arrives;
        path.flight.push_back((arrives, packet));
        self.schedule(arrives, Event::Arrive { id, from });
    }

    fn stall(&mut self, id: ConnId, from: Side, packet: Packet, retry_after: u64) {
        let path = &mut self.conns[id].paths[from];
        path.stalled.push_back(packet);
        path.stalled_since = self.t;
        path.retry_after = retry_after;
        self.schedule(self.t + retry_after, Event::Retry { id, from });
    }

    /// The system tries again.
    pub(crate) fn retry(&mut self, id: ConnId, from: Side) {
        if self.conns[id].paths[from].stalled.is_empty() || self.conns[id].paths[from].dead {
            return;
        }
        let is_asleep = if from == CLIENT { self.hosts[self.conns[id].host].asleep } else { self.server.asleep };
        if self.passes(id, from) && !self.rng.chance(self.loss) {
            let stalled = std::mem::take(&mut self.conns[id].paths[from].stalled);
            for packet in stalled {
                self.launch(id, from, packet);
            }
            return;
        }
        let mut patience = self.plan.system_patience;
        if from == CLIENT {
            // Systems try for a quarter of an hour; a client whose process stands still must not lose its socket, and
            // thereby its claim, while it may still believe.
            patience = patience.max(u64::from(self.slots[self.conns[id].slot].plan.lease_ms) * 2 * MS);
        }
        let path = &mut self.conns[id].paths[from];
        if self.t - path.stalled_since > patience && !is_asleep {
            path.dead = true;
            path.give_up();
            self.marks.hit(mark!("system gave the peer up"));
            self.fail(id, from, ErrorKind::TimedOut);
            return;
        }
        path.retry_after = (path.retry_after * 2).min(LAST_RETRY);
        let mut again = path.retry_after;
        if self.healed {
            again = again.min(SECOND);
        }
        self.schedule(self.t + again, Event::Retry { id, from });
    }

    /// What was under way is there.
    pub(crate) fn arrive(&mut self, id: ConnId, from: Side) {
        let to = 1 - from;
        let conn = &mut self.conns[id];
        let Some(&(due, packet)) = conn.paths[from].flight.front() else { return };
        if due > self.t {
            return;
        }
        let receiver_is_on =
            if to == CLIENT { self.hosts[conn.host].is_on_the_net() } else { self.server.is_on_the_net() };
        if !receiver_is_on || conn.dark {
            // Nobody acknowledges it: it and what follows is sent again.
            let path = &mut conn.paths[from];
            let lost: Vec<Packet> = path.flight.drain(..).map(|(_, packet)| packet).collect();
            let stalled = std::mem::take(&mut path.stalled);
            if path.dead {
                path.bytes.clear();
                return;
            }
            let was_stalled = !stalled.is_empty();
            path.stalled = lost.into_iter().chain(stalled).collect();
            if !was_stalled {
                path.stalled_since = self.t;
                path.retry_after = FIRST_RETRY;
                self.schedule(self.t + FIRST_RETRY, Event::Retry { id, from });
            }
            return;
        }
        conn.paths[from].flight.pop_front();
        match packet {
            Packet::Syn => self.knocks(id),
            Packet::SynAck => self.answers(id),
            Packet::Data(bytes) => self.delivers(id, from, bytes),
            Packet::Fin => {
                if conn.ends[to].open {
                    conn.ends[to].ended = true;
                    self.call(id, to);
                }
            }
            Packet::Rst => {
                conn.paths[to].dead = true;
                conn.paths[to].give_up();
                self.fail(id, to, ErrorKind::ConnectionReset);
            }
        }
    }

    fn knocks(&mut self, id: ConnId) {
        if self.server.is_listening() {
            let life = self.server.life;
            let conn = &mut self.conns[id];
            conn.ends[SERVER].open = true;
            conn.ends[SERVER].established = true;
            conn.life = life;
            conn.stage = Stage::Backlog;
            self.server.conns.push(id);
            self.send(id, SERVER, Packet::SynAck);
            self.call(id, SERVER);
        } else {
            self.marks.hit(mark!("connection refused"));
            self.send(id, SERVER, Packet::Rst);
        }
    }

    fn answers(&mut self, id: ConnId) {
        if self.conns[id].ends[CLIENT].open {
            self.conns[id].ends[CLIENT].established = true;
            self.call(id, CLIENT);
        } else {
            self.send(id, CLIENT, Packet::Rst);
        }
    }

    fn delivers(&mut self, id: ConnId, from: Side, bytes: usize) {
        let to = 1 - from;
        let conn = &mut self.conns[id];
        let taken: Vec<u8> = conn.paths[from].bytes.drain(..bytes).collect();
        if conn.ends[to].open && conn.ends[to].failed.is_none() {
            conn.ends[to].inbox.extend(taken);
            self.call(id, to);
        } else {
            self.marks.hit(mark!("bytes for an end that is gone"));
            // Also from an end that had given up: its system knows of no connection any more.
            self.conns[id].paths[to].dead = false;
            self.send(id, to, Packet::Rst);
        }
    }

    /// The socket of one end fails.
    pub(crate) fn fail(&mut self, id: ConnId, side: Side, error: ErrorKind) {
        let end = &mut self.conns[id].ends[side];
        if end.open && end.failed.is_none() {
            end.failed = Some(error);
            if error == ErrorKind::ConnectionReset {
                end.inbox.clear();
            }
            self.call(id, side);
        }
    }

    /// Somebody is to look at an end, a little later.
    pub(crate) fn call(&mut self, id: ConnId, side: Side) {
        if std::mem::replace(&mut self.conns[id].ends[side].is_called, true) {
            return;
        }
        let after = 1 + self.rng.below(self.plan.read_lateness + 1);
        self.schedule(self.t + after, Event::Readable { id, side });
    }

    /// The process closes its end, or dies: then its system does.
    pub(crate) fn close(&mut self, id: ConnId, side: Side) {
        let end = &mut self.conns[id].ends[side];
        if !std::mem::replace(&mut end.open, false) {
            return;
        }
        let unread = !end.inbox.is_empty();
        let was_shut = end.shut;
        end.inbox = VecDeque::new();
        if end.failed.is_some() {
            return;
        }
        if !end.established {
            // An attempt to connect is called off.
            let path = &mut self.conns[id].paths[side];
            path.dead = true;
            path.give_up();
        } else if unread {
            // A system that throws bytes away says so.
            self.marks.hit(mark!("reset by a close with unread bytes"));
            self.send(id, side, Packet::Rst);
        } else if !was_shut {
            self.conns[id].ends[side].shut = true;
            self.send(id, side, Packet::Fin);
        }
    }

    /// The process says that it will send nothing more, and goes on reading.
    pub(crate) fn shut_sending(&mut self, id: ConnId, side: Side) {
        if !std::mem::replace(&mut self.conns[id].ends[side].shut, true) {
            self.send(id, side, Packet::Fin);
        }
    }

    /// The machine of this end loses its power: nobody hears of it.
    pub(crate) fn vanish(&mut self, id: ConnId, side: Side) {
        let conn = &mut self.conns[id];
        conn.ends[side].open = false;
        conn.ends[side].inbox.clear();
        conn.paths[side].stalled.clear();
        let left: usize = conn.paths[side].flight.iter().map(|&(_, packet)| packet.bytes()).sum();
        conn.paths[side].bytes.truncate(left);
    }
}

impl Path {
    pub(crate) fn is_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// What was not sent yet never is.
    fn give_up(&mut self) {
        let stalled: usize = self.stalled.iter().map(|packet| packet.bytes()).sum();
        self.stalled.clear();
        self.bytes.truncate(self.bytes.len() - stalled);
    }
}

impl Packet {
    const fn bytes(self) -> usize {
        match self {
            Self::Data(bytes) => bytes,
            Self::Syn | Self::SynAck | Self::Fin | Self::Rst => 0,
        }
    }
}
