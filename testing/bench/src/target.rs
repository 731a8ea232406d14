//! The measured servers, each a process of its own.
//!
//! monolock is the real program as it is released. The floors are this program; where a setting has no flag, this
//! program is the server too, by the library.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{fmt, thread};

use clap::ValueEnum;
use monolock_net::{Server, ServerBuilder, raise_descriptor_limit};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::certificates::Certificates;
use crate::generator::without_own_variables;
use crate::process::Kept;

/// As monolock has it.
const BACKLOG: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A floor: each read is answered.
    Echo,
    /// A floor: a lock and nothing else.
    Relay,
    /// Everything at its default.
    Monolock,
    /// With an audit log.
    Audit,
    /// With an audit log, the admin API and the ops endpoints.
    Operations,
    /// Over TLS.
    Tls,
    /// Over TLS, with the client's certificate looked at.
    MutualTls,
    /// All locks behind one mutex.
    OneShard,
    /// As many as there are cores, times four.
    ManyShards,
    /// Everything at its default, with one thread.
    OneWorker,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Relay => "relay",
            Self::Monolock => "monolock",
            Self::Audit => "monolock, audit",
            Self::Operations => "monolock, audit, admin, ops",
            Self::Tls => "monolock, TLS",
            Self::MutualTls => "monolock, mutual TLS",
            Self::OneShard => "monolock, one shard",
            Self::ManyShards => "monolock, many shards",
            Self::OneWorker => "monolock, one thread",
        }
    }

    pub(crate) const fn is_tls(self) -> bool {
        match self {
            Self::Tls | Self::MutualTls => true,
            Self::Echo
            | Self::Relay
            | Self::Monolock
            | Self::Audit
            | Self::Operations
            | Self::OneShard
            | Self::ManyShards
            | Self::OneWorker => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a server is met.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) socket: SocketAddr,
    /// How it is spoken to, where that is not in plain text.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

/// What servers are started from.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The released program.
    pub(crate) monolock: PathBuf,
    pub(crate) certificates: Certificates,
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) address: Address,
    /// Where it has an admin API.
    pub(crate) admin: Option<SocketAddr>,
    process: Kept,
}

impl Target {
    pub(crate) fn start(kind: Kind, programs: &Programs) -> io::Result<Self> {
        let (process, socket, admin) = match kind {
            Kind::Echo | Kind::Relay | Kind::OneShard | Kind::ManyShards => {
                let (process, socket) = start_own(kind)?;
                (process, socket, None)
            }
            Kind::Monolock | Kind::Audit | Kind::Operations | Kind::Tls | Kind::MutualTls | Kind::OneWorker => {
                start_monolock(kind, programs)?
            }
        };
        let tls = kind.is_tls().then(|| Arc::clone(&programs.certificates.client));
        Ok(Self { kind, address: Address { socket, tls }, admin, process })
    }

    pub(crate) fn start_all(kinds: &[Kind], programs: &Programs) -> io::Result<Vec<Self>> {
        kinds.iter().map(|kind| Self::start(*kind, programs)).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// This program as a server: it says its address in its first line.
fn start_own(kind: Kind) -> io::Result<(Kept, SocketAddr)> {
    let name = kind.to_possible_value().expect("no kind is hidden");
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(["serve", name.get_name()]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().expect("standard output is piped");
    let process = Kept(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let socket = line.trim().parse().map_err(|_| io::Error::other(format!("{kind} did not say its address")))?;
    Ok((process, socket))
}

/// The released program: it says its addresses in its log.
fn start_monolock(kind: Kind, programs: &Programs) -> io::Result<(Kept, SocketAddr, Option<SocketAddr>)> {
    let Programs { monolock, certificates } = programs;
    let mut command = Command::new(monolock);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    if matches!(kind, Kind::Audit | Kind::Operations) {
        command.arg("--audit-log").arg(certificates.directory().join("audit.log"));
    }
    if kind == Kind::Operations {
        command.args(["--admin-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]);
    }
    if kind.is_tls() {
        command.arg("--tls-cert").arg(certificates.certificate_file()).arg("--tls-key").arg(certificates.key_file());
    }
    if kind == Kind::MutualTls {
        command.arg("--tls-client-ca").arg(certificates.authority_file());
    }
    if kind == Kind::OneWorker {
        command.env("TOKIO_WORKER_THREADS", "1");
    }
    without_own_variables(&mut command);
    let mut child: Child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().expect("standard error is piped");
    let process = Kept(child);
    let mut lines = BufReader::new(stderr).lines();
    let mut logged = |text: &str| loop {
        let Some(line) = lines.next().transpose()? else {
            return Err(io::Error::other(format!("{kind} ended before it was {text}")));
        };
        let event: Value = serde_json::from_str(&line).map_err(|_| io::Error::other(format!("{kind}: {line}")))?;
        if event["message"] == text {
            let address = event["address"].as_str().and_then(|address| address.parse().ok());
            return address.ok_or_else(|| io::Error::other(format!("{kind} named no address: {line}")));
        }
    };
    let socket = logged("listening")?;
    let admin = if kind == Kind::Operations { Some(logged("serving the admin API")?) } else { None };
    // What it logs later is of no use, but a pipe that is full would stop it.
    thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    Ok((process, socket, admin))
}

/// Is the server of this kind, until standard input ends.
pub(crate) fn serve(kind: Kind) -> io::Result<()> {
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    raise_descriptor_limit()?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // On a thread that polls the sockets too: a thread of its own would have to be woken for each connection.
    let serving = runtime.spawn(async move {
        match kind {
            Kind::Echo | Kind::Relay => {
                let listener = listen(any)?;
                println!("{}", listener.local_addr()?);
                if kind == Kind::Echo {
                    crate::floors::echo::serve(listener).await
                } else {
                    crate::floors::relay::serve(listener).await
                }
            }
            Kind::OneShard => run(Server::builder().shards(NonZeroUsize::MIN)).await,
            Kind::ManyShards
            | Kind::Monolock
            | Kind::Audit
            | Kind::Operations
            | Kind::Tls
            | Kind::MutualTls
            | Kind::OneWorker => run(Server::builder()).await,
        }
    });
    runtime.block_on(serving)?
}

/// With a queue of connections as long as monolock's.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn run(builder: ServerBuilder) -> io::Result<()> {
    let server = builder.listen((Ipv4Addr::LOCALHOST, 0).into()).bind()?;
    println!("{}", server.local_addr());
    server.run().await.map_err(io::Error::other)
}

/// A directory of this run's own, in memory where the system has such a place: nobody is to be measured with his disk.
pub(crate) fn scratch() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
