//! `monolock serve`: a server from its flags to its end.
//!
//! The first SIGTERM or SIGINT begins the controlled stop, which the server bounds by the io-timeout; the second ends the process on the
//! spot. Signals are heard before the address is taken, so that none is lost from the moment on at which others can see the server.

use std::io;
use std::pin::pin;
use std::process::ExitCode;

use monolock_net::{Server, StartError, raise_descriptor_limit};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

use crate::cli::ServeArgs;
use crate::failure::{FAILED, Failure};
use crate::logging;
use crate::operations::not_started;

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
    let server = bind(args).await?;
    tracing::info!(address = %server.local_addr(), io_timeout = ?args.io_timeout, version = env!("CARGO_PKG_VERSION"), "listening");
    if let Some(address) = server.admin_addr() {
        tracing::info!(%address, "serving the admin API");
    }
    if let Some(address) = server.ops_addr() {
        tracing::info!(%address, "serving the ops endpoints");
    }
    attend(server, &mut signals).await
}

/// Runs the server and heeds signals.
async fn attend(server: Server, signals: &mut Signals) -> Result<(), Failure> {
    let handle = server.handle();
    let mut stopping = false;
    let mut running = pin!(server.run());
    loop {
        let heard = tokio::select! {
            stopped = &mut running => {
                let stopped = stopped.map_err(|error| Failure::new(FAILED, format_args!("stopped: {error} (--audit-log)")));
                tracing::info!("stopped");
                return stopped;
            }
            heard = signals.next() => heard,
        };
        match heard {
            Heard::HangUp => match handle.reload() {
                Ok(()) => {
                    tracing::info!("reloaded: certificates and access-control list; the audit log is opened anew")
                }
                Err(error) => {
                    tracing::error!(%error, "not reloaded: the old certificates and access-control list stay")
                }
            },
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
async fn bind(args: &ServeArgs) -> Result<Server, Failure> {
    let ServeArgs { listen, io_timeout, log: _, security, oversight, limits } = args;
    let builder = security.apply(Server::builder().io_timeout(*io_timeout))?;
    let builder = limits.apply(oversight.apply(builder).await?);
    let not_listening = |error| Failure::new(FAILED, format_args!("cannot look up --listen {listen}: {error}"));
    let addresses = listen.resolve().await.map_err(not_listening)?;
    let mut failure = Failure::new(FAILED, format_args!("--listen {listen}: the name has no address"));
    for address in addresses {
        match builder.clone().listen(address).bind() {
            Ok(server) => return Ok(server),
            Err(StartError::Listen(_, error)) if is_for_another_family(&error) => {
                failure = not_started(&StartError::Listen(address, error), listen);
            }
            Err(error) => return Err(not_started(&error, listen)),
        }
    }
    Err(failure)
}

/// Whether another address of the same name is worth a try. One of another family would serve half of what was asked for where the port is taken.
fn is_for_another_family(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
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
