//! `monolock run`: a command that runs while a lock is held, and not a moment longer.
//!
//! The command starts at most once, after the grant. From then on three things can end the turn: the command ends, and
//! its status is passed on; the lock is lost, and the command's whole process group is ended; or this process dies, and
//! the command is told by the system. All of it happens on the main thread, because the system takes the end of the
//! thread that started a process for the end of its parent.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use monolock_client::{Client, Error, ErrorKind, LockGuard, LossReason};
use nix::sys::signal::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix;
use tokio::time::{sleep, timeout};

use crate::cli::{Patience, RunArgs};
use crate::failure::{CONTENDED, DENIED, Failure, LOST, NOT_OBTAINED, RUN_FAILED, UNREACHABLE, USAGE};
use crate::job::{Change, Job};
use crate::own;
use crate::secured::Secured;

/// Who waits less does not want to read about it.
const NOTICE_AFTER: Duration = Duration::from_millis(250);

/// New attempts after the first are spread over so long, or the restart of a server becomes a storm
/// (`docs/protocol.md`, "What a client must do").
const SPREAD: Duration = Duration::from_millis(100);

/// The longest time between SIGTERM and SIGKILL, however long the lease.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Obtains the lock and runs the command.
///
/// # Errors
/// The command was not run, or not to its end.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let ended = runtime.block_on(take_turn(args));
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    ended
}

async fn take_turn(args: &RunArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new().map_err(failed)?;
    let guard = tokio::select! {
        biased;
        // Dropping what is under way leaves the queue.
        signal = signals.next() => return Err(Failure::signalled(signal)),
        obtained = obtain(args) => obtained?,
        never = notice(args) => match never {},
    };
    // The command may be at work before this process goes on, and be seen to be.
    let stop_requests = unix::signal(own::kind(Signal::SIGTSTP)).map_err(failed)?;
    let mut job = Job::spawn(&args.command, guard.name(), guard.token()).map_err(failed)?;
    match attend(&guard, &mut job, &mut signals, stop_requests).await.map_err(failed)? {
        Ending::Ended(status) => {
            guard.release().await;
            Ok(ExitCode::from(status))
        }
        Ending::Lost(reason) => {
            job.end(grace(args.lease.as_duration())).await;
            let name = guard.name();
            Err(Failure::new(
                LOST,
                format_args!("lost lock {name:?} while the command ran, and ended the command: {reason}"),
            ))
        }
    }
}

/// How the turn came to its end.
enum Ending {
    Ended(u8),
    Lost(LossReason),
}

/// Stands by while the command runs.
async fn attend(
    guard: &LockGuard,
    job: &mut Job,
    signals: &mut Signals,
    mut stop_requests: unix::Signal,
) -> io::Result<Ending> {
    let mut lost = guard.lost();
    loop {
        tokio::select! {
            biased;
            reason = &mut lost => return Ok(Ending::Lost(reason)),
            change = job.changed() => match change? {
                Change::Ended(status) => {
                    // A command that ended after the loss ended unguarded.
                    return Ok(guard.held().loss().map_or(Ending::Ended(status), Ending::Lost));
                }
                Change::Stopped(signal) => job.stop_with_it(signal, || guard.is_held()),
            },
            signal = signals.next() => job.signal(signal),
            Some(()) = stop_requests.recv() => job.stop(|| guard.is_held()),
        }
    }
}

/// The client gives up at 0.8 leases, the server at one. Half of the time between is the command's, half the system's.
fn grace(lease: Duration) -> Duration {
    (lease / 10).min(LONGEST_GRACE)
}

async fn obtain(args: &RunArgs) -> Result<LockGuard, Failure> {
    let RunArgs { server, lease, name, patience, tls, .. } = args;
    let mut client = Client::builder(server);
    if let Some(Secured { config, name, .. }) = tls.read(server, RUN_FAILED)? {
        client = client.tls(config).tls_server_name(name);
    }
    let client = client.build().map_err(|error| Failure::new(USAGE, error))?;
    let obtained = match patience {
        Patience::None => client.try_acquire(name.clone(), *lease).await,
        Patience::Unlimited => queue(&client, args).await,
        Patience::Within(wait) => match timeout(*wait, queue(&client, args)).await {
            Ok(obtained) => obtained,
            Err(_elapsed) => {
                let wait = humantime::format_duration(*wait);
                return Err(Failure::new(NOT_OBTAINED, format_args!("lock {name:?} was not obtained within {wait}")));
            }
        },
    };
    obtained.map_err(|error| Failure::new(status(&error), sentence(&error)))
}

/// Waits for the lock's turn. A server that cannot be reached at first is likely to be misspelt, so that fails at once;
/// a place in the queue that is lost, or a server that is about to stop, is worth another attempt.
async fn queue(client: &Client, args: &RunArgs) -> Result<LockGuard, Error> {
    let RunArgs { lease, name, .. } = args;
    match client.acquire(name.clone(), *lease).await {
        Err(error) if met_a_server(&error) && error.is_retryable() => {
            sleep(SPREAD.mul_f64(fastrand::f64())).await;
            client.acquire_with_retry(name.clone(), *lease).await
        }
        obtained => obtained,
    }
}

fn met_a_server(error: &Error) -> bool {
    error.kind() == ErrorKind::Lost || error.server_code().is_some()
}

fn status(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Contended => CONTENDED,
        ErrorKind::Denied => DENIED,
        ErrorKind::Invalid if error.server_code().is_some() => DENIED,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Unreachable | ErrorKind::Lost => UNREACHABLE,
        ErrorKind::WaitTimeout => NOT_OBTAINED,
        ErrorKind::Cancelled | _ => RUN_FAILED,
    }
}

fn sentence(error: &Error) -> String {
    if error.kind() == ErrorKind::Unreachable && error.server_code().is_none() {
        format!("{error}; see that a server runs there, or name another with --server or MONOLOCK_SERVER")
    } else {
        error.to_string()
    }
}

/// Says once that there is a wait, to somebody who looks.
async fn notice(args: &RunArgs) -> Infallible {
    let RunArgs { server, name, quiet, .. } = args;
    if !quiet && io::stderr().is_terminal() {
        sleep(NOTICE_AFTER).await;
        let _ = writeln!(io::stderr(), "monolock: waiting for lock {name:?} at {server}");
    }
    pending().await
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn failed(error: io::Error) -> Failure {
    Failure::new(RUN_FAILED, format_args!("cannot run the command: {error}"))
}

/// The signals that end a wait and are the command's once it runs. Those that this process was started to ignore, as by
/// `nohup`, stay ignored, here and in the command.
struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    const HEARD: [Signal; 6] =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

    fn new() -> io::Result<Self> {
        let ignored = own::ignored_signals();
        let heard = Self::HEARD.into_iter().filter(|signal| !ignored.contains(*signal));
        heard.map(|signal| Ok((signal, unix::signal(own::kind(signal))?))).collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let heard =
                self.0.iter_mut().find_map(|(signal, stream)| stream.poll_recv(context).is_ready().then_some(*signal));
            heard.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
