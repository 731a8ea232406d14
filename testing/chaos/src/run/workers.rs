//! The clients' places and the processes in them.
//!
//! A place has an address, a lock, a kind of client, and one process at a time: the next life comes when one was
//! killed.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolock_chaos::history::{Record, What};
use monolock_chaos::plan::{LEASES_MS, LOCKS};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

use crate::run::Result;
use crate::run::clock::boottime_offset_ns;
use crate::run::network::{HARNESS_IP, Network, PORT, SERVER_IP, inside};
use crate::run::proxy::Proxy;
use crate::run::server::{expect_stopped, wait};
use crate::run::tools::Tools;
use crate::run::world::World;

/// A client's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RustThreads,
    RustTokio,
    PythonThreads,
    PythonAsyncio,
    Go,
    Node,
}

use Kind::{Go, Node, PythonAsyncio, PythonThreads, RustThreads, RustTokio};

/// Who claims which lock, and whether through the proxy. Seats for Go and Node.js stay empty where those are not there.
const SEATS: [(usize, Kind, bool); 16] = [
    (0, RustThreads, false),
    (0, PythonThreads, false),
    (0, RustTokio, true),
    (0, PythonAsyncio, true),
    (1, RustTokio, false),
    (1, PythonAsyncio, false),
    (1, RustThreads, true),
    (1, PythonThreads, true),
    (2, RustTokio, false),
    (2, RustThreads, false),
    (2, PythonThreads, true),
    (2, RustTokio, true),
    (0, Go, false),
    (0, Node, true),
    (1, Node, false),
    (2, Go, true),
];

/// The proxy of the first place listens here, the next one on the next port.
const PROXY_PORT: u16 = 7100;

/// All places.
#[derive(Debug)]
pub(crate) struct Workers {
    places: Vec<Place>,
    world: Arc<World>,
    /// Carries the proxies.
    _runtime: Runtime,
}

/// One place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) proxy: Option<Proxy>,
    seat: Seat,
    life: Mutex<Life>,
}

/// What a process in a place is started with.
#[derive(Debug)]
struct Seat {
    tools: Tools,
    kind: Kind,
    server: String,
    lock: &'static str,
    seed: u64,
    log: PathBuf,
}

/// The process in a place.
#[derive(Debug)]
struct Life {
    number: u32,
    child: Child,
    stdin: Option<ChildStdin>,
    /// Set before the harness ends it.
    is_expected: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl Workers {
    /// Takes all places.
    pub(crate) fn start(
        tools: &Tools,
        folder: &Path,
        seed: u64,
        network: &Network,
        world: &Arc<World>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime for the proxies: {error}"))?;
        let mut places = Vec::new();
        let is_there = |(_, kind, _): &(usize, Kind, bool)| match kind {
            Go => tools.go_worker.is_some(),
            Node => tools.node.is_some(),
            RustThreads | RustTokio | PythonThreads | PythonAsyncio => true,
        };
        for (number, (lock, kind, is_proxied)) in (0_u8..).zip(SEATS.into_iter().filter(is_there)) {
            let (namespace, address) = network.place(number)?;
            let port = PROXY_PORT + u16::from(number);
            let server = (SERVER_IP, PORT);
            let proxy = is_proxied.then(|| Proxy::start(&runtime, (HARNESS_IP, port), server)).transpose()?;
            let (ip, port) = if is_proxied { (HARNESS_IP, port) } else { server };
            let name = format!("w{number}");
            let seat = Seat {
                tools: tools.clone(),
                kind,
                server: format!("{ip}:{port}"),
                lock: LOCKS[lock],
                seed: seed.wrapping_add(u64::from(number) << 32),
                log: folder.join(format!("{name}.log")),
            };
            let life = Mutex::new(seat.begin(&name, &namespace, 1, world)?);
            places.push(Place { name, namespace, address, proxy, seat, life });
        }
        Ok(Self { places, world: Arc::clone(world), _runtime: runtime })
    }

    /// The place of a worker.
    pub(crate) fn place_of(&self, worker: &str) -> Option<&Place> {
        let (name, _) = worker.split_once('.')?;
        self.places.iter().find(|place| place.name == name)
    }

    /// The workers that live.
    pub(crate) fn living(&self) -> Vec<String> {
        self.places.iter().map(Place::worker).collect()
    }

    /// Lets every worker finish.
    pub(crate) fn finish(&self, within: Duration) -> Result<()> {
        for place in &self.places {
            let mut life = place.lock();
            life.is_expected.store(true, Ordering::SeqCst);
            // The end of its standard input is the word.
            life.stdin = None;
        }
        let begun = std::time::Instant::now();
        for place in &self.places {
            let mut life = place.lock();
            while life.child.try_wait().is_ok_and(|status| status.is_none()) {
                if begun.elapsed() > within {
                    return Err(format!("{} does not finish", place.name));
                }
                thread::sleep(Duration::from_millis(10));
            }
            if let Some(listening) = life.listening.take() {
                let _ = listening.join();
            }
        }
        Ok(())
    }

    /// Kills the process in a place; its history is complete when this returns.
    pub(crate) fn kill(&self, place: &Place) -> Result<()> {
        let mut life = place.lock();
        life.is_expected.store(true, Ordering::SeqCst);
        life.signal(Signal::SIGKILL)?;
        let _ = wait(&mut life.child);
        if let Some(listening) = life.listening.take() {
            let _ = listening.join();
        }
        let worker = format!("{}.{}", place.name, life.number);
        drop(life);
        self.world.note(What::Gone { worker, killed: true });
        Ok(())
    }

    /// Puts a new process into a place.
    pub(crate) fn revive(&self, place: &Place) -> Result<()> {
        let mut life = place.lock();
        *life = place.seat.begin(&place.name, &place.namespace, life.number + 1, &self.world)?;
        Ok(())
    }
}

impl Place {
    /// The worker in it.
    pub(crate) fn worker(&self) -> String {
        format!("{}.{}", self.name, self.lock().number)
    }

    /// Tells the worker something.
    pub(crate) fn tell(&self, order: &str) {
        if let Some(stdin) = &mut self.lock().stdin {
            // One that is gone needs no orders.
            let _ = writeln!(stdin, "{order}");
        }
    }

    /// Stops the worker in the middle of whatever it does, and returns when it stands still.
    pub(crate) fn pause(&self) -> Result<()> {
        let life = self.lock();
        life.signal(Signal::SIGSTOP)?;
        expect_stopped(life.pid()?)
    }

    pub(crate) fn resume(&self) -> Result<()> {
        self.lock().signal(Signal::SIGCONT)
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Life {
    fn pid(&self) -> Result<i32> {
        i32::try_from(self.child.id()).map_err(|error| error.to_string())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.pid()?), signal).map_err(|error| format!("{signal} to a worker: {error}"))
    }
}

impl Seat {
    fn begin(&self, name: &str, namespace: &str, number: u32, world: &Arc<World>) -> Result<Life> {
        let worker = format!("{name}.{number}");
        let failed = |error| format!("{worker} cannot be started: {error}");
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = self.command(namespace);
        command.args(["--name", &worker, "--server", &self.server, "--lock", self.lock]);
        command.args(["--seed", &self.seed.wrapping_add(u64::from(number)).to_string()]);
        let leases: Vec<_> = LEASES_MS.iter().map(u64::to_string).collect();
        command.args(["--leases-ms", &leases.join(",")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().map_err(failed)?;
        let is_expected = Arc::new(AtomicBool::new(false));
        let listening = child.stdout.take().map(|stdout| {
            let (world, is_expected) = (Arc::clone(world), Arc::clone(&is_expected));
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                    match serde_json::from_str::<Record>(&line) {
                        Ok(record) => world.hear(record),
                        // Killed in the middle of it.
                        Err(_) if is_expected.load(Ordering::SeqCst) => {}
                        Err(error) => eprintln!("{worker} says {line:?}: {error}"),
                    }
                }
                if !is_expected.load(Ordering::SeqCst) {
                    world.note(What::Gone { worker, killed: false });
                }
            })
        });
        let stdin = child.stdin.take();
        Ok(Life { number, child, stdin, is_expected, listening })
    }

    fn command(&self, namespace: &str) -> Command {
        let Tools { worker, python, go_worker, node, scripts, .. } = &self.tools;
        match self.kind {
            RustThreads | RustTokio => {
                let mut command = inside(namespace, worker);
                command.arg("claim");
                if self.kind == RustThreads {
                    command.arg("--threads");
                }
                command
            }
            PythonThreads | PythonAsyncio => {
                let mut command = inside(namespace, python);
                command.arg(scripts.join("worker.py"));
                if self.kind == PythonAsyncio {
                    command.arg("--asyncio");
                }
                command
            }
            Go => inside(namespace, go_worker.as_deref().unwrap_or("worker-go".as_ref())),
            Node => {
                let mut command = inside(namespace, node.as_deref().unwrap_or("node"));
                command.arg(scripts.join("worker.mjs"));
                command.arg(format!("--boottime-offset-ns={}", boottime_offset_ns()));
                command
            }
        }
    }
}
