//! Sockets that listen before the server is there, as a service manager opens and passes them.
//!
//! They outlive the server: while it is replaced by the next one, connections wait in them and nobody is refused.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
#[cfg(unix)]
use std::os::unix::net::UnixListener as StdUnixListener;
#[cfg(unix)]
use std::path::PathBuf;

use socket2::SockRef;
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

use crate::admin::AdminListen;
use crate::http::Listener;

/// What a server serves on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketPurpose {
    /// The locks.
    Locks,
    /// The admin API.
    Admin,
    /// Health and metrics.
    Ops,
}

/// A socket for the admin API, which listens already.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminSocket {
    /// At a TCP address.
    Tcp(StdTcpListener),
    /// At a path. Whoever may connect there is up to whoever made it.
    #[cfg(unix)]
    Unix(StdUnixListener),
}

/// Takes a socket over, and says where it is.
///
/// # Errors
/// It does not listen, and those of the operating system.
pub(crate) fn tcp(socket: &StdTcpListener) -> io::Result<(SocketAddr, TcpListener)> {
    check_listens(&SockRef::from(socket))?;
    let socket = socket.try_clone()?;
    socket.set_nonblocking(true)?;
    Ok((socket.local_addr()?, TcpListener::from_std(socket)?))
}

impl AdminSocket {
    pub(crate) fn listener(&self) -> io::Result<(AdminListen, Listener)> {
        match self {
            Self::Tcp(socket) => {
                tcp(socket).map(|(address, socket)| (AdminListen::Tcp(address), Listener::Tcp(socket)))
            }
            #[cfg(unix)]
            Self::Unix(socket) => {
                check_listens(&SockRef::from(socket))?;
                let socket = socket.try_clone()?;
                socket.set_nonblocking(true)?;
                let path = path(&socket)?;
                let listener = Listener::Unix { listener: UnixListener::from_std(socket)?, _file: None };
                Ok((AdminListen::Unix(path), listener))
            }
        }
    }
}

impl fmt::Display for SocketPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Locks => "the locks",
            Self::Admin => "the admin API",
            Self::Ops => "health and metrics",
        })
    }
}

#[cfg(target_os = "linux")]
fn check_listens(socket: &SockRef<'_>) -> io::Result<()> {
    if socket.is_listener()? { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not listen")) }
}

/// The first connection tells, where the system cannot be asked.
#[cfg(not(target_os = "linux"))]
fn check_listens(_socket: &SockRef<'_>) -> io::Result<()> {
    Ok(())
}

/// Where it is, for people to read; one of Linux's abstract names begins with `@`, as everywhere.
#[cfg(unix)]
fn path(socket: &StdUnixListener) -> io::Result<PathBuf> {
    let address = socket.local_addr()?;
    if let Some(path) = address.as_pathname() {
        return Ok(path.to_owned());
    }
    #[cfg(target_os = "linux")]
    if let Some(name) = std::os::linux::net::SocketAddrExt::as_abstract_name(&address) {
        return Ok(format!("@{}", String::from_utf8_lossy(name)).into());
    }
    Ok(PathBuf::new())
}
