//! The units under a real systemd, which is this machine's own: the first process of a container over this machine's
//! `/usr`, where nothing else of the machine is to be seen.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::engine::{Engine, outcome, root, until};
use crate::pki::Authority;
use crate::support::{Ended, Frame, Session};

const NAME: &str = "systemd";

/// Where the container sees the program. The unit's own place is the machine's.
const PROGRAM: &str = "/opt/monolock";

/// A group there.
const CERTIFICATES: u32 = 900;

/// A machine with systemd and the units.
struct Machine<'a> {
    engine: &'a Engine,
    files: PathBuf,
    address: SocketAddr,
}

impl<'a> Machine<'a> {
    fn start(engine: &'a Engine) -> Self {
        let files = engine.folder.join("machine");
        if files.exists() {
            fs::remove_dir_all(&files).unwrap();
        }
        let machine = Self { engine, files, address: ([127, 0, 0, 1], 7070).into() };
        for directory in ["usr", "var/lib", "run", "tmp", "proc", "sys", "dev", "root", "opt", "etc/default"] {
            fs::create_dir_all(machine.files.join(directory)).unwrap();
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{link}"), machine.files.join(link)).unwrap();
        }
        machine.put("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
        machine.put("etc/group", &format!("root:x:0:\ncertificates:x:{CERTIFICATES}:\n"));
        machine.put("etc/nsswitch.conf", "passwd: files systemd\ngroup: files systemd\n");
        machine.put("etc/machine-id", "");
        for unit in ["monolock.service", "monolock.socket"] {
            let text = fs::read_to_string(root().join("deploy/systemd").join(unit)).unwrap();
            machine.put(&format!("etc/systemd/system/{unit}"), &text);
        }
        let elsewhere = format!("[Service]\nExecStart=\nExecStart={PROGRAM} serve\n");
        machine.put("etc/systemd/system/monolock.service.d/elsewhere.conf", &elsewhere);
        machine.put("etc/default/monolock", "MONOLOCK_OPS_LISTEN_ADDRESS=127.0.0.1:9090\n");
        let program = machine.files.join(&PROGRAM[1..]);
        fs::copy(env!("CARGO_BIN_EXE_monolock"), &program).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();

        let mut arguments = vec!["run", "--detach", "--name", NAME, "--systemd=always", "--privileged"];
        arguments.extend(["--publish", "127.0.0.1:7070:7070", "--volume", "/usr:/usr:ro", "--rootfs"]);
        let files = machine.files.display().to_string();
        arguments.extend([&*files, "/lib/systemd/systemd"]);
        engine.say(arguments);
        let is_up = || {
            let state = machine.run("systemctl is-system-running").stdout;
            // What else is installed on this machine, and may be unwell without the rest of it, does not matter.
            state.starts_with("running") || state.starts_with("degraded")
        };
        until(is_up, || format!("systemd does not come up: {:?}", machine.run("systemctl list-jobs")));
        machine
    }

    fn put(&self, file: &str, text: &str) {
        let file = self.files.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn run(&self, words: &str) -> Ended {
        outcome(&mut self.engine.podman(["exec", NAME].into_iter().chain(words.split_whitespace())))
    }

    /// What a command says that succeeds.
    #[track_caller]
    fn say(&self, words: &str) -> String {
        let Ended { status, stdout, stderr } = self.run(words);
        let journal = self.run("journalctl --no-pager --unit monolock.service").stdout;
        assert_eq!(status, 0, "{words}: {stdout}{stderr}\n{journal}");
        stdout.trim_end().to_owned()
    }

    fn property(&self, name: &str) -> String {
        self.say(&format!("systemctl show --property {name} --value monolock.service"))
    }

    #[track_caller]
    fn await_another_than(&self, pid: &str) {
        let is_another = || self.property("MainPID") != pid && self.property("ActiveState") == "active";
        until(is_another, || self.run("systemctl status --no-pager monolock.service").stdout);
    }
}

#[test]
fn systemd_starts_reloads_watches_and_restarts_the_service() {
    let engine = Engine::with_image();
    let machine = Machine::start(&engine);
    machine.say("systemctl start monolock.socket monolock.service");
    // It returned when the server was ready, with nothing to wait for.
    machine.say(&format!("{PROGRAM} healthcheck --ops 127.0.0.1:9090"));
    let mut session = Session::connect(machine.address);
    session.acquire("jobs", 60_000);
    let token = session.expect_acquired();
    // It returns when the signal is sent.
    machine.say("systemctl reload monolock.service");
    let status = || machine.property("StatusText");
    until(|| status() == "1 lock, 1 session", status);
    session.heartbeat();
    session.expect(Frame::Acquired(token));

    // The unit's user, rights and folders.
    let pid = machine.property("MainPID");
    let status = machine.say(&format!("cat /proc/{pid}/status"));
    for line in ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    assert!(!status.contains("Uid:\t0"), "{status}");
    machine.say("test -s /var/lib/monolock/tokens");
    machine.say("test -d /var/log/monolock");

    // A crash, and a server that hangs.
    machine.say("systemctl kill --signal KILL monolock.service");
    machine.await_another_than(&pid);
    let mut session = Session::connect(machine.address);
    session.acquire("jobs", 60_000);
    assert!(session.expect_acquired() > token);
    machine.put("etc/systemd/system/monolock.service.d/soon.conf", "[Service]\nWatchdogSec=5s\n");
    machine.say("systemctl daemon-reload");
    machine.say("systemctl restart monolock.service");
    let pid = machine.property("MainPID");
    machine.say("systemctl kill --signal STOP monolock.service");
    machine.await_another_than(&pid);

    // A key that a group of root's may read, as the page on deployment has it.
    let authority = Authority::new();
    let pair = authority.server();
    for (from, name) in [(&pair.certificate, "server.pem"), (&pair.key, "server.key")] {
        let place = format!("etc/monolock/{name}");
        machine.put(&place, &fs::read_to_string(from).unwrap());
        let place = machine.files.join(place);
        fs::set_permissions(&place, Permissions::from_mode(0o640)).unwrap();
        chown(&place, Some(0), Some(CERTIFICATES)).unwrap();
    }
    machine.put("etc/systemd/system/monolock.service.d/group.conf", "[Service]\nSupplementaryGroups=certificates\n");
    let settings = "MONOLOCK_TLS_CERT=/etc/monolock/server.pem\nMONOLOCK_TLS_KEY=/etc/monolock/server.key\n";
    machine.put("etc/default/monolock", settings);
    machine.say("systemctl daemon-reload");
    machine.say("systemctl restart monolock.service");

    // A wrong setting is not tried again and again.
    machine.put("etc/default/monolock", "MONOLOCK_IO_TIMEOUT=soon\n");
    assert_ne!(machine.run("systemctl restart monolock.service").status, 0);
    assert_eq!(machine.property("ActiveState"), "failed");
    assert_eq!(machine.property("ExecMainStatus"), "2");
}

#[test]
fn restarts_by_systemd_refuse_nobody() {
    const RESTARTS: usize = 3;
    const CLIENTS: usize = 4;
    let engine = Engine::with_image();
    let machine = Machine::start(&engine);
    machine.say("systemctl start monolock.socket monolock.service");
    let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let stream = TcpStream::connect(machine.address).expect("nobody is refused");
                    let mut session = Session::over(stream);
                    session.acquire("jobs", 60_000);
                    let mut frame = session.frame();
                    while frame == Frame::Waiting {
                        frame = session.frame();
                    }
                    if let Frame::Acquired(_) = frame {
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let expect_turns = || {
            let before = turns.load(Ordering::Relaxed);
            until(|| turns.load(Ordering::Relaxed) > before + CLIENTS, || "nobody has a turn".to_owned());
        };
        for _ in 0..RESTARTS {
            expect_turns();
            machine.say("systemctl restart monolock.service");
        }
        expect_turns();
        is_over.store(true, Ordering::Relaxed);
    });
}
