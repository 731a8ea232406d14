//! The measuring client: blocking sockets and one thread, so that nothing but the server is measured.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::wire::{ClientFrame, ServerFrame, decode_server};
use monolock_core::{Lease, LockNameRef};
use socket2::SockRef;

/// How soon one handover follows the other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// At once: the cores are awake.
    Hot,
    /// After a pause: the cores have gone to sleep.
    Idle,
}

impl Pace {
    pub(crate) const ALL: [Self; 2] = [Self::Hot, Self::Idle];

    const fn pause(self) -> Duration {
        match self {
            Self::Hot => Duration::ZERO,
            Self::Idle => Duration::from_millis(2),
        }
    }

    /// With pauses a round is kept short.
    const fn share(self, handovers: usize) -> usize {
        match self {
            Self::Hot => handovers,
            Self::Idle => handovers.div_ceil(5),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hot => f.write_str("one after the other"),
            Self::Idle => f.write_str("after 2 ms of rest"),
        }
    }
}

/// Measures handovers of one lock from one connection to the next, and gives their median.
pub(crate) fn handovers(server: SocketAddr, pace: Pace, count: usize) -> io::Result<Duration> {
    let mut times = Vec::new();
    let mut holder = claim(server)?;
    expect_acquired(&mut holder)?;
    for _ in 0..pace.share(count) {
        let mut waiter = claim(server)?;
        expect_waiting(&mut waiter)?;
        if !pace.pause().is_zero() {
            thread::sleep(pace.pause());
        }
        let start = Instant::now();
        drop(holder);
        expect_acquired(&mut waiter)?;
        times.push(start.elapsed());
        holder = waiter;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn claim(server: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    // Closing sends a reset, so that no port of a past round is kept from the next.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let name = LockNameRef::new("bench").expect("the name is valid");
    let mut frame = Vec::new();
    ClientFrame::Acquire { lease: Lease::MAX, name }.encode(&mut frame);
    stream.write_all(&frame)?;
    Ok(stream)
}

fn expect_waiting(stream: &mut TcpStream) -> io::Result<()> {
    let mut frame = [0; 1];
    stream.read_exact(&mut frame)?;
    match decode_server(&frame) {
        Ok(Some((ServerFrame::Waiting, _))) => Ok(()),
        other => Err(io::Error::other(format!("WAITING was expected, and {other:?} came"))),
    }
}

fn expect_acquired(stream: &mut TcpStream) -> io::Result<()> {
    let mut frame = [0; 9];
    stream.read_exact(&mut frame)?;
    match decode_server(&frame) {
        Ok(Some((ServerFrame::Acquired { .. }, _))) => Ok(()),
        other => Err(io::Error::other(format!("ACQUIRED was expected, and {other:?} came"))),
    }
}
