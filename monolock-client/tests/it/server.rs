//! A server that does what it is told: each test plays its part on a thread, frame by frame.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolock_client::Timestamp;
use monolock_client::clock::{Clock, SystemClock};

/// How long the scripted server waits for what must come. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Server {
    listener: TcpListener,
    #[cfg(feature = "tls")]
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Server {
    pub(crate) fn bind() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    #[cfg(feature = "tls")]
    pub(crate) fn bind_tls(config: rustls::ServerConfig) -> Self {
        Self { tls: Some(Arc::new(config)), ..Self::bind() }
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Plays the server's part on a thread of its own; [`Play::finish`] waits for its end.
    pub(crate) fn play(self, part: impl FnOnce(&Self) + Send + 'static) -> Play {
        let address = self.address();
        let (ended, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            // Dropped at the end of the part, however it ends.
            let _ended = ended;
            part(&self);
        });
        Play { address, thread, end }
    }

    pub(crate) fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer {
            stream,
            #[cfg(feature = "tls")]
            tls: self.tls.clone().map(|config| rustls::ServerConnection::new(config).unwrap()),
        }
    }

    /// Accepts a connection and reads its `ACQUIRE`.
    pub(crate) fn accept_claim(&self) -> Peer {
        let mut peer = self.accept();
        peer.reads_acquire();
        peer
    }
}

pub(crate) struct Play {
    pub(crate) address: String,
    thread: JoinHandle<()>,
    end: mpsc::Receiver<()>,
}

impl Play {
    #[track_caller]
    pub(crate) fn finish(self) {
        let waited = self.end.recv_timeout(PATIENCE * 2);
        assert_eq!(waited, Err(RecvTimeoutError::Disconnected), "the server still waits for its client");
        self.thread.join().expect("the server's part was played to its end");
    }
}

pub(crate) struct Peer {
    stream: TcpStream,
    #[cfg(feature = "tls")]
    tls: Option<rustls::ServerConnection>,
}

impl Read for Peer {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            // A process that was stopped and goes on: no timeout has passed.
            match self.try_read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return rustls::Stream::new(tls, &mut self.stream).write(bytes);
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return rustls::Stream::new(tls, &mut self.stream).flush();
        }
        self.stream.flush()
    }
}

impl Peer {
    fn try_read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return rustls::Stream::new(tls, &mut self.stream).read(bytes);
        }
        self.stream.read(bytes)
    }

    /// Reads an `ACQUIRE`: the lease in milliseconds and the name.
    pub(crate) fn reads_acquire(&mut self) -> (u32, String) {
        let mut head = [0; 8];
        self.read_exact(&mut head).unwrap();
        assert_eq!(head[..2], [0x01, 1]);
        let lease_ms = u32::from_be_bytes(head[2..6].try_into().unwrap());
        let mut name = vec![0; usize::from(u16::from_be_bytes([head[6], head[7]]))];
        self.read_exact(&mut name).unwrap();
        (lease_ms, String::from_utf8(name).unwrap())
    }

    pub(crate) fn reads_heartbeat(&mut self) {
        let mut byte = [0];
        self.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0x02]);
    }

    /// Reads heartbeats, answering none, until the client closes.
    pub(crate) fn reads_to_the_end(&mut self) {
        let mut bytes = [0; 64];
        loop {
            match self.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => assert!(bytes[..read].iter().all(|byte| *byte == 0x02)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the client did not close: {error}"),
            }
        }
    }

    /// Reads whatever comes until the connection ends in any way.
    pub(crate) fn drains(&mut self) {
        let mut bytes = [0; 512];
        loop {
            match self.read(&mut bytes) {
                Ok(1..) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("the client did not close: {error}")
                }
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Answers every heartbeat with this until the client closes; says how many there were.
    pub(crate) fn answers_to_the_end(&mut self, reply: &[u8]) -> usize {
        let (mut bytes, mut beats) = ([0; 1], 0);
        while matches!(self.read(&mut bytes), Ok(1)) {
            beats += 1;
            if self.write_all(reply).and_then(|()| self.flush()).is_err() {
                break;
            }
        }
        beats
    }

    /// Lets so many quarters of the lease pass by a clock that stands still otherwise, and answers the heartbeat of
    /// each.
    ///
    /// The clock moves on only when a heartbeat has come, and that comes only when the reply before has been taken in.
    /// So at any look at it at most three quarters have passed since the sending of what was last confirmed: no
    /// machine is too busy to keep such a lock.
    pub(crate) fn answers_beats(&mut self, clock: &StandingClock, lease: Duration, quarters: usize, reply: &[u8]) {
        for _ in 0..quarters {
            self.reads_beat(clock, lease);
            self.sends(reply);
        }
    }

    /// Lets a quarter of the lease pass by a clock that stands still otherwise, and reads the heartbeat that is due
    /// then: the client has taken in the reply before it.
    pub(crate) fn reads_beat(&mut self, clock: &StandingClock, lease: Duration) {
        clock.advance(lease / 4);
        self.reads_heartbeat();
    }

    /// Sends, to a client that may be gone already.
    pub(crate) fn sends(&mut self, bytes: &[u8]) {
        let _ = self.write_all(bytes).and_then(|()| self.flush());
    }

    pub(crate) fn half_closes(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes with a reset.
    pub(crate) fn resets(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

#[cfg(feature = "tls")]
impl Peer {
    /// Answers the client's part of the handshake until that is done.
    pub(crate) fn shakes_hands(&mut self) -> io::Result<()> {
        let tls = self.tls.as_mut().unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut self.stream)?;
        }
        tls.complete_io(&mut self.stream).map(drop)
    }

    /// Reads the beginning of a handshake that this server will not go on with.
    pub(crate) fn reads_client_hello(&mut self) {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).unwrap();
        assert_eq!(head[0], 0x16);
    }

    /// Answers the client's first flight with its own and these words, and ends the connection, all in one go.
    pub(crate) fn shakes_hands_saying(&mut self, words: &[u8]) {
        let tls = self.tls.as_mut().unwrap();
        while !tls.wants_write() {
            tls.read_tls(&mut self.stream).unwrap();
            tls.process_new_packets().unwrap();
        }
        tls.writer().write_all(words).unwrap();
        tls.send_close_notify();
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).unwrap();
        }
        self.stream.write_all(&flight).unwrap();
    }

    pub(crate) const fn tls(&self) -> &rustls::ServerConnection {
        self.tls.as_ref().unwrap()
    }

    /// What goes over the wire for this.
    pub(crate) fn encrypts(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (tls, mut encrypted) = (self.tls.as_mut().unwrap(), Vec::new());
        tls.writer().write_all(bytes).unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut encrypted).unwrap();
        }
        encrypted
    }

    /// Sends past TLS, to a client that may be gone already; says whether it still takes it.
    pub(crate) fn sends_raw(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Reads heartbeats, answering none, until the client says farewell.
    pub(crate) fn reads_to_the_farewell(&mut self) {
        let mut bytes = Vec::new();
        // An end without a farewell would be an error.
        self.read_to_end(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0x02));
    }

    pub(crate) fn says_farewell(&mut self) {
        self.tls.as_mut().unwrap().send_close_notify();
        self.flush().unwrap();
    }
}

/// An address that nobody listens on: it is bound for as long as this is there, so nobody else can be given it.
pub(crate) struct DeadAddress(socket2::Socket);

impl DeadAddress {
    pub(crate) fn bind() -> Self {
        Self(bound_socket())
    }

    pub(crate) fn address(&self) -> String {
        address_of(&self.0).to_string()
    }
}

/// A listener whose queue is full: connecting to it goes unanswered, as to a black hole.
pub(crate) struct BlackHole {
    address: SocketAddr,
    _listener: socket2::Socket,
    _filling: Vec<TcpStream>,
}

impl BlackHole {
    pub(crate) fn open() -> Self {
        let listener = bound_socket();
        listener.listen(1).unwrap();
        let address = address_of(&listener);
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
        let filling = std::iter::from_fn(|| connect().ok()).take(16).collect();
        Self { address, _listener: listener, _filling: filling }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }
}

fn bound_socket() -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket
}

fn address_of(socket: &socket2::Socket) -> SocketAddr {
    socket.local_addr().unwrap().as_socket().unwrap()
}

pub(crate) const WAITING: &[u8] = &[0x11];

pub(crate) fn acquired(token: u64) -> Vec<u8> {
    [&[0x12][..], &token.to_be_bytes()].concat()
}

pub(crate) fn error(code: u8) -> Vec<u8> {
    vec![0x13, code, 3, b'w', b'h', b'y']
}

/// The system's clock with leaps that a test makes it take: a machine that slept.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeapingClock {
    leapt: Arc<AtomicU64>,
}

impl LeapingClock {
    pub(crate) fn leap(&self, duration: Duration) {
        self.leapt.fetch_add(u64::try_from(duration.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for LeapingClock {
    fn now(&self) -> Timestamp {
        SystemClock::default().now().saturating_add(Duration::from_nanos(self.leapt.load(Ordering::SeqCst)))
    }
}

/// A clock that stands still until it is told to move on: however busy the machine, nothing in a test comes too late by
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StandingClock {
    nanos: Arc<AtomicU64>,
    started: Arc<OnceLock<Instant>>,
}

impl StandingClock {
    /// From now on it stands still no more.
    pub(crate) fn start(&self) {
        self.started.set(Instant::now()).unwrap();
    }

    pub(crate) fn advance(&self, duration: Duration) {
        self.nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        let runs = self.started.get().map_or(Duration::ZERO, Instant::elapsed);
        Timestamp::from_nanos(self.nanos.load(Ordering::SeqCst)).saturating_add(runs)
    }
}

/// What several threads noted, in order.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}
