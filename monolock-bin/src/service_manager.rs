//! What a service manager is told, as `sd_notify(3)` has it: that the server is ready, reloads, stops, and is alive.
//!
//! It is told where it asks to be, by `NOTIFY_SOCKET`; elsewhere nothing of this happens. A manager that does not take
//! what it is told holds nobody up.

use std::cell::RefCell;
use std::convert::Infallible;
use std::env;
use std::fmt::{Display, Write as _};
use std::process::id;
use std::time::Duration;

use monolock_net::{Counts, ServerHandle};

use crate::text::counted;

/// The server's line to the service manager.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    #[cfg(target_os = "linux")]
    socket: Option<tokio::net::UnixDatagram>,
    /// Why the last reload failed, if it did.
    trouble: RefCell<Option<String>>,
}

/// How often it is told how much there is to do, where it asks for no sign of life.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// How long it is waited for, if it does not take what it is told.
#[cfg(target_os = "linux")]
const PATIENCE: Duration = Duration::from_secs(1);

impl ServiceManager {
    /// The one that started this process. To be called on a runtime.
    pub(crate) fn of_process() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            socket: linux::socket(),
            trouble: RefCell::default(),
        }
    }

    /// The server serves: says so, and from then on how much there is to do, and that it is alive, which it is while
    /// none of its locks is stuck.
    pub(crate) async fn keep_posted(&self, handle: &ServerHandle) -> Infallible {
        if !self.listens() {
            return std::future::pending().await;
        }
        let watchdog = watchdog();
        let mut said = self.status(handle.counts());
        self.tell(&format!("READY=1\n{said}")).await;
        let mut ticks = tokio::time::interval(watchdog.map_or(STATUS_INTERVAL, |patience| patience / 2));
        loop {
            ticks.tick().await;
            let counting = handle.clone();
            let Ok(counts) = tokio::task::spawn_blocking(move || counting.counts()).await else { continue };
            let status = self.status(counts);
            let news = if status == said { "" } else { &status };
            let alive = if watchdog.is_some() { "WATCHDOG=1\n" } else { "" };
            if !(news.is_empty() && alive.is_empty()) {
                self.tell(&format!("{alive}{news}")).await;
            }
            said = status;
        }
    }

    /// Files are about to be read anew.
    pub(crate) async fn reloading(&self) {
        #[cfg(target_os = "linux")]
        if self.socket.is_some() {
            self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", linux::monotonic_us())).await;
        }
    }

    /// Files were read anew, or could not be.
    pub(crate) async fn reloaded(&self, handle: &ServerHandle, outcome: Result<(), impl Display>) {
        *self.trouble.borrow_mut() = outcome.err().map(|error| error.to_string());
        let status = self.status(handle.counts());
        self.tell(&format!("READY=1\n{status}")).await;
    }

    /// The stop begins. It does not wait for the manager.
    pub(crate) fn stopping(&self) {
        #[cfg(target_os = "linux")]
        if let Some(socket) = &self.socket {
            let _ = socket.try_send(b"STOPPING=1\nSTATUS=stopping: every client is told\n");
        }
    }

    /// One line for people.
    fn status(&self, counts: Counts) -> String {
        let Counts { locks, sessions, .. } = counts;
        let mut line = format!("STATUS={}, {}", counted(locks, "lock"), counted(sessions, "session"));
        if let Some(trouble) = &*self.trouble.borrow() {
            // A line feed would begin another message.
            let _ = write!(line, "; not reloaded, the old files are served: {}", trouble.replace('\n', " "));
        }
        line + "\n"
    }
}

#[cfg(not(target_os = "linux"))]
impl ServiceManager {
    const fn listens(&self) -> bool {
        false
    }

    async fn tell(&self, _what: &str) {}
}

#[cfg(target_os = "linux")]
impl ServiceManager {
    const fn listens(&self) -> bool {
        self.socket.is_some()
    }

    async fn tell(&self, what: &str) {
        let Some(socket) = &self.socket else { return };
        match tokio::time::timeout(PATIENCE, socket.send(what.as_bytes())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the service manager cannot be told: NOTIFY_SOCKET"),
            Err(_elapsed) => tracing::warn!("the service manager does not take what it is told: NOTIFY_SOCKET"),
        }
    }
}

/// Within what time a sign of life is wanted from this process, if it is.
fn watchdog() -> Option<Duration> {
    let number = |variable| env::var(variable).ok()?.parse::<u64>().ok();
    let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(id()));
    // Half of it is waited for, which must be something.
    number("WATCHDOG_USEC").filter(|us| *us > 1 && is_meant).map(Duration::from_micros)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::env;
    use std::ffi::OsStr;
    use std::io;
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram as StdUnixDatagram};

    use nix::time::{ClockId, clock_gettime};
    use tokio::net::UnixDatagram;

    /// The socket at which the manager listens, if it does.
    pub(super) fn socket() -> Option<UnixDatagram> {
        let place = env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty())?;
        match connect(&place) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, ?place, "the service manager cannot be told: NOTIFY_SOCKET");
                None
            }
        }
    }

    /// A path, or behind a `@` a name that is in no file system.
    fn connect(place: &OsStr) -> io::Result<UnixDatagram> {
        let address = match place.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(place)?,
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "it must begin with / or @")),
        };
        let socket = StdUnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        UnixDatagram::from_std(socket)
    }

    /// The clock that the manager compares a reload with.
    pub(super) fn monotonic_us() -> i128 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
        i128::from(now.tv_sec()) * 1_000_000 + i128::from(now.tv_nsec()) / 1000
    }
}
