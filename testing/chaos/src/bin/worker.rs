//! One client of the server: claims one lock again and again, says what it believes, and does what it is told.
//!
//! It speaks lines of a history on standard output and hears `keep CLAIM`, `go` and `finish` on standard input. It uses
//! the client's public API alone. `flood` is another thing: it connects many times and says nothing.

fn main() -> std::process::ExitCode {
    worker::main()
}

#[cfg(not(target_os = "linux"))]
mod worker {
    pub(crate) fn main() -> std::process::ExitCode {
        eprintln!("chaos-worker: its history is written by a clock of Linux's; run it there");
        std::process::ExitCode::from(2)
    }
}

#[cfg(target_os = "linux")]
mod worker {
    use std::io::{BufRead as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock};
    use std::thread;
    use std::time::Duration;

    use clap::{Parser, Subcommand};
    use monolock_chaos::history::{Record, What};
    use monolock_client::{Client, Error, Held, LossReason, blocking};
    use rustix::time::{ClockId, clock_gettime};

    /// How often a holder asks whether it still is one.
    const LOOK: Duration = Duration::from_millis(4);

    /// How often, at most, it says so.
    const SAY_NS: u64 = 25_000_000;

    #[derive(Parser)]
    struct Arguments {
        #[command(subcommand)]
        role: Role,
    }

    #[derive(Subcommand)]
    enum Role {
        /// Claims a lock again and again.
        Claim {
            #[arg(long)]
            name: String,
            #[arg(long)]
            server: String,
            #[arg(long)]
            lock: String,
            #[arg(long)]
            seed: u64,
            /// On plain threads instead of tokio.
            #[arg(long)]
            threads: bool,
            #[arg(long, value_delimiter = ',')]
            leases_ms: Vec<u64>,
        },
        /// Connects many times and says nothing.
        Flood {
            #[arg(long)]
            server: SocketAddr,
            #[arg(long)]
            count: usize,
            #[arg(long)]
            milliseconds: u64,
        },
    }

    pub(crate) fn main() -> ExitCode {
        match Arguments::parse().role {
            Role::Claim { name, server, lock, seed, threads, leases_ms } => {
                let timeout = Duration::from_millis(2500);
                let claimant = if threads {
                    let client = blocking::Client::builder(server).connect_timeout(timeout).build();
                    client.map(Claimant::Threads)
                } else {
                    let client = Client::builder(server).connect_timeout(timeout).build();
                    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                    client.map(|client| Claimant::Tokio(client, runtime.expect("a runtime")))
                };
                match claimant {
                    Ok(claimant) => {
                        Worker { name, lock, claimant, leases_ms, orders: Orders::hear() }.run(seed);
                        ExitCode::SUCCESS
                    }
                    Err(error) => {
                        eprintln!("chaos-worker: {error}");
                        ExitCode::FAILURE
                    }
                }
            }
            Role::Flood { server, count, milliseconds } => {
                flood(server, count, Duration::from_millis(milliseconds));
                ExitCode::SUCCESS
            }
        }
    }

    /// One of the two clients.
    enum Claimant {
        Threads(blocking::Client),
        Tokio(Client, tokio::runtime::Runtime),
    }

    /// What it was granted.
    enum Guard {
        Threads(blocking::LockGuard),
        Tokio(monolock_client::LockGuard),
    }

    impl Claimant {
        fn acquire(
            &self,
            lock: &str,
            lease: Duration,
            on_queued: impl Fn() + Send + Sync + 'static,
        ) -> Result<Guard, Error> {
            match self {
                Self::Threads(client) => {
                    client.on_queued(move |_| on_queued()).acquire(lock, lease).map(Guard::Threads)
                }
                Self::Tokio(client, runtime) => {
                    let client = client.on_queued(move |_| on_queued());
                    runtime.block_on(client.acquire(lock, lease)).map(Guard::Tokio)
                }
            }
        }

        fn release(&self, guard: Guard) {
            match (self, guard) {
                (_, Guard::Threads(guard)) => guard.release(),
                (Self::Tokio(_, runtime), Guard::Tokio(guard)) => runtime.block_on(guard.release()),
                (Self::Threads(_), Guard::Tokio(guard)) => drop(guard),
            }
        }
    }

    impl Guard {
        fn held(&self) -> Held {
            match self {
                Self::Threads(guard) => guard.held(),
                Self::Tokio(guard) => guard.held(),
            }
        }
    }

    /// What the harness wants.
    #[derive(Default)]
    struct Orders {
        /// The claim that is to be kept; 0 without one.
        keep: AtomicU64,
        finish: AtomicBool,
    }

    impl Orders {
        fn hear() -> Arc<Self> {
            let orders = Arc::new(Self::default());
            let heard = Arc::clone(&orders);
            thread::spawn(move || {
                for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                    match line.split_once(' ') {
                        Some(("keep", claim)) => heard.keep.store(claim.parse().unwrap_or(0), Ordering::SeqCst),
                        _ if line == "go" => heard.keep.store(0, Ordering::SeqCst),
                        _ => break,
                    }
                }
                // Told to, or nobody is left to tell.
                heard.finish.store(true, Ordering::SeqCst);
            });
            orders
        }

        fn keeps(&self, claim: u64) -> bool {
            self.keep.load(Ordering::SeqCst) == claim && !self.finishes()
        }

        fn finishes(&self) -> bool {
            self.finish.load(Ordering::SeqCst)
        }
    }

    struct Worker {
        name: String,
        lock: String,
        claimant: Claimant,
        leases_ms: Vec<u64>,
        orders: Arc<Orders>,
    }

    impl Worker {
        fn run(&self, seed: u64) {
            let mut random = fastrand::Rng::with_seed(seed);
            for claim in 1.. {
                if self.orders.finishes() {
                    return;
                }
                let lease_ms = *random.choice(&self.leases_ms).unwrap_or(&1000);
                let ask = What::Ask { worker: self.name.clone(), claim, lock: self.lock.clone(), lease_ms };
                say(now(), ask);
                let on_queued = {
                    let worker = self.name.clone();
                    move || say(now(), What::Queued { worker: worker.clone(), claim })
                };
                match self.claimant.acquire(&self.lock, Duration::from_millis(lease_ms), on_queued) {
                    Ok(guard) => self.hold(claim, guard, Duration::from_millis(random.u64(20..250))),
                    Err(error) => {
                        let kind = error.kind().as_str().to_owned();
                        say(now(), What::Failed { worker: self.name.clone(), claim, kind });
                        thread::sleep(Duration::from_millis(random.u64(20..200)));
                    }
                }
                thread::sleep(Duration::from_millis(random.u64(5..60)));
            }
        }

        fn hold(&self, claim: u64, guard: Guard, at_least: Duration) {
            let (held, worker) = (guard.held(), || self.name.clone());
            let token = held.token().get();
            say(now(), What::Granted { worker: worker(), claim, token });
            let until = now() + u64::try_from(at_least.as_nanos()).unwrap_or(0);
            let (mut said, mut believed) = (0, None);
            let mut is_keeping = false;
            loop {
                // Stamped before the question: see `What::Believed`.
                let asked = now();
                if !held.is_held() {
                    break;
                }
                if asked - said >= SAY_NS {
                    said = asked;
                    say(asked, What::Believed { worker: worker(), claim });
                    self.write(claim, token);
                }
                believed = Some(asked);
                if self.orders.keeps(claim) {
                    if !is_keeping {
                        is_keeping = true;
                        say(now(), What::Keeping { worker: worker(), claim });
                    }
                } else if asked >= until || self.orders.finishes() {
                    say(asked, What::Believed { worker: worker(), claim });
                    say(now(), What::Releasing { worker: worker(), claim });
                    self.claimant.release(guard);
                    return;
                }
                thread::sleep(LOOK);
            }
            if let Some(last) = believed.filter(|last| *last > said) {
                say(last, What::Believed { worker: worker(), claim });
            }
            let reason = held.loss().as_ref().map_or("none", LossReason::as_str).to_owned();
            say(now(), What::Lost { worker: worker(), claim, reason });
            // As work does that was between its last look and its write.
            self.write(claim, token);
            self.claimant.release(guard);
        }

        fn write(&self, claim: u64, token: u64) {
            say(now(), What::Write { worker: self.name.clone(), claim, lock: self.lock.clone(), token });
        }
    }

    fn flood(server: SocketAddr, count: usize, time: Duration) {
        let held: OnceLock<Vec<TcpStream>> = OnceLock::new();
        let connect = |_| TcpStream::connect_timeout(&server, Duration::from_secs(2)).ok();
        let connected = held.get_or_init(|| (0..count).filter_map(connect).collect());
        println!("{}", connected.len());
        thread::sleep(time);
    }

    /// `CLOCK_BOOTTIME`, in nanoseconds.
    fn now() -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    }

    fn say(t: u64, what: What) {
        let line = serde_json::to_string(&Record { t, what }).expect("a record is JSON") + "\n";
        // Without the harness nobody listens, and the worker is told to finish at its standard input.
        let _ = std::io::stdout().write_all(line.as_bytes());
    }
}
