//! The scripted server: it does what a case says, when the case says it.
//!
//! Every byte that comes is stamped when it is read, by a thread that does nothing else; the answer is up to the case.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::Token;
use monolock_core::wire::{ClientFrame, ErrorCode, Phase, ServerFrame, decode_client};
use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, SockRef, Socket, Type};

use crate::outcome::{Outcome, ensure, fail};
use crate::timeline::Timeline;

/// How long a case waits for what it has to wait for and no rule sets a time to.
pub const SOON: Duration = Duration::from_secs(10);

/// A listening socket of the scripted server.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    peers: Receiver<Peer>,
    closing: Arc<AtomicBool>,
    timeline: Timeline,
}

impl Server {
    /// Listens on a free port.
    pub fn new(timeline: &Timeline) -> Self {
        Self::on("127.0.0.1:0", timeline).expect("the loopback has a free port")
    }

    /// Listens there.
    ///
    /// # Errors
    /// The system's.
    pub fn on(address: &str, timeline: &Timeline) -> io::Result<Self> {
        Ok(Self::listening(TcpListener::bind(address)?, None, timeline))
    }

    /// Listens on a free port and speaks TLS.
    pub fn with_tls(config: &Arc<ServerConfig>, timeline: &Timeline) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        Self::listening(listener, Some(Arc::clone(config)), timeline)
    }

    fn listening(listener: TcpListener, tls: Option<Arc<ServerConfig>>, timeline: &Timeline) -> Self {
        let address = listener.local_addr().expect("a listening socket has an address");
        let closing = Arc::new(AtomicBool::new(false));
        let (sender, peers) = channel();
        thread::spawn({
            let (closing, timeline) = (Arc::clone(&closing), timeline.clone());
            move || {
                for stream in listener.incoming() {
                    let at = Instant::now();
                    if closing.load(Ordering::Relaxed) {
                        return;
                    }
                    let Ok(stream) = stream else { continue };
                    if sender.send(Peer::new(at, stream, tls.as_ref(), &timeline)).is_err() {
                        return;
                    }
                }
            }
        });
        Self { address, peers, closing, timeline: timeline.clone() }
    }

    /// Where it listens, as a driver is told.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// The next connection.
    ///
    /// # Errors
    /// None comes in time.
    pub fn accept(&self, within: Duration) -> Outcome<Peer> {
        let by = Instant::now() + within;
        match self.peers.recv_timeout(within) {
            Ok(peer) => Ok(peer),
            Err(_) => fail(format!("expected a connection by {}; none came", self.timeline.clock(by))),
        }
    }

    /// The next connection, if one comes.
    pub fn poll(&self, within: Duration) -> Option<Peer> {
        self.peers.recv_timeout(within).ok()
    }

    /// Sees that nobody connects for so long.
    ///
    /// # Errors
    /// Somebody does.
    pub fn nobody(&self, during: Duration) -> Outcome {
        match self.peers.recv_timeout(during) {
            Ok(peer) => fail(format!("expected no connection; one came at {}", self.timeline.clock(peer.connected))),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which finds that it is to end.
        let _ = TcpStream::connect(self.address);
    }
}

/// A port that is taken and where nobody listens: connecting is refused, until [`RefusingPort::open`].
#[derive(Debug)]
pub struct RefusingPort {
    socket: Socket,
    address: SocketAddr,
}

impl RefusingPort {
    /// Takes a free port.
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("the loopback has a free port");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        Self { socket, address }
    }

    /// Where nobody listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Begins to listen.
    pub fn open(self, timeline: &Timeline) -> Server {
        self.socket.listen(128).expect("the port is ours");
        timeline.note(Instant::now(), "the port begins to listen");
        Server::listening(self.socket.into(), None, timeline)
    }
}

impl Default for RefusingPort {
    fn default() -> Self {
        Self::new()
    }
}

/// A port that answers no connection attempt: its queue is full and stays so.
#[derive(Debug)]
pub struct DeafPort {
    _listener: Socket,
    _waiting: Vec<Socket>,
    address: SocketAddr,
}

impl DeafPort {
    /// Takes a free port and fills its queue. `None` where the system answers nevertheless.
    pub fn new() -> Option<Self> {
        let RefusingPort { socket, address } = RefusingPort::new();
        socket.listen(0).ok()?;
        let mut waiting = Vec::new();
        for _ in 0..16 {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
            let connected = client.connect_timeout(&address.into(), Duration::from_millis(150));
            waiting.push(client);
            if connected.is_err() {
                return Some(Self { _listener: socket, _waiting: waiting, address });
            }
        }
        None
    }

    /// Where nobody answers.
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

/// One connection, from the server's side. Dropping it closes it.
#[derive(Debug)]
pub struct Peer {
    /// When it was accepted.
    pub connected: Instant,
    name: String,
    stream: Arc<TcpStream>,
    tls: Option<Arc<Mutex<ServerConnection>>>,
    arrivals: Receiver<Arrival>,
    timeline: Timeline,
}

/// What came, and when.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When it was read.
    pub at: Instant,
    /// What it is.
    pub what: Arrived,
}

/// What can come from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// `ACQUIRE`.
    Acquire {
        /// The lease that it asks for.
        lease_ms: u32,
        /// The lock.
        name: String,
    },
    /// `HEARTBEAT`.
    Heartbeat,
    /// The end of the stream, or its failure.
    Closed(String),
    /// No frame that a client may send there.
    Wrong(String),
}

impl Peer {
    fn new(connected: Instant, stream: TcpStream, tls: Option<&Arc<ServerConfig>>, timeline: &Timeline) -> Self {
        static PEERS: AtomicUsize = AtomicUsize::new(1);
        let name = format!("connection {}", PEERS.fetch_add(1, Ordering::Relaxed));
        timeline.note(connected, format!("{name} opened"));
        // Where it fails, answers are late, and the case says so.
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let tls = tls.map(|config| {
            Arc::new(Mutex::new(
                ServerConnection::new(Arc::clone(config)).expect("the server's TLS config is complete"),
            ))
        });
        let (sender, arrivals) = channel();
        let mut reader =
            Reader { stream: Arc::clone(&stream), tls: tls.clone(), undecoded: Vec::new(), phase: Phase::First };
        thread::spawn({
            let (name, timeline) = (name.clone(), timeline.clone());
            move || {
                loop {
                    for arrival in reader.read() {
                        timeline.note(arrival.at, format!("{name} -> {:?}", arrival.what));
                        let last = matches!(arrival.what, Arrived::Closed(_) | Arrived::Wrong(_));
                        if sender.send(arrival).is_err() || last {
                            return;
                        }
                    }
                }
            }
        });
        Self { connected, name, stream, tls, arrivals, timeline: timeline.clone() }
    }

    /// Whatever comes next, if it comes in time.
    pub fn next(&self, by: Instant) -> Option<Arrival> {
        self.arrivals.recv_timeout(by.saturating_duration_since(Instant::now())).ok()
    }

    /// The `ACQUIRE`: its arrival, lease and name.
    ///
    /// # Errors
    /// Something else comes, or nothing.
    pub fn expect_acquire(&self) -> Outcome<(Instant, u32, String)> {
        match self.next(Instant::now() + SOON) {
            Some(Arrival { at, what: Arrived::Acquire { lease_ms, name } }) => Ok((at, lease_ms, name)),
            other => fail(format!("expected ACQUIRE on {}; {}", self.name, self.came(other))),
        }
    }

    /// The next heartbeat, and when it came.
    ///
    /// # Errors
    /// Something else comes, or nothing.
    pub fn expect_heartbeat(&self, within: Duration) -> Outcome<Instant> {
        let by = Instant::now() + within;
        match self.next(by) {
            Some(Arrival { at, what: Arrived::Heartbeat }) => Ok(at),
            other => {
                let by = self.timeline.clock(by);
                fail(format!("expected HEARTBEAT on {} by {by}; {}", self.name, self.came(other)))
            }
        }
    }

    /// The end of the connection, and when it came. Heartbeats before it are passed over.
    ///
    /// # Errors
    /// It does not come in time.
    pub fn expect_close(&self, within: Duration) -> Outcome<Instant> {
        let by = Instant::now() + within;
        loop {
            match self.next(by) {
                Some(Arrival { at, what: Arrived::Closed(_) }) => return Ok(at),
                Some(Arrival { what: Arrived::Heartbeat, .. }) => {}
                other => {
                    let by = self.timeline.clock(by);
                    return fail(format!("expected {} to be closed by {by}; {}", self.name, self.came(other)));
                }
            }
        }
    }

    /// Sees that nothing comes for so long, and that the connection stays.
    ///
    /// # Errors
    /// Something comes.
    pub fn nothing(&self, during: Duration) -> Outcome {
        match self.next(Instant::now() + during) {
            None => Ok(()),
            other => fail(format!("expected nothing on {}; {}", self.name, self.came(other))),
        }
    }

    /// Answers every heartbeat at once for so long, and says when they came.
    ///
    /// # Errors
    /// The connection ends.
    pub fn answer(&self, during: Duration, reply: &[u8]) -> Outcome<Vec<Instant>> {
        let by = Instant::now() + during;
        let mut heartbeats = Vec::new();
        loop {
            match self.next(by) {
                Some(Arrival { at, what: Arrived::Heartbeat }) => {
                    heartbeats.push(at);
                    self.send(reply);
                }
                None => return Ok(heartbeats),
                other => {
                    return fail(format!("expected heartbeats on {}; {}", self.name, self.came(other)));
                }
            }
        }
    }

    /// Sends these bytes in one write.
    pub fn send(&self, bytes: &[u8]) {
        self.timeline.note(Instant::now(), format!("{} <- {}", self.name, hex(bytes)));
        let mut stream = &*self.stream;
        // A client that has gone shows in what comes from it, or does not.
        let _ = match &self.tls {
            None => stream.write_all(bytes),
            Some(tls) => {
                let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
                tls.writer().write_all(bytes).and_then(|()| flush(&mut tls, stream))
            }
        };
    }

    /// Sends these bytes in pieces, with a pause between them.
    pub fn send_pieces(&self, pieces: &[&[u8]], pause: Duration) {
        for (number, piece) in pieces.iter().filter(|piece| !piece.is_empty()).enumerate() {
            if number > 0 {
                thread::sleep(pause);
            }
            self.send(piece);
        }
    }

    /// Ends the sending side in good order.
    pub fn finish(&self) {
        self.timeline.note(Instant::now(), format!("{} <- end of the stream", self.name));
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.timeline.note(Instant::now(), format!("{} <- reset", self.name));
        let socket = SockRef::from(&*self.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
        // The reading thread has the socket too and would keep it open: a socket that is told to connect to nothing is
        // reset at once.
        let _ = rustix::net::connect_unspec(&*self.stream);
    }

    fn came(&self, arrival: Option<Arrival>) -> String {
        match arrival {
            None => "nothing came".to_owned(),
            Some(Arrival { at, what }) => format!("came {what:?} at {}", self.timeline.clock(at)),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The reading end of a connection.
struct Reader {
    stream: Arc<TcpStream>,
    tls: Option<Arc<Mutex<ServerConnection>>>,
    undecoded: Vec<u8>,
    phase: Phase,
}

impl Reader {
    /// Waits for bytes, and says what they are.
    fn read(&mut self) -> Vec<Arrival> {
        let mut bytes = [0; 4096];
        let read = (&*self.stream).read(&mut bytes);
        let at = Instant::now();
        let arrived = |what| vec![Arrival { at, what }];
        match read {
            Ok(0) => return arrived(Arrived::Closed("end of the stream".to_owned())),
            Ok(read) => {
                if let Err(error) = self.take_in(&bytes[..read]) {
                    return arrived(Arrived::Closed(error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Vec::new(),
            Err(error) => return arrived(Arrived::Closed(error.to_string())),
        }
        let mut arrivals = Vec::new();
        loop {
            let (what, taken) = match decode_client(self.phase, &self.undecoded) {
                Ok(None) => return arrivals,
                Ok(Some((ClientFrame::Heartbeat, taken))) => (Arrived::Heartbeat, taken),
                Ok(Some((ClientFrame::Acquire { lease, name }, taken))) => {
                    self.phase = Phase::Later;
                    (Arrived::Acquire { lease_ms: lease.as_millis(), name: name.as_str().to_owned() }, taken)
                }
                Err(error) => (Arrived::Wrong(format!("{error}: {}", hex(&self.undecoded))), self.undecoded.len()),
            };
            self.undecoded.drain(..taken);
            let wrong = matches!(what, Arrived::Wrong(_));
            arrivals.push(Arrival { at, what });
            if wrong {
                return arrivals;
            }
        }
    }

    fn take_in(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let Some(tls) = &self.tls else {
            self.undecoded.extend_from_slice(bytes);
            return Ok(());
        };
        let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            let processed = tls.process_new_packets();
            // An alert is sent where there is one to send.
            let flushed = flush(&mut tls, &self.stream);
            processed.map_err(|error| format!("TLS: {error}"))?;
            flushed.map_err(|error| error.to_string())?;
            let mut plain = [0; 4096];
            while let Ok(read @ 1..) = tls.reader().read(&mut plain) {
                self.undecoded.extend_from_slice(&plain[..read]);
            }
        }
        Ok(())
    }
}

fn flush(tls: &mut ServerConnection, mut stream: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut stream)?;
    }
    Ok(())
}

/// `WAITING`.
pub fn waiting() -> Vec<u8> {
    encoded(ServerFrame::Waiting)
}

/// `ACQUIRED` with this token.
pub fn acquired(token: u64) -> Vec<u8> {
    match Token::new(token) {
        Some(token) => encoded(ServerFrame::Acquired { token }),
        None => [&[0x12][..], &[0; 8]].concat(),
    }
}

/// `ERROR` with this code.
pub fn error(code: u8, reason: &str) -> Vec<u8> {
    encoded(ServerFrame::Error { code: ErrorCode(code), reason: reason.as_bytes() })
}

fn encoded(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let rest = if bytes.len() > 32 { " …" } else { "" };
    digits.join(" ") + rest
}

/// Sees that `at` is no later than `by`.
///
/// # Errors
/// It is.
pub fn ensure_by(timeline: &Timeline, what: &str, at: Instant, by: Instant) -> Outcome {
    ensure(at <= by, || format!("expected {what} by {}; it came at {}", timeline.clock(by), timeline.clock(at)))
}
