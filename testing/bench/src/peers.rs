//! What people would use instead, from Debian's packages, at its best for this purpose.
//!
//! Data lies in memory and nothing is synchronised to a disk, since it is not disks that are compared. Redis and
//! PostgreSQL are spoken to in their own protocols over blocking sockets, as lean as monolock's client here, and
//! PostgreSQL with prepared statements; etcd by gRPC. Connections stay open: a peer is not charged for connecting,
//! while monolock is, whose connection is the claim.

mod etcd;
mod postgres;
mod redis;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::contest::Contender;
use crate::process::Kept;

/// How long a peer may take for its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a peer that does not say that somebody is queued has for queueing.
const SETTLING: Duration = Duration::from_millis(2);

/// A way to get a lock from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    RedisPolling,
    RedisPubSub,
    Etcd,
    Postgres,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::RedisPolling, Self::RedisPubSub, Self::Etcd, Self::Postgres];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RedisPolling => "Redis, polling each ms",
            Self::RedisPubSub => "Redis, pub/sub",
            Self::Etcd => "etcd",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// The running peers.
#[derive(Debug)]
pub(crate) struct Peers {
    redis: redis::Redis,
    etcd: etcd::Etcd,
    postgres: postgres::Postgres,
}

impl Peers {
    /// Starts all of them.
    ///
    /// # Errors
    /// Which one is not installed or does not start.
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { redis: redis::Redis::start()?, etcd: etcd::Etcd::start()?, postgres: postgres::Postgres::start()? })
    }

    /// A new contender for the one lock of this way.
    pub(crate) fn contender(&self, way: Way) -> io::Result<Box<dyn Contender>> {
        match way {
            Way::RedisPolling => self.redis.polling(),
            Way::RedisPubSub => self.redis.subscribed(),
            Way::Etcd => self.etcd.contender(),
            Way::Postgres => self.postgres.contender(),
        }
    }

    /// What each of them says that it is.
    pub(crate) fn versions(&self) -> Vec<String> {
        vec![self.redis.version(), self.etcd.version(), self.postgres.version()]
    }
}

/// The program of a peer: in the search path, or where else Debian has it.
fn find(program: &str, package: &str, elsewhere: &[PathBuf]) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = elsewhere.iter().cloned().chain(std::env::split_paths(&path));
    let mut candidates =
        directories.chain(["/usr/bin".into(), "/usr/sbin".into()]).map(|directory| directory.join(program));
    candidates
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| io::Error::other(format!("{program} is not installed; `apt-get install {package}` installs it")))
}

/// A port of loopback that nobody had a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Waits until somebody listens.
fn wait_for(name: &str, port: u16, process: &mut Kept) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(loopback(port)).is_err() {
        if let Some(status) = process.0.try_wait()? {
            return Err(io::Error::other(format!("{name} ended at its start with {status}")));
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("{name} does not listen within {PATIENCE:?}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The first line that a program says of its version.
fn version(program: &Path) -> String {
    let said = Command::new(program).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or_default().to_owned()
}

fn unexpected(what: &str) -> io::Error {
    io::Error::other(format!("an unexpected answer: {what}"))
}
