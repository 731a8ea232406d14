//! `monolock serve`: a server from its flags to its end.
//!
//! The first SIGTERM or SIGINT begins the controlled stop, which the server bounds by the io-timeout; the second ends
//! the process on the spot. Signals are heard before the address is taken, so that none is lost from the moment on at
//! which others can see the server. A service manager may pass sockets and is told what happens, where it asks for that.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::process::ExitCode;

use monolock_net::{AuditFailed, Server, ServerHandle, StartError, raise_descriptor_limit};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{self, SignalKind};

use crate::activation::Sockets;
use crate::allocator;
use crate::cli::ServeArgs;
use crate::failure::{FAILED, Failure};
use crate::logging;
use crate::operations::not_started;
use crate::service_manager::ServiceManager;

/// Serves until it is told to stop.
///
/// # Errors
/// It cannot begin, or it was told to stop twice.
pub(crate) fn serve(args: &ServeArgs) -> Result<ExitCode, Failure> {
    // The variables that pass them are taken away, which is for a process with one thread.
    let sockets = Sockets::passed()?;
    logging::init(&args.log);
    allocator::give_back_unasked();
    match raise_descriptor_limit() {
        Ok(limit) => tracing::debug!(limit, "open descriptors"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open descriptors"),
    }
    let runtime = Runtime::new().map_err(|error| Failure::new(FAILED, format_args!("cannot start: {error}")))?;
    let ended = runtime.block_on(run(args, sockets));
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn run(args: &ServeArgs, sockets: Sockets) -> Result<(), Failure> {
    let not_heard = |error| Failure::new(FAILED, format_args!("cannot hear signals: {error}"));
    let mut stops = Stops::new().map_err(not_heard)?;
    let hang_ups = unix::signal(SignalKind::hangup()).map_err(not_heard)?;
    // A file that may grow no further is a failed write and not the end of the process, as long as somebody hears the
    // signal.
    let _too_large = unix::signal(SignalKind::from_raw(Signal::SIGXFSZ as i32)).map_err(not_heard)?;
    let server = bind(args, sockets).await?;
    tracing::info!(address = %server.local_addr(), io_timeout = ?args.io_timeout, version = env!("CARGO_PKG_VERSION"), "listening");
    if let Some(address) = server.admin_addr() {
        tracing::info!(%address, "serving the admin API");
    }
    if let Some(address) = server.ops_addr() {
        tracing::info!(%address, "serving the ops endpoints");
    }
    let handle = server.handle();
    let manager = ServiceManager::of_process();
    tokio::select! {
        // In this order the server serves before that is said.
        biased;
        stopped = attend(handle.clone(), server.run(), &mut stops, &manager) => stopped,
        never = manager.keep_posted(&handle) => match never {},
        never = reload(&handle, hang_ups, &manager) => match never {},
    }
}

/// Runs the server until it has stopped.
async fn attend(
    handle: ServerHandle,
    running: impl Future<Output = Result<(), AuditFailed>>,
    stops: &mut Stops,
    manager: &ServiceManager,
) -> Result<(), Failure> {
    let mut stopping = false;
    let mut running = pin!(running);
    loop {
        let signal = tokio::select! {
            stopped = &mut running => {
                let stopped = stopped.map_err(|error| Failure::new(FAILED, format_args!("stopped: {error} (--audit-log)")));
                tracing::info!("stopped");
                return stopped;
            }
            signal = stops.next() => signal,
        };
        if stopping {
            tracing::warn!(%signal, "ending at once");
            return Err(Failure::signalled(signal));
        }
        tracing::info!(%signal, "stopping: no new connections, and code 01 to every client");
        stopping = true;
        handle.shutdown();
        manager.stopping();
    }
}

/// Reads the server's files anew at each hang-up, for ever. Those that come meanwhile are one more.
async fn reload(handle: &ServerHandle, mut hang_ups: unix::Signal, manager: &ServiceManager) -> Infallible {
    while hang_ups.recv().await.is_some() {
        manager.reloading().await;
        let reloading = handle.clone();
        // A disk that hangs, or a pipe in a file's place, must not hold up those who serve.
        let reloaded = tokio::task::spawn_blocking(move || reloading.reload());
        match reloaded.await {
            Ok(outcome) => {
                match &outcome {
                    Ok(()) => {
                        tracing::info!("reloaded: certificates and access-control list; the audit log is opened anew");
                    }
                    Err(error) => {
                        tracing::error!(%error, "not reloaded: the old certificates and access-control list stay");
                    }
                }
                manager.reloaded(handle, outcome).await;
            }
            Err(error) => {
                tracing::error!(%error, "not reloaded");
                manager.reloaded(handle, Err(error)).await;
            }
        }
    }
    std::future::pending().await
}

/// Takes the sockets that were passed, and else the first address that can be had.
async fn bind(args: &ServeArgs, sockets: Sockets) -> Result<Server, Failure> {
    let ServeArgs { listen, io_timeout, log: _, security, oversight, limits } = args;
    let builder = security.apply(Server::builder().io_timeout(*io_timeout))?;
    let builder = limits.apply(oversight.apply(builder).await?);
    let is_passed = sockets.has_locks();
    let builder = sockets.apply(builder, oversight)?;
    if is_passed {
        return builder.bind().map_err(|error| not_started(&error, listen));
    }
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

/// Whether another address of the same name is worth a try. One of another family would serve half of what was asked
/// for where the port is taken.
fn is_for_another_family(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// The signals that stop the server.
struct Stops {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Stops {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::SIGTERM,
            _ = self.interrupt.recv() => Signal::SIGINT,
        }
    }
}
