//! Descriptors that connections leave to admin, ops, and the reading of files, so that a server which is full can still
//! be looked after.
//!
//! The operating system gives the lowest number that is free, so the number of a new descriptor says how many are open,
//! whoever opened them.

use tokio::net::TcpStream;

/// How many connections each HTTP endpoint may have where the machine is not scant of descriptors.
pub(crate) const HTTP_CONNECTIONS: usize = 32;

/// For files that are read or opened anew meanwhile.
#[cfg(unix)]
const FILES: u64 = 6;

/// The upper end of the descriptors that the process may open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserve {
    /// The lowest number of a descriptor in it; `None` where nothing is reserved.
    #[cfg(unix)]
    begins_at: Option<u64>,
    /// How many connections each HTTP endpoint may have.
    pub(crate) http_connections: usize,
}

#[cfg(unix)]
impl Reserve {
    /// Nothing is reserved.
    pub(crate) const fn none() -> Self {
        Self { begins_at: None, http_connections: HTTP_CONNECTIONS }
    }

    /// A quarter of what the process may open, and no more than two endpoints need.
    pub(crate) fn of_process() -> Self {
        use rustix::process::{Resource, getrlimit};

        let Some(limit) = getrlimit(Resource::Nofile).current else { return Self::none() };
        let size = (limit / 4).min(2 * HTTP_CONNECTIONS as u64 + FILES);
        let each = usize::try_from(size.saturating_sub(FILES) / 2).unwrap_or(HTTP_CONNECTIONS);
        Self { begins_at: Some(limit - size), http_connections: each.max(1) }
    }

    /// Whether a connection has got a descriptor of the reserve.
    pub(crate) fn has(&self, stream: &TcpStream) -> bool {
        use std::os::fd::AsRawFd as _;

        self.is_begun_by(stream.as_raw_fd())
    }

    /// Whether a descriptor that is opened now would be one of the reserve.
    pub(crate) fn is_next(&self, listener: &impl std::os::fd::AsFd) -> bool {
        use std::os::fd::AsRawFd as _;

        let next = || rustix::io::fcntl_dupfd_cloexec(listener, 0);
        self.begins_at.is_some() && next().map_or(true, |next| self.is_begun_by(next.as_raw_fd()))
    }

    fn is_begun_by(&self, descriptor: std::os::fd::RawFd) -> bool {
        self.begins_at.is_some_and(|begin| u64::try_from(descriptor).is_ok_and(|number| number >= begin))
    }
}

#[cfg(not(unix))]
impl Reserve {
    pub(crate) const fn none() -> Self {
        Self { http_connections: HTTP_CONNECTIONS }
    }

    pub(crate) const fn of_process() -> Self {
        Self::none()
    }

    pub(crate) const fn has(&self, _stream: &TcpStream) -> bool {
        false
    }

    pub(crate) const fn is_next<T>(&self, _listener: &T) -> bool {
        false
    }
}
