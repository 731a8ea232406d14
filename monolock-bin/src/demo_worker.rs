//! One worker of the demo: a process that claims the lock and says on stdout what happens to it.
//!
//! It drives the client's session machine over a plain socket, because the demo tells of single heartbeats and of the
//! instant at which `ACQUIRED` was read; the rules are those of every client. It lets go when its stdin ends.

use std::fmt;
use std::io::{self, Read as _, StdoutLock, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use monolock_client::session::{Event, Session, SessionConfig};
use monolock_core::{Timestamp, Token};

use crate::cli::DemoWorkerArgs;
use crate::failure::{FAILED, Failure};
use crate::own::{self, now};

/// The shortest time to wait for the socket: none at all would mean for ever.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

/// What a worker tells the demo, one line each. Instants are those of the machine's one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// It stands in the queue.
    Queued,
    /// It read its `ACQUIRED`.
    Granted { token: Token, at: Timestamp },
    /// It sent a heartbeat, or its `ACQUIRE`.
    Heartbeat { at: Timestamp },
    /// It is about to close its connection.
    Closed { at: Timestamp },
    /// It lost the lock, or its place in the queue.
    Lost,
}

/// Works until stdin ends or the lock is lost.
///
/// # Errors
/// The server cannot be reached, or the demo is gone.
pub(crate) fn work(args: DemoWorkerArgs) -> Result<ExitCode, Failure> {
    own::die_with_parent();
    claim(args).map_err(|error| Failure::new(FAILED, format_args!("demo worker: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn claim(args: DemoWorkerArgs) -> io::Result<()> {
    let DemoWorkerArgs { server, lease, name } = args;
    let mut stream = connect(server)?;
    let config = SessionConfig { name, lease, max_hold: None };
    let mut session = Session::new(now(), config);
    let (mut unsent, mut events) = (Vec::new(), Vec::new());
    while let Some(deadline) = session.next_deadline() {
        let present = now();
        session.transmit(present, &mut unsent);
        if !unsent.is_empty() {
            stream.write_all(&unsent)?;
            unsent.clear();
            report(&mut io::stdout().lock(), Report::Heartbeat { at: present })?;
            continue;
        }
        stream.set_read_timeout(Some(deadline.since(present).max(SHORTEST_WAIT)))?;
        let mut bytes = [0; 64];
        let read = stream.read(&mut bytes);
        let at = now();
        match read {
            Ok(0) => session.disconnected(at, None, &mut events),
            Ok(read) => session.receive(at, &bytes[..read], &mut events),
            Err(error) if is_passing(&error) => session.tick(at, &mut events),
            Err(error) => session.disconnected(at, Some(error.kind()), &mut events),
        }
        for event in events.drain(..) {
            let what = match event {
                Event::Queued => Report::Queued,
                Event::Granted { token } => Report::Granted { token, at },
                Event::Refused { .. } | Event::Lost { .. } => Report::Lost,
            };
            report(&mut io::stdout().lock(), what)?;
        }
    }
    Ok(())
}

/// Connects, and closes the connection when stdin ends.
fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let closing = stream.try_clone()?;
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // Locked, so that the end of the connection is not reported before its reason. The demo reads no further than
        // this line.
        let mut out = io::stdout().lock();
        let at = now();
        let _ = closing.shutdown(Shutdown::Both);
        report(&mut out, Report::Closed { at })
    });
    Ok(stream)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn report(out: &mut StdoutLock<'_>, report: Report) -> io::Result<()> {
    writeln!(out, "{report}")?;
    out.flush()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued => f.write_str("queued"),
            Self::Granted { token, at } => write!(f, "granted {token} {}", at.as_nanos()),
            Self::Heartbeat { at } => write!(f, "heartbeat {}", at.as_nanos()),
            Self::Closed { at } => write!(f, "closed {}", at.as_nanos()),
            Self::Lost => f.write_str("lost"),
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let instant = |text: &str| text.parse().map(Timestamp::from_nanos).map_err(|_| ());
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["queued"] => Ok(Self::Queued),
            ["granted", token, at] => {
                let token = token.parse().ok().and_then(Token::new).ok_or(())?;
                Ok(Self::Granted { token, at: instant(at)? })
            }
            ["heartbeat", at] => Ok(Self::Heartbeat { at: instant(at)? }),
            ["closed", at] => Ok(Self::Closed { at: instant(at)? }),
            ["lost"] => Ok(Self::Lost),
            _ => Err(()),
        }
    }
}
