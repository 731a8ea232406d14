//! The measured servers, each a process of its own with the same runtime.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use clap::ValueEnum;
use monolock_net::{AdminAccess, AdminListen, AdminSettings, AuditFailure, AuditLog, AuditSink, Server, ServerBuilder};
use rustls::ClientConfig;
use tokio::net::TcpListener;

use crate::certificates::{Certificates, mutual_tls_files, tls_files};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The floor.
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
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Relay, Self::Monolock, Self::Audit, Self::Operations, Self::Tls, Self::MutualTls];

    /// What it is measured against.
    pub(crate) const fn base(self) -> Option<Self> {
        match self {
            Self::Relay => None,
            Self::Monolock => Some(Self::Relay),
            Self::Audit | Self::Operations | Self::Tls | Self::MutualTls => Some(Self::Monolock),
        }
    }

    const fn is_tls(self) -> bool {
        match self {
            Self::Relay | Self::Monolock | Self::Audit | Self::Operations => false,
            Self::Tls | Self::MutualTls => true,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relay => "relay",
            Self::Monolock => "monolock",
            Self::Audit => "with audit",
            Self::Operations => "with audit, admin, ops",
            Self::Tls => "with TLS",
            Self::MutualTls => "with mutual TLS",
        })
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    child: Child,
    /// Its end is the server's.
    stdin: Option<ChildStdin>,
    pub(crate) address: SocketAddr,
    /// How it is spoken to, where that is not in plain text.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Target {
    pub(crate) fn start(kind: Kind, certificates: &Certificates) -> io::Result<Self> {
        let name = kind.to_possible_value().expect("no kind is hidden");
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", name.get_name()])
            .arg(certificates.directory())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("standard output is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().parse().map_err(|_| io::Error::other("the server did not say its address"))?;
        let tls = kind.is_tls().then(|| Arc::clone(&certificates.client));
        Ok(Self { kind, child, stdin, address, tls })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself; what it says is of no use any more.
        let _ = self.child.wait();
    }
}

/// Is the server of this kind, until standard input ends. The files of the run are in `directory`.
pub(crate) fn serve(kind: Kind, directory: &Path) -> io::Result<()> {
    std::thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let builder = Server::builder().listen(any);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match kind {
            Kind::Relay => {
                let listener = TcpListener::bind(any).await?;
                println!("{}", listener.local_addr()?);
                crate::relay::serve(listener).await
            }
            Kind::Monolock => run(builder).await,
            Kind::Audit => run(builder.audit_log(audit_log(directory, kind))).await,
            Kind::Operations => {
                let admin = AdminSettings { listen: AdminListen::Tcp(any), access: AdminAccess::Local };
                run(builder.audit_log(audit_log(directory, kind)).admin(admin).ops(any)).await
            }
            Kind::Tls => run(builder.tls(tls_files(directory))).await,
            Kind::MutualTls => run(builder.tls(mutual_tls_files(directory))).await,
        }
    })
}

fn audit_log(directory: &Path, kind: Kind) -> AuditLog {
    let sink = AuditSink::File(directory.join(format!("{kind}.log")));
    AuditLog { sink, on_failure: AuditFailure::Continue }
}

async fn run(builder: ServerBuilder) -> io::Result<()> {
    let server = builder.bind()?;
    println!("{}", server.local_addr());
    server.run().await.map_err(io::Error::other)
}
