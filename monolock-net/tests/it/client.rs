//! A client of raw bytes.

use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;

/// How long a client waits for what must come. No passing test comes near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const HEARTBEAT: [u8; 1] = [0x02];

/// A lease that no test outlives in real time.
pub(crate) const LONG: u32 = 3_600_000;

#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
}

/// What a client reads: a frame, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Waiting,
    Acquired(u64),
    Error(u8, String),
    End,
    Reset,
}

/// The ways in which a client lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    Close,
    HalfClose,
    Reset,
}

impl Leave {
    pub(crate) const ALL: [Self; 3] = [Self::Close, Self::HalfClose, Self::Reset];
}

/// An `ACQUIRE`, in bytes.
pub(crate) fn acquire(name: impl AsRef<[u8]>, lease_ms: u32) -> Vec<u8> {
    let name = name.as_ref();
    let mut frame = vec![0x01, 0x01];
    frame.extend_from_slice(&lease_ms.to_be_bytes());
    frame.extend_from_slice(&u16::try_from(name.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(name);
    frame
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends what may not arrive.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn acquire(&mut self, name: impl AsRef<[u8]>, lease_ms: u32) {
        self.send(&acquire(name, lease_ms));
    }

    /// Sends heartbeats, and reads no answer, until nobody takes any more.
    pub(crate) fn fill(&mut self) {
        self.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let piece = HEARTBEAT.repeat(1 << 16);
        while self.stream.write_all(&piece).is_ok() {}
    }

    pub(crate) fn hear(&mut self) -> Heard {
        let [kind] = match self.read() {
            Ok(kind) => kind,
            Err(end) => return end,
        };
        match kind {
            0x11 => Heard::Waiting,
            0x12 => Heard::Acquired(u64::from_be_bytes(self.read().expect("a whole frame"))),
            0x13 => {
                let [code, reason_len] = self.read().expect("a whole frame");
                let mut reason = vec![0; usize::from(reason_len)];
                self.stream.read_exact(&mut reason).expect("a whole frame");
                Heard::Error(code, String::from_utf8(reason).unwrap())
            }
            other => panic!("no frame begins with {other:#04x}"),
        }
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], Heard> {
        let mut bytes = [0; N];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Heard::End),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Heard::Reset),
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &Heard) {
        assert_eq!(self.hear(), *expected);
    }

    #[track_caller]
    pub(crate) fn waiting(&mut self) {
        self.expect(&Heard::Waiting);
    }

    /// The token of the `ACQUIRED` that comes next.
    #[track_caller]
    pub(crate) fn acquired(&mut self) -> u64 {
        match self.hear() {
            Heard::Acquired(token) => token,
            other @ (Heard::Waiting | Heard::Error(..) | Heard::End | Heard::Reset) => {
                panic!("ACQUIRED was expected, not {other:?}")
            }
        }
    }

    #[track_caller]
    pub(crate) fn error(&mut self, code: u8, reason: &str) {
        self.expect(&Heard::Error(code, reason.to_owned()));
        self.expect(&Heard::End);
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) {
        self.expect(&Heard::End);
    }

    /// One heartbeat and its answer: whatever was under way to this client has come before it.
    #[track_caller]
    pub(crate) fn still_waits(&mut self) {
        self.send(&HEARTBEAT);
        self.waiting();
    }

    #[track_caller]
    pub(crate) fn still_holds(&mut self, token: u64) {
        self.send(&HEARTBEAT);
        assert_eq!(self.acquired(), token, "all ACQUIRED of a session carry one token");
    }

    /// That nothing lies in the socket.
    #[track_caller]
    pub(crate) fn hears_nothing(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let heard = self.stream.read(&mut [0]).map_err(|error| error.kind());
        self.stream.set_nonblocking(false).unwrap();
        assert_eq!(heard, Err(ErrorKind::WouldBlock));
    }

    /// All that comes until the end of the stream.
    pub(crate) fn hear_all(&mut self) -> Vec<u8> {
        let mut heard = Vec::new();
        self.stream.read_to_end(&mut heard).unwrap();
        heard
    }

    /// Says that nothing follows, and listens on.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Lets go. What is returned keeps a half-closed socket open.
    pub(crate) fn leave(self, how: Leave) -> Option<Self> {
        match how {
            Leave::Close => None,
            Leave::HalfClose => {
                self.half_close();
                Some(self)
            }
            Leave::Reset => {
                self.reset();
                None
            }
        }
    }

    /// Closes with a reset: nothing of the connection stays behind on either side.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(crate) const fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
