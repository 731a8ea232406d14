//! Redis: `SET NX PX`, and a script that deletes what is still one's own. Waiting is polling, or listening for the
//! release.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::{find, free_port, loopback, unexpected, version, wait_for};
use crate::contest::Contender;
use crate::process::Kept;
use crate::target::scratch;

/// Between two tries of one that polls: few programs ask as often.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A listener that has missed the release asks by itself after so long.
const LONGEST_SILENCE: Duration = Duration::from_millis(100);

const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('del',KEYS[1]) redis.call('publish',KEYS[1],'') return 1 end return 0";

/// The same, where nobody listens.
const RELEASE_QUIETLY: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

#[derive(Debug)]
pub(super) struct Redis {
    program: PathBuf,
    port: u16,
    process: Kept,
    _directory: TempDir,
}

impl Redis {
    pub(super) fn start() -> io::Result<Self> {
        let program = find("redis-server", "redis-server", &[])?;
        let directory = scratch()?;
        let port = free_port()?;
        let mut command = Command::new(&program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Kept(command.spawn()?);
        wait_for("redis-server", port, &mut process)?;
        Ok(Self { program, port, process, _directory: directory })
    }

    pub(super) fn version(&self) -> String {
        debug_assert!(self.process.0.id() > 0, "it runs");
        version(&self.program)
    }

    pub(super) fn polling(&self) -> io::Result<Box<dyn Contender>> {
        Ok(Box::new(Owner::new(Connection::open(self.port)?, None)?))
    }

    pub(super) fn subscribed(&self) -> io::Result<Box<dyn Contender>> {
        let mut news = Connection::open(self.port)?;
        news.send(&["SUBSCRIBE", "subscribed"])?;
        news.reply()?;
        Ok(Box::new(Owner::new(Connection::open(self.port)?, Some(news))?))
    }
}

/// One that wants the lock.
struct Owner {
    connection: Connection,
    /// Where releases are heard of.
    news: Option<Connection>,
    name: &'static str,
    token: String,
    script: String,
    granted: bool,
}

impl Owner {
    fn new(mut connection: Connection, news: Option<Connection>) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (name, script) = if news.is_some() { ("subscribed", RELEASE) } else { ("polled", RELEASE_QUIETLY) };
        connection.send(&["SCRIPT", "LOAD", script])?;
        let script = connection.reply()?.ok_or_else(|| unexpected("no hash of a script"))?;
        let token = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        Ok(Self { connection, news, name, token, script, granted: false })
    }

    fn attempt(&mut self) -> io::Result<bool> {
        self.connection.send(&["SET", self.name, &self.token, "NX", "PX", "60000"])?;
        Ok(self.connection.reply()?.is_some())
    }
}

impl Contender for Owner {
    fn ask(&mut self) -> io::Result<()> {
        self.granted = self.attempt()?;
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        while !self.granted {
            match &mut self.news {
                Some(news) => news.skip_what_has_come()?,
                None => thread::sleep(POLL_INTERVAL),
            }
            self.granted = self.attempt()?;
        }
        Ok(())
    }

    fn release(&mut self) -> io::Result<()> {
        self.granted = false;
        self.connection.send(&["EVALSHA", &self.script, "1", self.name, &self.token])?;
        self.connection.reply().map(|_| ())
    }
}

/// RESP, as much of it as is needed.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(loopback(port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut bytes = Vec::new();
        write!(bytes, "*{}\r\n", words.len())?;
        for word in words {
            write!(bytes, "${}\r\n{word}\r\n", word.len())?;
        }
        self.0.get_mut().write_all(&bytes)
    }

    /// The next reply: a string, a status or a number in words, `None` for nil. Of an array the last of its elements.
    fn reply(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.trim_end();
        let Some((kind, rest)) = line.split_at_checked(1) else { return Err(unexpected("the end")) };
        match kind {
            "+" | ":" => Ok(Some(rest.to_owned())),
            "$" | "*" if rest == "-1" => Ok(None),
            "$" => {
                let length: usize = rest.parse().map_err(|_| unexpected(line))?;
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(length);
                String::from_utf8(bytes).map(Some).map_err(io::Error::other)
            }
            "*" => {
                let count: usize = rest.parse().map_err(|_| unexpected(line))?;
                (0..count).try_fold(None, |_, _| self.reply())
            }
            _ => Err(unexpected(line)),
        }
    }

    /// Waits for news, not for ever, and reads all that there is.
    fn skip_what_has_come(&mut self) -> io::Result<()> {
        self.0.get_ref().set_read_timeout(Some(LONGEST_SILENCE))?;
        match self.0.fill_buf().map(<[u8]>::len) {
            Ok(0) => Err(unexpected("the end")),
            Ok(bytes) => {
                self.0.consume(bytes);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
