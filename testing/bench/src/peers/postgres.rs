//! PostgreSQL: an advisory lock of a session, with prepared statements.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};
use tempfile::TempDir;

use super::{PATIENCE, SETTLING, find, free_port, loopback, unexpected, version, wait_for};
use crate::contest::Contender;
use crate::process::Kept;
use crate::target::scratch;

const SETTINGS: [&str; 9] = [
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "autovacuum=off",
    "shared_buffers=64MB",
    "max_connections=200",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "deadlock_timeout=10min",
];

#[derive(Debug)]
pub(super) struct Postgres {
    program: PathBuf,
    port: u16,
    process: Kept,
    _directory: TempDir,
}

impl Postgres {
    pub(super) fn start() -> io::Result<Self> {
        let newest = newest_programs();
        let program = find("postgres", "postgresql", &newest)?;
        let initdb = find("initdb", "postgresql", &newest)?;
        let directory = scratch()?;
        let data = directory.path().join("data");
        std::fs::create_dir(&data)?;
        // It refuses to be root.
        let user = if geteuid().is_root() { Some(unprivileged_user()?) } else { None };
        if let Some(user) = &user {
            for path in [directory.path(), &data] {
                chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            }
        }
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command
        };
        let arguments = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"];
        let made = command(&initdb).args(arguments).arg(&data).status()?;
        if !made.success() {
            return Err(io::Error::other(format!("initdb ended with {made}")));
        }
        let port = free_port()?;
        let mut server = command(&program);
        server.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        server.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let mut process = Kept(server.spawn()?);
        wait_for("postgres", port, &mut process)?;
        let deadline = Instant::now() + PATIENCE;
        while Connection::open(port).is_err() {
            if Instant::now() > deadline {
                return Err(io::Error::other("postgres takes no session"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { program, port, process, _directory: directory })
    }

    pub(super) fn version(&self) -> String {
        version(&self.program)
    }

    pub(super) fn contender(&self) -> io::Result<Box<dyn Contender>> {
        Connection::open(self.port).map(|connection| Box::new(connection) as Box<dyn Contender>)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, its children with it.
        if let Ok(pid) = i32::try_from(self.process.0.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
        }
        let _ = self.process.0.wait();
    }
}

/// Debian has each version in a directory of its own, outside the search path.
fn newest_programs() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    versions.sort_unstable_by_key(number);
    versions.into_iter().rev().map(|version| version.join("bin")).collect()
}

fn unprivileged_user() -> io::Result<User> {
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(user);
        }
    }
    Err(io::Error::other("postgres refuses to run as root, and there is no user postgres or nobody"))
}

/// A session, in the protocol of version 3.
struct Connection(TcpStream);

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(loopback(port))?;
        stream.set_nodelay(true)?;
        let mut connection = Self(stream);
        let mut startup = 196_608_u32.to_be_bytes().to_vec();
        startup.extend(b"user\0postgres\0database\0postgres\0\0");
        let length = u32::try_from(startup.len() + 4).map_err(io::Error::other)?;
        connection.0.write_all(&[&length.to_be_bytes()[..], &startup].concat())?;
        connection.until_ready()?;
        let lock = message(b'P', b"lock\0select pg_advisory_lock(1)\0\0\0");
        let unlock = message(b'P', b"unlock\0select pg_advisory_unlock(1)\0\0\0");
        connection.0.write_all(&[lock, unlock, message(b'S', b"")].concat())?;
        connection.until_ready()?;
        Ok(connection)
    }

    fn execute(&mut self, statement: &str) -> io::Result<()> {
        let bind = message(b'B', &[b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
        let execute = message(b'E', b"\0\0\0\0\0");
        self.0.write_all(&[bind, execute, message(b'S', b"")].concat())
    }

    /// Reads until the server is ready for the next.
    fn until_ready(&mut self) -> io::Result<()> {
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let [kind, length @ ..] = head;
            let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?;
            let mut body = vec![0; length.saturating_sub(4)];
            self.0.read_exact(&mut body)?;
            match kind {
                b'Z' => return Ok(()),
                b'E' => return Err(unexpected(&String::from_utf8_lossy(&body))),
                _ => {}
            }
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("messages are short");
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

impl Contender for Connection {
    fn ask(&mut self) -> io::Result<()> {
        self.execute("lock")?;
        // It does not say that it is queued. No sleep, so that cores which are to be awake stay so.
        let begun = Instant::now();
        while begun.elapsed() < SETTLING {
            thread::yield_now();
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.until_ready()
    }

    fn release(&mut self) -> io::Result<()> {
        self.execute("unlock")?;
        self.until_ready()
    }
}
