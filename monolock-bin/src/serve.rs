//! `monolock serve`: a server from its flags to its end.
//!
//! The first SIGTERM or SIGINT begins the controlled stop, which the server bounds by the io-timeout; the second ends the process on the
//! spot. Signals are heard before the address is taken, so that none is lost from the moment on at which others can see the server.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::process::ExitCode;

use monolock_net::{Server, raise_descriptor_limit};
use nix::sys::signal::Signal;
use tokio::net::lookup_host;
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

use crate::cli::ServeArgs;
use crate::failure::{FAILED, Failure};
use crate::logging;
use crate::value::ListenAddress;

/// Serves until it is told to stop.
///
/// # Errors
/// It cannot begin, or it was told to stop twice.
pub(crate) fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    logging::init(&args.log);
    match raise_descriptor_limit() {
        Ok(limit) => tracing::debug!(limit, "open descriptors"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open descriptors"),
    }
    let runtime = Runtime::new().map_err(|error| Failure::new(FAILED, format_args!("cannot start: {error}")))?;
    let ended = runtime.block_on(run(args));
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn run(args: &ServeArgs) -> Result<(), Failure> {
    let mut signals =
        Signals::new().map_err(|error| Failure::new(FAILED, format_args!("cannot hear signals: {error}")))?;
    let server = bind(args).await.map_err(|error| {
        Failure::new(
            FAILED,
            format_args!(
                "cannot listen on {}: {error}; choose another address with --listen or MONOLOCK_LISTEN_ADDRESS",
                args.listen
            ),
        )
    })?;
    tracing::info!(address = %server.local_addr(), io_timeout = ?args.io_timeout, version = env!("CARGO_PKG_VERSION"), "listening");
    attend(server, &mut signals).await
}

/// Runs the server and heeds signals.
async fn attend(server: Server, signals: &mut Signals) -> Result<(), Failure> {
    let handle = server.handle();
    let mut stopping = false;
    let mut running = pin!(server.run());
    loop {
        let heard = tokio::select! {
            () = &mut running => {
                tracing::info!("stopped");
                return Ok(());
            }
            heard = signals.next() => heard,
        };
        match heard {
            Heard::HangUp => tracing::info!("nothing to reload"),
            Heard::Stop(signal) if stopping => {
                tracing::warn!(%signal, "ending at once");
                return Err(Failure::signalled(signal));
            }
            Heard::Stop(signal) => {
                tracing::info!(%signal, "stopping: no new connections, and code 01 to every client");
                stopping = true;
                handle.shutdown();
            }
        }
    }
}

/// Takes the first address that can be had.
async fn bind(args: &ServeArgs) -> io::Result<Server> {
    let ServeArgs { listen, io_timeout, .. } = args;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in resolve(listen).await? {
        match Server::builder().listen(address).io_timeout(*io_timeout).bind() {
            Ok(server) => return Ok(server),
            // Another family's address would serve half of what was asked for.
            Err(error) if matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied) => {
                return Err(error);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn resolve(listen: &ListenAddress) -> io::Result<Vec<SocketAddr>> {
    let ListenAddress { host, port } = listen;
    match host {
        Some(host) => Ok(lookup_host((host.as_str(), *port)).await?.collect()),
        // The first means both families where the machine has both.
        None => Ok(vec![(Ipv6Addr::UNSPECIFIED, *port).into(), (Ipv4Addr::UNSPECIFIED, *port).into()]),
    }
}

/// The signals that the server heeds.
struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

/// What a signal asks for.
enum Heard {
    Stop(Signal),
    HangUp,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.terminate.recv() => Heard::Stop(Signal::SIGTERM),
            _ = self.interrupt.recv() => Heard::Stop(Signal::SIGINT),
            _ = self.hang_up.recv() => Heard::HangUp,
        }
    }
}
