//! The server and whoever supervises it: what the service manager is told, and the sockets that it passes.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::mkfifo;
use tempfile::TempDir;

use crate::support::{
    Frame, PATIENCE, Process, Server, Session, http_get, logged_address, monolock, outcome, until, words,
};

/// A service manager's ear.
struct Manager {
    socket: UnixDatagram,
    place: String,
    _directory: TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("notify");
        let socket = UnixDatagram::bind(&place).unwrap();
        Self::over(socket, place.to_str().unwrap().to_owned(), directory)
    }

    fn over(socket: UnixDatagram, place: String, directory: TempDir) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket, place, _directory: directory }
    }

    fn start(&self, flags: &str) -> Server {
        let mut command = monolock(words("--listen 127.0.0.1:0"));
        command.args(words(flags)).env("NOTIFY_SOCKET", &self.place);
        Server::start_with(command)
    }

    /// The next message, line by line.
    #[track_caller]
    fn message(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message");
        str::from_utf8(&bytes[..length]).unwrap().lines().map(str::to_owned).collect()
    }

    /// The next message with this line in it.
    #[track_caller]
    fn expect(&self, line: &str) -> Vec<String> {
        loop {
            let message = self.message();
            if message.iter().any(|there| there == line) {
                return message;
            }
        }
    }

    fn expect_silence(&self) {
        self.socket.set_nonblocking(true).unwrap();
        let error = self.socket.recv(&mut [0; 4096]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "nothing was to be told yet");
        self.socket.set_nonblocking(false).unwrap();
    }
}

fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() * 1_000_000 + now.tv_nsec() / 1000
}

#[test]
fn the_service_manager_is_told_of_readiness_when_all_is_served_and_not_before() {
    let manager = Manager::new();
    let directory = tempfile::tempdir().unwrap();
    // The start waits for the token, so it is the test that says how long it takes.
    let token = directory.path().join("admin.token");
    mkfifo(&token, Mode::S_IRWXU).unwrap();
    let flags = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0 --log-format json";
    let mut command = monolock(words(flags));
    command.arg("--admin-token-file").arg(&token).env("NOTIFY_SOCKET", &manager.place);
    let process = Process::start(&mut command);
    // This returns when the server has it open too.
    let mut writer = fs::File::options().write(true).open(&token).unwrap();
    manager.expect_silence();
    writer.write_all(b"a-token-that-is-long-enough-to-be-one\n").unwrap();
    drop(writer);

    let message = manager.message();
    assert_eq!(message, ["READY=1", "STATUS=0 locks, 0 sessions"]);
    let address = logged_address(&process.stderr_line("listening"));
    let admin = logged_address(&process.stderr_line("admin API"));
    let ops = logged_address(&process.stderr_line("ops endpoints"));
    assert_eq!(http_get(ops, "/readyz"), "ok");
    TcpStream::connect(admin).unwrap();
    Server { process, address }.hold("jobs");
}

#[test]
fn a_service_manager_may_listen_at_a_name_that_is_in_no_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("monolock-test{}", directory.path().display());
    let socket = UnixDatagram::bind_addr(&UnixAddress::from_abstract_name(&name).unwrap()).unwrap();
    let manager = Manager::over(socket, format!("@{name}"), directory);
    let _server = manager.start("");
    manager.expect("READY=1");
}

#[test]
fn a_reload_and_a_stop_are_told_with_what_goes_on() {
    let manager = Manager::new();
    let mut server = manager.start("");
    manager.expect("READY=1");
    let holder = server.hold("jobs");
    let _waiter = server.queue("jobs");

    let before = monotonic_us();
    server.process.signal(Signal::SIGHUP);
    let message = manager.expect("RELOADING=1");
    let at: i64 = message[1].strip_prefix("MONOTONIC_USEC=").unwrap().parse().unwrap();
    assert!((before..=monotonic_us()).contains(&at), "{before} {message:?}");
    // systemd takes a reload whose instant is not after its own request for an older one.
    assert_eq!(manager.expect("READY=1"), ["READY=1", "STATUS=1 lock, 2 sessions"]);

    server.process.signal(Signal::SIGTERM);
    let message = manager.expect("STOPPING=1");
    assert!(message[1].starts_with("STATUS=stopping"), "{message:?}");
    drop(holder);
    assert_eq!(server.process.status(), 0);
}

#[test]
fn a_reload_that_fails_stands_in_the_status_until_one_succeeds() {
    let manager = Manager::new();
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("server.key");
    let certificate = directory.path().join("server.pem");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(&certificate, pair.cert.pem()).unwrap();
    fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let server = manager.start(&format!("--tls-cert {} --tls-key {}", certificate.display(), key.display()));
    manager.expect("READY=1");

    fs::rename(&key, directory.path().join("elsewhere")).unwrap();
    server.process.signal(Signal::SIGHUP);
    manager.expect("RELOADING=1");
    let status = manager.expect("READY=1").remove(1);
    assert!(status.contains("not reloaded") && status.contains("server.key"), "{status}");

    fs::rename(directory.path().join("elsewhere"), &key).unwrap();
    server.process.signal(Signal::SIGHUP);
    manager.expect("RELOADING=1");
    assert_eq!(manager.expect("READY=1")[1], "STATUS=0 locks, 0 sessions");
}

#[test]
fn a_watchdog_hears_that_the_server_lives_if_it_is_this_server_that_is_watched() {
    let manager = Manager::new();
    let mut command = monolock(words("--listen 127.0.0.1:0"));
    command.env("NOTIFY_SOCKET", &manager.place).env("WATCHDOG_USEC", "20000");
    let watched = Server::start_with(command);
    manager.expect("READY=1");
    for _ in 0..3 {
        assert_eq!(manager.message()[0], "WATCHDOG=1");
    }
    drop(watched);

    let manager = Manager::new();
    let mut command = monolock(words("--listen 127.0.0.1:0"));
    command.env("NOTIFY_SOCKET", &manager.place).env("WATCHDOG_USEC", "20000").env("WATCHDOG_PID", "1");
    let server = Server::start_with(command);
    manager.expect("READY=1");
    for _ in 0..3 {
        server.process.signal(Signal::SIGHUP);
        assert_eq!(manager.message()[0], "RELOADING=1");
        assert_eq!(manager.message()[0], "READY=1");
    }
}

#[test]
fn a_service_manager_that_is_gone_or_deaf_holds_nobody_up() {
    for place in ["/nowhere/at/all", "@nobody-listens-here", "vsock:2:1"] {
        let mut command = monolock(words("--listen 127.0.0.1:0"));
        let server = Server::start_with({
            command.env("NOTIFY_SOCKET", place);
            command
        });
        assert!(server.process.stderr_line("service manager").contains("NOTIFY_SOCKET"));
        server.hold("jobs");
    }
    let manager = Manager::new();
    // The system keeps a bounded number of messages for one who reads none.
    let crowd = UnixDatagram::unbound().unwrap();
    crowd.connect(&manager.place).unwrap();
    crowd.set_nonblocking(true).unwrap();
    while crowd.send(b"STATUS=noise\n").is_ok() {}
    let mut server = manager.start("");
    server.hold("jobs");
    server.process.signal(Signal::SIGTERM);
    assert_eq!(server.process.status(), 0);
}

/// A server to which sockets are passed, as a service manager does it: from descriptor 3 on, with the id of the very
/// process.
struct Passing {
    command: Command,
}

impl Passing {
    fn new(names: &str, sockets: [Option<OwnedFd>; 2], flags: &str) -> Self {
        let count = sockets.iter().flatten().count();
        let mut command = Command::new("sh");
        let program = monolock([] as [&str; 0]);
        for (variable, _) in program.get_envs() {
            command.env_remove(variable);
        }
        let script = "exec 3<&0 4<&1 </dev/null >/dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\"";
        command.args(["-c", script]).arg(program.get_program()).args(words(flags)).args(["--log-format", "json"]);
        command.env("LISTEN_FDS", count.to_string());
        if !names.is_empty() {
            command.env("LISTEN_FDNAMES", names);
        }
        let [first, second] = sockets.map(|socket| socket.map_or_else(Stdio::null, Stdio::from));
        command.stdin(first).stdout(second).stderr(Stdio::piped());
        Self { command }
    }

    fn locks(socket: &TcpListener, flags: &str) -> Self {
        Self::new("monolock", [Some(socket.try_clone().unwrap().into()), None], flags)
    }

    fn start(mut self) -> Process {
        Process::watch(self.command.spawn().unwrap())
    }

    fn serve(self) -> Server {
        let process = self.start();
        let address = logged_address(&process.stderr_line("listening"));
        Server { process, address }
    }

    #[track_caller]
    fn assert_refused(self, sentence: &str) {
        let mut process = self.start();
        assert_eq!(process.stderr_rest(), [format!("monolock: {sentence}")]);
        assert_eq!(process.status(), 2);
    }
}

fn socket() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn a_passed_socket_takes_the_place_of_the_address_and_waits_for_the_next_server() {
    let (socket, address) = socket();
    // It could not be listened on a second time.
    let flags = format!("--listen {address}");
    for name in ["monolock", "monolock.socket", "unknown", ""] {
        // Nobody serves yet, and nobody is refused.
        let mut early = Session::connect(address);
        early.acquire("jobs", 60_000);
        let passing = Passing::new(name, [Some(socket.try_clone().unwrap().into()), None], &flags);
        let mut server = passing.serve();
        assert_eq!(server.address, address, "{name:?}");
        early.expect_acquired();
        server.process.signal(Signal::SIGTERM);
        early.expect(Frame::Error(0x01));
        assert_eq!(server.process.status(), 0);
    }
}

#[test]
fn a_passed_socket_for_the_admin_api_is_as_good_as_a_bound_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let by_path = UnixListener::bind(&path).unwrap();
    let (by_address, address) = socket();
    let asked: [(OwnedFd, String); 2] =
        [(by_path.into(), format!("unix:{}", path.display())), (by_address.into(), address.to_string())];
    for (socket, place) in asked {
        let (locks, _) = self::socket();
        let mut server = Passing::new("monolock:admin", [Some(locks.into()), Some(socket)], "").serve();
        let _holder = server.hold("jobs");
        let listed = outcome(monolock(["locks", "--admin", &place]).env("NO_COLOR", "1"));
        assert!(listed.stdout.contains("jobs"), "{listed:?}");
        server.process.signal(Signal::SIGTERM);
        assert_eq!(server.process.status(), 0);
    }
    assert!(path.exists(), "the socket is another's to remove");
}

#[test]
fn a_passed_socket_for_health_is_as_good_as_a_bound_one() {
    let ((locks, _), (ops, address)) = (socket(), socket());
    let _server = Passing::new("monolock:ops", [Some(locks.into()), Some(ops.into())], "").serve();
    assert_eq!(http_get(address, "/readyz"), "ok");
}

#[test]
fn a_socket_of_no_use_is_named_with_its_number_its_name_and_what_is_wrong() {
    let (tcp, _) = socket();
    let tcp = || -> Option<OwnedFd> { Some(tcp.try_clone().unwrap().into()) };
    let directory = tempfile::tempdir().unwrap();
    let datagrams: OwnedFd = UdpSocket::bind("127.0.0.1:0").unwrap().into();
    let by_path: OwnedFd = UnixListener::bind(directory.path().join("socket")).unwrap().into();
    let (listener, address) = socket();
    let connected: OwnedFd = TcpStream::connect(address).unwrap().into();
    let file: OwnedFd = fs::File::create(directory.path().join("file")).unwrap().into();
    let of = |number: u32, name: &str, what: &str| {
        format!("of the sockets that were passed, descriptor {number} ({name:?}): {what}")
    };

    let is_tcp = "fd 3 is not a valid tcp socket";
    Passing::new("monolock", [Some(datagrams), None], "").assert_refused(&of(3, "monolock", is_tcp));
    Passing::new("monolock", [Some(by_path), None], "").assert_refused(&of(3, "monolock", is_tcp));
    Passing::new("monolock", [Some(file), None], "").assert_refused(&of(3, "monolock", "fd 3 is not a socket"));
    let name = "its name is none of monolock, admin and ops (FileDescriptorName=)";
    Passing::new("metrics", [tcp(), None], "").assert_refused(&of(3, "metrics", name));
    let twice = "there is one for that already, and one alone can be served";
    Passing::new("monolock:monolock", [tcp(), tcp()], "").assert_refused(&of(4, "monolock", twice));
    Passing::new("monolock", [tcp(), tcp()], "").assert_refused("LISTEN_FDNAMES has 1 names, and LISTEN_FDS is 2");
    // As Accept=yes in the unit would pass it.
    let sentence = "the service manager's socket for the locks is of no use: it does not listen";
    Passing::new("monolock", [Some(connected), None], "--log-level error").assert_refused(sentence);
    drop(listener);

    for (count, sentence) in [
        ("two", "LISTEN_FDS is \"two\", but must be a whole number"),
        ("1000000000", "LISTEN_FDS is 1000000000, but must be at most 16"),
    ] {
        let mut passing = Passing::new("", [tcp(), None], "");
        passing.command.env("LISTEN_FDS", count);
        passing.assert_refused(sentence);
    }
}

#[test]
fn an_open_admin_api_is_refused_on_a_passed_socket_too() {
    let ((locks, _), admin) = (socket(), TcpListener::bind("0.0.0.0:0").unwrap());
    let address = admin.local_addr().unwrap();
    let passing = Passing::new("monolock:admin", [Some(locks.into()), Some(admin.into())], "");
    passing.assert_refused(&format!(
        "--admin-listen {address} would let anybody who reaches it end claims: add --admin-token-file, or say --admin-insecure"
    ));
}

#[test]
fn what_was_passed_to_another_process_is_left_alone() {
    let mut command = monolock(words("--listen 127.0.0.1:0"));
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "whatever");
    Server::start_with(command).hold("jobs");
    let mut command = monolock(words("--listen 127.0.0.1:0"));
    // Nobody is addressed.
    command.env("LISTEN_FDS", "1");
    Server::start_with(command).hold("jobs");
}

#[test]
fn a_command_under_a_lock_is_passed_no_sockets() {
    let server = Server::start();
    let address = server.address.to_string();
    let mut command = monolock(["run", "--server", &address, "jobs", "--", "env"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "monolock");
    let environment = outcome(&mut command).stdout;
    assert!(environment.contains("MONOLOCK_TOKEN=") && !environment.contains("LISTEN_"), "{environment}");
}

#[test]
fn restarts_under_load_refuse_nobody_while_the_socket_is_held() {
    const RESTARTS: usize = 5;
    const CLIENTS: usize = 8;
    let (socket, address) = socket();
    let (stopped, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut server = Passing::locks(&socket, "").serve();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut own = 0_usize;
                    // All have had their turn before it is over: a last one, of the last server.
                    while !stopped.load(Ordering::Relaxed) {
                        let stream = TcpStream::connect(address);
                        assert!(stream.is_ok(), "a connection was not taken: {stream:?}");
                        let mut session = Session::over(stream.unwrap());
                        session.acquire("jobs", 60_000);
                        if let Frame::Acquired(_) = first_but_waiting(&mut session) {
                            own += 1;
                            turns.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    own
                })
            })
            .collect();
        let expect_turns = |count| {
            let there = turns.load(Ordering::Relaxed);
            until(|| turns.load(Ordering::Relaxed) >= there + count, || "nobody has a turn".to_owned());
        };
        for _ in 0..RESTARTS {
            expect_turns(CLIENTS);
            server.process.signal(Signal::SIGTERM);
            assert_eq!(server.process.status(), 0);
            // Between two servers as well.
            let mut between = Session::connect(address);
            between.acquire("between", 60_000);
            server = Passing::locks(&socket, "").serve();
            between.expect_acquired();
        }
        expect_turns(2 * CLIENTS);
        stopped.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 0, "each client has owned the lock");
        }
    });
}

fn first_but_waiting(session: &mut Session) -> Frame {
    loop {
        match session.frame() {
            Frame::Waiting => {}
            other @ (Frame::Acquired(_) | Frame::Error(_) | Frame::End) => return other,
        }
    }
}
