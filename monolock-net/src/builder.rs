//! How a server is set up: its settings, all of them with defaults, and what can be wrong with them.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use std::fmt;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{BACKLOG, Backlog};
use crate::admin::{self, AdminAccess, AdminListen, AdminSettings};
use crate::audit::{Audit, AuditLog, AuditSink};
use crate::clock::Clock;
use crate::events::{Events, KEPT_EVENTS};
use crate::guard::{BearerToken, Guard, Hosts};
use crate::http::{Endpoint, Http, Listener};
use crate::limits::{Limits, Turnstile};
use crate::metrics::Metrics;
use crate::ops;
use crate::passed::{self, AdminSocket, SocketPurpose};
use crate::policy::{PolicyError, PolicyFiles};
use crate::reserve::Reserve;
use crate::server::Server;
use crate::shards::Shards;
use crate::shared::Shared;
use crate::sync::Mutex;
use crate::tls::TlsFiles;
use crate::token_file::{TokenFile, TokenFileError};
#[cfg(unix)]
use crate::unix_socket;
use crate::witness::Witness;

/// More shards than cores, so that two cores seldom want the same one.
const SHARDS_PER_CORE: usize = 4;

/// The settings of a [`Server`], all of them with defaults.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    listen: SocketAddr,
    io_timeout: Duration,
    shards: Option<NonZeroUsize>,
    files: PolicyFiles,
    audit: Option<AuditLog>,
    limits: Limits,
    start_grace: Duration,
    token_file: Option<PathBuf>,
    admin: Option<AdminSettings>,
    kept_events: NonZeroUsize,
    ops: Option<SocketAddr>,
    passed: Passed,
}

/// Sockets that were opened elsewhere. They take the place of addresses.
#[derive(Clone, Debug, Default)]
struct Passed {
    locks: Option<Arc<StdTcpListener>>,
    admin: Option<(Arc<AdminSocket>, AdminAccess)>,
    ops: Option<Arc<StdTcpListener>>,
}

/// Why a server could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The io-timeout is zero: every client would be too late.
    ZeroIoTimeout,
    /// An access-control list without a client CA: there would be no identities to apply it to.
    AclWithoutClientCa,
    /// The address cannot be listened on: it is in use, is not this machine's, or may not be taken.
    Listen(SocketAddr, io::Error),
    /// A certificate, a key or the access-control list cannot be used.
    Policy(PolicyError),
    /// The audit log cannot be opened.
    Audit(AuditSink, io::Error),
    /// The token file cannot be used.
    TokenFile(TokenFileError),
    /// The admin API cannot be listened for there.
    Admin(AdminListen, io::Error),
    /// The admin API would be open to whoever reaches this address.
    OpenAdmin(SocketAddr),
    /// The file with the token of the admin API cannot be used.
    AdminToken(PathBuf, io::Error),
    /// The ops endpoints cannot be listened for there.
    Ops(SocketAddr, io::Error),
    /// A socket that was passed cannot be used.
    Passed(SocketPurpose, io::Error),
}

impl ServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            listen: ([0, 0, 0, 0], 7070).into(),
            io_timeout: Duration::from_secs(5),
            shards: None,
            files: PolicyFiles::default(),
            audit: None,
            limits: Limits::default(),
            start_grace: Duration::ZERO,
            token_file: None,
            admin: None,
            kept_events: KEPT_EVENTS,
            ops: None,
            passed: Passed::default(),
        }
    }

    /// Where to listen. Port 0 takes any free port.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Serves on a socket that listens already, whatever [`listen`](Self::listen) says. A stop leaves what waits in it
    /// to whoever else has it.
    #[must_use]
    pub fn listen_on(mut self, socket: StdTcpListener) -> Self {
        self.passed.locks = Some(Arc::new(socket));
        self
    }

    /// How long a client may take for its TLS handshake, for its first frame, and its socket for a write that it does
    /// not take; also the bound of a controlled stop.
    #[must_use]
    pub fn io_timeout(mut self, io_timeout: Duration) -> Self {
        self.io_timeout = io_timeout;
        self
    }

    /// Over how many engines the names are spread; four for each core by default.
    #[must_use]
    pub fn shards(mut self, shards: NonZeroUsize) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Serves over TLS, and over mutual TLS where the files name a client CA.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.files.tls = Some(files);
        self
    }

    /// Lets identities claim only what this file's [`Acl`](crate::Acl) allows. Needs mutual TLS.
    #[must_use]
    pub fn acl_file(mut self, file: PathBuf) -> Self {
        self.files.acl = Some(file);
        self
    }

    /// Writes grants and their ends into an audit log.
    #[must_use]
    pub fn audit_log(mut self, log: AuditLog) -> Self {
        self.audit = Some(log);
        self
    }

    /// Limits what clients may take.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// For so long after the start claims queue in order and nobody is granted. With a grace of at least the longest
    /// lease, every holder of the server's previous life has given up by its own clock before the first grant of
    /// this one.
    #[must_use]
    pub fn start_grace(mut self, grace: Duration) -> Self {
        self.start_grace = grace;
        self
    }

    /// Lets tokens rise across restarts whatever the wall clock does: this file holds a mark that they have not passed.
    #[must_use]
    pub fn token_file(mut self, file: PathBuf) -> Self {
        self.token_file = Some(file);
        self
    }

    /// Serves the admin API.
    #[must_use]
    pub fn admin(mut self, settings: AdminSettings) -> Self {
        self.admin = Some(settings);
        self
    }

    /// Serves the admin API on a socket that listens already, whatever [`admin`](Self::admin) says. An address other than
    /// loopback is no place for [`AdminAccess::Local`] here either.
    #[must_use]
    pub fn admin_on(mut self, socket: AdminSocket, access: AdminAccess) -> Self {
        self.passed.admin = Some((Arc::new(socket), access));
        self
    }

    /// How many events are kept in memory for the readers of the admin API's event stream; 32 768 by default. A reader
    /// that is further behind is dropped. None are kept while nobody reads, and for a minute after.
    #[must_use]
    pub fn kept_events(mut self, count: NonZeroUsize) -> Self {
        self.kept_events = count;
        self
    }

    /// Serves `/healthz`, `/readyz` and `/metrics`, to whoever reaches this address. They show numbers, and no name.
    #[must_use]
    pub fn ops(mut self, address: SocketAddr) -> Self {
        self.ops = Some(address);
        self
    }

    /// Serves what [`ops`](Self::ops) serves on a socket that listens already.
    #[must_use]
    pub fn ops_on(mut self, socket: StdTcpListener) -> Self {
        self.passed.ops = Some(Arc::new(socket));
        self
    }

    /// Reads the files and opens the listening sockets. To be called on a tokio runtime.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn bind(self) -> Result<Server, StartError> {
        let Self {
            listen,
            io_timeout,
            shards,
            files,
            audit,
            limits,
            start_grace,
            token_file,
            admin,
            kept_events,
            ops,
            passed,
        } = self;
        if io_timeout.is_zero() {
            return Err(StartError::ZeroIoTimeout);
        }
        if files.acl.is_some() && files.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
            return Err(StartError::AclWithoutClientCa);
        }
        let policy = files.load().map_err(StartError::Policy)?;
        let token_file = token_file.as_deref().map(TokenFile::open).transpose().map_err(StartError::TokenFile)?;
        let (local_addr, listener, backlog) = passed.locks.map_or_else(
            || open_locks(listen),
            |socket| take(SocketPurpose::Locks, &socket).map(|(address, socket)| (address, socket, Backlog::Successor)),
        )?;
        let admin = match passed.admin {
            Some((socket, access)) => Some(take_admin(&socket, access)?),
            None => admin.map(open_admin).transpose()?,
        };
        let ops = match passed.ops {
            Some(socket) => {
                Some(take(SocketPurpose::Ops, &socket).map(|(address, socket)| (address, Listener::Tcp(socket)))?)
            }
            None => ops.map(open_ops).transpose()?,
        };
        let metrics = Metrics::new();
        let audit_failed = CancellationToken::new();
        let start_audit = |log: &AuditLog| {
            Audit::start(log, metrics.audit_dropped.clone(), audit_failed.clone())
                .map_err(|error| StartError::Audit(log.sink.clone(), error))
        };
        let config = admin::Config {
            listen: local_addr,
            ops_listen: ops.as_ref().map(|(address, _)| *address),
            tls: files.tls.is_some(),
            mtls: files.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
            acl_file: files.acl.as_ref().map(|file| file.display().to_string()),
            audit_log: audit.as_ref().map(|log| match &log.sink {
                AuditSink::Stdout => "-".to_owned(),
                AuditSink::File(path) => path.display().to_string(),
            }),
            io_timeout,
        };
        let audit = audit.as_ref().map(start_audit).transpose()?;
        let clock = Clock::start();
        let events = Events::new(kept_events, clock, metrics.clone());
        let witness = Witness::new(metrics, audit, events);
        let shards = shards.unwrap_or_else(default_shards);
        let tokens = token_file.as_ref().map_or_else(Arc::default, TokenFile::tokens);
        tokens.lift_to(Clock::first_token(Clock::wall()));
        let shared = Shared {
            shards: Shards::new(shards, clock, start_grace, tokens, witness),
            token_file: token_file.map(Mutex::new),
            io_timeout,
            turnstile: Turnstile::new(limits),
            policy: ArcSwap::from_pointee(policy),
            files,
            audit_failed,
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
        };
        let shared = Arc::new(shared);
        let reserve = if admin.is_some() || ops.is_some() { Reserve::of_process() } else { Reserve::none() };
        let connections = reserve.http_connections;
        let http = Http {
            admin: admin.map(|(listen, listener, guard)| {
                let router = admin::router(Arc::clone(&shared), config, guard, connections);
                (listen, Endpoint { listener, router, connections })
            }),
            ops: ops.map(|(address, listener)| {
                let router = ops::router(Arc::clone(&shared));
                (address, Endpoint { listener, router, connections })
            }),
            reserve,
        };
        Ok(Server::new((listener, backlog), local_addr, http, shared))
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroIoTimeout => f.write_str("the io-timeout must be more than zero"),
            Self::AclWithoutClientCa => {
                f.write_str("an access-control list needs a client CA, from which identities come")
            }
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Policy(error) => error.fmt(f),
            Self::Audit(sink, error) => write!(f, "cannot open the audit log {sink}: {error}"),
            Self::TokenFile(error) => error.fmt(f),
            Self::Admin(listen, error) => write!(f, "cannot listen on {listen} for the admin API: {error}"),
            Self::OpenAdmin(address) => write!(
                f,
                "the admin API on {address} would be open to all: give it a token file, a loopback address or a Unix socket"
            ),
            Self::AdminToken(file, error) => write!(f, "cannot use the admin token in {}: {error}", file.display()),
            Self::Ops(address, error) => write!(f, "cannot listen on {address} for health and metrics: {error}"),
            Self::Passed(purpose, error) => write!(f, "cannot serve {purpose} on the socket that was passed: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::ZeroIoTimeout | Self::AclWithoutClientCa | Self::OpenAdmin(_) => None,
            Self::Listen(_, error)
            | Self::Audit(_, error)
            | Self::Admin(_, error)
            | Self::AdminToken(_, error)
            | Self::Ops(_, error)
            | Self::Passed(_, error) => Some(error),
            Self::Policy(error) => Some(error),
            Self::TokenFile(error) => Some(error),
        }
    }
}

/// Takes a passed socket over, with its address.
fn take(purpose: SocketPurpose, socket: &StdTcpListener) -> Result<(SocketAddr, TcpListener), StartError> {
    passed::tcp(socket).map_err(|error| StartError::Passed(purpose, error))
}

/// Takes the admin API's socket over, with its address and whom it admits.
fn take_admin(socket: &AdminSocket, access: AdminAccess) -> Result<(AdminListen, Listener, Guard), StartError> {
    let (listen, listener) = socket.listener().map_err(|error| StartError::Passed(SocketPurpose::Admin, error))?;
    let guard = guard(&listen, access)?;
    Ok((listen, listener, guard))
}

/// Opens the admin API's listener, with its real address and whom it admits.
fn open_admin(settings: AdminSettings) -> Result<(AdminListen, Listener, Guard), StartError> {
    let AdminSettings { listen, access } = settings;
    let guard = guard(&listen, access)?;
    let opened = match &listen {
        AdminListen::Tcp(address) => open_listener(*address).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((AdminListen::Tcp(address), Listener::Tcp(listener)))
        }),
        #[cfg(unix)]
        AdminListen::Unix(path) => unix_socket::listen(path)
            .map(|(listener, file)| (listen.clone(), Listener::Unix { listener, _file: Some(file) })),
    };
    match opened {
        Ok((listen, listener)) => Ok((listen, listener, guard)),
        Err(error) => Err(StartError::Admin(listen, error)),
    }
}

/// Whom the admin API admits at an address.
fn guard(listen: &AdminListen, access: AdminAccess) -> Result<Guard, StartError> {
    let is_open = access == AdminAccess::Local;
    let token = match access {
        AdminAccess::Local | AdminAccess::Insecure => None,
        AdminAccess::Token(file) => {
            Some(BearerToken::read(&file).map_err(|error| StartError::AdminToken(file, error))?)
        }
    };
    let hosts = match listen {
        AdminListen::Tcp(address) if address.ip().to_canonical().is_loopback() => Hosts::Loopback,
        AdminListen::Tcp(address) if is_open => return Err(StartError::OpenAdmin(*address)),
        AdminListen::Tcp(_) => Hosts::Any,
        #[cfg(unix)]
        AdminListen::Unix(_) => Hosts::Any,
    };
    Ok(Guard { hosts, token })
}

fn open_locks(address: SocketAddr) -> Result<(SocketAddr, TcpListener, Backlog), StartError> {
    let open = || {
        let listener = open_listener(address)?;
        Ok((listener.local_addr()?, listener, Backlog::Own))
    };
    open().map_err(|error| StartError::Listen(address, error))
}

fn open_ops(address: SocketAddr) -> Result<(SocketAddr, Listener), StartError> {
    let open = || {
        let listener = open_listener(address)?;
        Ok((listener.local_addr()?, Listener::Tcp(listener)))
    };
    open().map_err(|error| StartError::Ops(address, error))
}

impl From<StartError> for io::Error {
    fn from(error: StartError) -> Self {
        let of_the_system = if let StartError::Listen(_, error) = &error { Some(error.kind()) } else { None };
        Self::new(of_the_system.unwrap_or(io::ErrorKind::InvalidInput), error)
    }
}

fn open_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that is started again finds its port still named by closed connections.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn default_shards() -> NonZeroUsize {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::MIN.saturating_add(cores * SHARDS_PER_CORE - 1)
}
