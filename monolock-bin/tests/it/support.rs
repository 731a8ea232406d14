//! Processes, raw sessions and a scripted server, each of which waits for what it expects, and not for ever.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use monolock_core::wire::{ClientFrame, ServerFrame, decode_server};
use monolock_core::{Lease, LockName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

/// Whatever is expected has come by then, on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The program, without the variables of whoever runs the tests.
pub(crate) fn monolock<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock"));
    for (variable, _) in env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(variable);
        }
    }
    command.args(arguments);
    command
}

/// Words of a command line, where none has a space.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// How a process ended, and what it had said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As a shell reports it.
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a process to its end.
pub(crate) fn outcome(command: &mut Command) -> Ended {
    outcome_within(PATIENCE, command)
}

/// Runs a process to its end, which may take so long.
pub(crate) fn outcome_within(limit: Duration, command: &mut Command) -> Ended {
    let mut process = Process::start(command);
    drop(process.stdin.take());
    let status = process.status_within(limit);
    let rest = |lines: &Receiver<String>| {
        let lines: Vec<String> = std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).collect();
        lines.into_iter().map(|line| line + "\n").collect()
    };
    Ended { status, stdout: rest(&process.stdout), stderr: rest(&process.stderr) }
}

/// A running process, which does not outlive this.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    ended: Receiver<ExitStatus>,
    status: Option<i32>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::watch(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Like [`start`](Self::start), with a stderr of the caller's.
    pub(crate) fn start_with_stderr(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::watch(command.stderr(stderr).spawn().unwrap())
    }

    /// A process that was started elsewhere.
    pub(crate) fn watch(mut child: Child) -> Self {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().map_or_else(|| channel().1, lines);
        let stderr = child.stderr.take().map_or_else(|| channel().1, lines);
        let (sender, ended) = channel();
        thread::spawn(move || sender.send(child.wait().unwrap()));
        Self { pid, stdin, stdout, stderr, ended, status: None }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Writes a line to its stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next line on stdout.
    pub(crate) fn line(&self) -> String {
        self.stdout.recv_timeout(PATIENCE).expect("a line on stdout")
    }

    /// Waits until nobody has its stdout any more, itself and its children.
    pub(crate) fn expect_stdout_closed(&self) {
        self.expect_stdout_closed_within(PATIENCE);
    }

    /// The same, where that may take so long.
    pub(crate) fn expect_stdout_closed_within(&self, limit: Duration) {
        assert_eq!(self.stdout.recv_timeout(limit), Err(RecvTimeoutError::Disconnected));
    }

    /// The first line on stderr that has `text` in it.
    pub(crate) fn stderr_line(&self, text: &str) -> String {
        self.stderr_line_of(&[text])
    }

    /// The first line on stderr that has one of the texts in it.
    pub(crate) fn stderr_line_of(&self, texts: &[&str]) -> String {
        loop {
            let line = self
                .stderr
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("none of {texts:?} on stderr: {error}"));
            if texts.iter().any(|text| line.contains(text)) {
                return line;
            }
        }
    }

    /// What it has said on stderr since it was last read, up to now.
    pub(crate) fn stderr_lines_so_far(&self) -> Vec<String> {
        self.stderr.try_iter().collect()
    }

    /// What it has said on stderr since it was last read, to the end. For a process that ends.
    pub(crate) fn stderr_rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.stderr.recv_timeout(PATIENCE).ok()).collect()
    }

    /// Waits for its end, and says how it ended, as a shell reports it.
    pub(crate) fn status(&mut self) -> i32 {
        self.status_within(PATIENCE)
    }

    fn status_within(&mut self, limit: Duration) -> i32 {
        *self.status.get_or_insert_with(|| {
            let status = self.ended.recv_timeout(limit).expect("the process ends");
            status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() && self.ended.try_recv().is_err() {
            // Its waiter has not reaped it, or has so just now.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Waits until a signal has stopped the process.
#[cfg(target_os = "linux")]
pub(crate) fn expect_stopped(pid: impl std::fmt::Display) {
    let deadline = Instant::now() + PATIENCE;
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "));
    while !is_stopped() {
        assert!(Instant::now() < deadline, "process {pid} does not stop");
        thread::yield_now();
    }
}

/// A running server on a free port.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(monolock(words("--listen 127.0.0.1:0")))
    }

    /// Reads the address out of the log.
    pub(crate) fn start_with(mut command: Command) -> Self {
        let process = Process::start(command.args(["--log-format", "json"]));
        let address = logged_address(&process.stderr_line("listening"));
        Self { process, address }
    }

    pub(crate) fn connect(&self) -> Session {
        Session::connect(self.address)
    }

    /// A session that owns the lock.
    pub(crate) fn hold(&self, name: &str) -> Session {
        let mut session = self.connect();
        session.acquire(name, 60_000);
        session.expect_acquired();
        session
    }

    /// A session in the lock's queue.
    pub(crate) fn queue(&self, name: &str) -> Session {
        self.queue_with(name, 60_000)
    }

    /// A session in the lock's queue, with this lease.
    pub(crate) fn queue_with(&self, name: &str, lease_ms: u32) -> Session {
        let mut session = self.connect();
        session.acquire(name, lease_ms);
        session.expect(Frame::Waiting);
        session
    }
}

/// A server that also shows what it counts, in `--ops-listen`.
pub(crate) struct Watched {
    pub(crate) server: Server,
    pub(crate) ops: SocketAddr,
}

impl Watched {
    pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        Self::start_with(monolock(arguments))
    }

    pub(crate) fn start_with(mut command: Command) -> Self {
        let server = Server::start_with({
            command.args(["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]);
            command
        });
        let ops = logged_address(&server.process.stderr_line("serving the ops endpoints"));
        Self { server, ops }
    }

    /// The value of a metric, by its name and labels as they are written.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = http_get(self.ops, "/metrics");
        let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().unwrap_or_else(|| panic!("no {name} in:\n{page}")).parse().unwrap()
    }

    /// Waits until a metric is as it should be.
    #[track_caller]
    pub(crate) fn expect_metric(&self, name: &str, is_right: impl Fn(f64) -> bool) {
        until(|| is_right(self.metric(name)), || format!("{name} is {}", self.metric(name)));
    }
}

/// Waits until something is so; says how it is instead, if it never is.
#[track_caller]
pub(crate) fn until(is_so: impl FnMut() -> bool, or: impl Fn() -> String) {
    until_within(PATIENCE, is_so, or);
}

/// The same, where that may take so long.
#[track_caller]
pub(crate) fn until_within(limit: Duration, mut is_so: impl FnMut() -> bool, or: impl Fn() -> String) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "{}", or());
        thread::sleep(Duration::from_millis(5));
    }
}

/// What is served at this path.
#[track_caller]
pub(crate) fn http_get(address: SocketAddr, path: &str) -> String {
    http(address, "GET", path)
}

/// The answer to a request that succeeds.
#[track_caller]
pub(crate) fn http(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{method} {path}: {answer}");
    body.to_owned()
}

/// The events in an audit log, of which every line is whole.
#[track_caller]
pub(crate) fn audit_events(log: &str) -> Vec<Value> {
    assert!(log.is_empty() || log.ends_with('\n'), "the last line is torn: {log:?}");
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Waits until a file has so many audit events in it, and says which.
#[track_caller]
pub(crate) fn expect_events(file: &Path, count: usize) -> Vec<Value> {
    // A line that is being written is not there yet.
    let whole = || {
        let log = std::fs::read_to_string(file).unwrap_or_default();
        log[..log.rfind('\n').map_or(0, |end| end + 1)].to_owned()
    };
    until(|| whole().lines().count() >= count, || format!("{count} events were expected in:\n{}", whole()));
    audit_events(&whole())
}

/// The events' names and locks, for a glance.
pub(crate) fn outline(events: &[Value]) -> Vec<String> {
    let word = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    events.iter().map(|event| format!("{} {}", word(event, "event"), word(event, "lock"))).collect()
}

/// Asserts that a `released` stands before the next `granted` of its lock, under the same token, and that there is one
/// for each.
#[track_caller]
pub(crate) fn assert_complete(events: &[Value]) {
    let mut holders = HashMap::new();
    for event in events {
        let (lock, token) = (event["lock"].as_str().unwrap(), &event["token"]);
        match event["event"].as_str().unwrap() {
            "granted" => assert_eq!(holders.insert(lock, token), None, "granted while held: {event}"),
            "released" => assert_eq!(holders.remove(lock), Some(token), "released by another: {event}"),
            _ => {}
        }
    }
    assert!(holders.is_empty(), "granted and never released: {holders:?}");
}

/// The address in the line that a server logs when it listens.
pub(crate) fn logged_address(line: &str) -> SocketAddr {
    let event: Value = serde_json::from_str(line).unwrap();
    event["address"].as_str().unwrap().parse().unwrap()
}

/// What a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Waiting,
    Acquired(u64),
    Error(u8),
    /// The end of the stream, in order or by a reset.
    End,
}

impl Frame {
    /// Takes the first whole frame off.
    pub(crate) fn take(unread: &mut Vec<u8>) -> Option<Self> {
        let (frame, bytes) = decode_server(unread).unwrap()?;
        let frame = match frame {
            ServerFrame::Waiting => Self::Waiting,
            ServerFrame::Acquired { token } => Self::Acquired(token.get()),
            ServerFrame::Error { code, .. } => Self::Error(code.0),
        };
        unread.drain(..bytes);
        Some(frame)
    }
}

/// An `ACQUIRE`, in bytes.
pub(crate) fn acquire(name: &str, lease_ms: u32) -> Vec<u8> {
    let (name, lease) = (LockName::new(name).unwrap(), Lease::from_millis(lease_ms).unwrap());
    let mut bytes = Vec::new();
    ClientFrame::Acquire { lease, name: name.as_name_ref() }.encode(&mut bytes);
    bytes
}

/// A raw connection to a server.
pub(crate) struct Session {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

impl Session {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    /// `None` where nobody listens any more.
    pub(crate) fn try_connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).ok().map(Self::over)
    }

    /// Lets go by a reset, as a process does that dies with words unread.
    pub(crate) fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub(crate) fn acquire(&mut self, name: &str, lease_ms: u32) {
        // A server that is stopping may have closed it; what it said about that is still to be read.
        let _ = self.stream.write_all(&acquire(name, lease_ms));
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn heartbeat(&mut self) {
        self.stream.write_all(&[0x02]).unwrap();
    }

    pub(crate) fn frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = Frame::take(&mut self.unread) {
                return frame;
            }
            let mut bytes = [0; 512];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Frame::End,
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Frame::End,
                // As a process has it that was stopped and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, frame: Frame) {
        assert_eq!(self.frame(), frame);
    }

    #[track_caller]
    pub(crate) fn expect_acquired(&mut self) -> u64 {
        match self.frame() {
            Frame::Acquired(token) => token,
            other @ (Frame::Waiting | Frame::Error(_) | Frame::End) => panic!("ACQUIRED was expected, {other:?} came"),
        }
    }

    /// Sends heartbeats and reads nothing, until no more fit.
    pub(crate) fn clog(&mut self) {
        // What does not fit now may fit when the server has read some; where that takes so long, both ways are full.
        self.stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        while let Ok(1..) = self.stream.write(&[0x02; 4096]) {}
    }
}

/// An address where nobody listens, nor will as long as this is there: its port is taken.
pub(crate) struct Nobody {
    pub(crate) address: SocketAddr,
    _socket: Socket,
}

impl Nobody {
    pub(crate) fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        Self { address: socket.local_addr().unwrap().as_socket().unwrap(), _socket: socket }
    }
}

/// A server of which the test itself says every word.
pub(crate) struct ScriptedServer {
    clients: Receiver<TcpStream>,
    pub(crate) address: SocketAddr,
}

/// A client's connection to a [`ScriptedServer`].
pub(crate) struct Claimant(TcpStream);

impl ScriptedServer {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, clients) = channel();
        thread::spawn(move || listener.incoming().map_while(Result::ok).try_for_each(|client| sender.send(client)));
        Self { clients, address }
    }

    /// Accepts the next client, which asks for the lock `name`.
    pub(crate) fn expect_claim(&self, name: &str) -> Claimant {
        let mut stream = self.clients.recv_timeout(PATIENCE).expect("a client");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = vec![0; 8 + name.len()];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!((bytes[0], &bytes[8..]), (0x01, name.as_bytes()));
        Claimant(stream)
    }
}

impl Claimant {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn waiting(&mut self) {
        self.send(&[0x11]);
    }

    pub(crate) fn acquired(&mut self) {
        self.send(&[0x12, 0, 0, 0, 0, 0, 0, 0, 41]);
    }

    pub(crate) fn error(&mut self, code: u8) {
        self.send(&[0x13, code, 0]);
    }

    /// Reads until the client has closed the connection.
    pub(crate) fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

/// The one line that a failure is told in.
#[track_caller]
pub(crate) fn assert_fails(command: &mut Command, status: i32, sentence: &str) {
    let expected = Ended { status, stdout: String::new(), stderr: format!("monolock: {sentence}\n") };
    assert_eq!(outcome(command), expected);
}

/// Whether the test's own process ignores a signal, and so do its children.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// Asserts that the texts stand in `story` in this order.
#[track_caller]
pub(crate) fn assert_in_order(story: &str, texts: &[impl AsRef<str> + Debug]) {
    let mut rest = story;
    for text in texts {
        let (_, after) =
            rest.split_once(text.as_ref()).unwrap_or_else(|| panic!("{text:?} is not, or too early, in:\n{story}"));
        rest = after;
    }
}
