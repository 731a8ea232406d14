//! Sockets that a service manager has opened and passes, as `sd_listen_fds(3)` has it: `LISTEN_PID`, `LISTEN_FDS` and
//! `LISTEN_FDNAMES`.
//!
//! Descriptors are taken only where they are addressed to this process: variables that somebody left over must not make
//! a server of whatever is open. A socket that is passed and not understood ends the start, since whoever passed it
//! relies on it. On other systems than Linux none are passed.

use std::net::TcpListener;

use monolock_net::{AdminSocket, ServerBuilder};

use crate::failure::Failure;
use crate::operations::OversightArgs;

/// What was passed.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    locks: Option<TcpListener>,
    admin: Option<AdminSocket>,
    ops: Option<TcpListener>,
}

impl Sockets {
    /// Takes what was passed to this process. To be called once, while it has one thread.
    ///
    /// # Errors
    /// A variable that is wrong, or a socket that is of no use here.
    pub(crate) fn passed() -> Result<Self, Failure> {
        #[cfg(target_os = "linux")]
        return linux::passed();
        #[cfg(not(target_os = "linux"))]
        Ok(Self::default())
    }

    /// Whether there is one for the locks.
    pub(crate) const fn has_locks(&self) -> bool {
        self.locks.is_some()
    }

    /// Gives them to the server.
    ///
    /// # Errors
    /// What is said of the admin API does not go together.
    pub(crate) fn apply(self, mut builder: ServerBuilder, oversight: &OversightArgs) -> Result<ServerBuilder, Failure> {
        let Self { locks, admin, ops } = self;
        if let Some(socket) = locks {
            builder = builder.listen_on(socket);
        }
        if let Some(socket) = admin {
            builder = builder.admin_on(socket, oversight.access()?);
        }
        if let Some(socket) = ops {
            builder = builder.ops_on(socket);
        }
        Ok(builder)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::env;
    use std::fmt::Display;
    use std::io;
    use std::net::TcpListener;
    use std::process::id;

    use listenfd::ListenFd;
    use monolock_net::AdminSocket;

    use super::Sockets;
    use crate::failure::{Failure, USAGE};

    /// The number of the first descriptor that is passed.
    const FIRST: usize = 3;

    /// More cannot be meant, since each purpose has one.
    const MOST: usize = 16;

    pub(super) fn passed() -> Result<Sockets, Failure> {
        let mut sockets = Sockets::default();
        let names = names()?;
        let mut descriptors = if names.is_empty() { ListenFd::empty() } else { ListenFd::from_env() };
        for (index, name) in names.iter().enumerate() {
            let wrong = |why: &dyn Display| {
                usage(format_args!("of the sockets that were passed, descriptor {} ({name:?}): {why}", FIRST + index))
            };
            let none_before = match purpose(name) {
                Some(Purpose::Locks) => {
                    let socket = tcp(&mut descriptors, index).map_err(|error| wrong(&error))?;
                    sockets.locks.replace(socket).is_none()
                }
                Some(Purpose::Admin) => {
                    let socket = admin(&mut descriptors, index).map_err(|error| wrong(&error))?;
                    sockets.admin.replace(socket).is_none()
                }
                Some(Purpose::Ops) => {
                    let socket = tcp(&mut descriptors, index).map_err(|error| wrong(&error))?;
                    sockets.ops.replace(socket).is_none()
                }
                None => return Err(wrong(&"its name is none of monolock, admin and ops (FileDescriptorName=)")),
            };
            if !none_before {
                return Err(wrong(&"there is one for that already, and one alone can be served"));
            }
        }
        Ok(sockets)
    }

    /// The names of the descriptors that are passed to this process, in their order; an empty one where there is none.
    fn names() -> Result<Vec<String>, Failure> {
        let said = |variable| env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
        let number = |variable, text: String| {
            text.parse::<usize>().map_err(|_| usage(format_args!("{variable} is {text:?}, but must be a whole number")))
        };
        let (Some(pid), Some(count)) = (said("LISTEN_PID"), said("LISTEN_FDS")) else { return Ok(Vec::new()) };
        if number("LISTEN_PID", pid)? != usize::try_from(id()).unwrap_or(usize::MAX) {
            return Ok(Vec::new());
        }
        let count = number("LISTEN_FDS", count)?;
        if count > MOST {
            return Err(usage(format_args!("LISTEN_FDS is {count}, but must be at most {MOST}")));
        }
        let Some(names) = said("LISTEN_FDNAMES") else { return Ok(vec![String::new(); count]) };
        let names: Vec<String> = names.split(':').map(str::to_owned).collect();
        if names.len() == count {
            Ok(names)
        } else {
            Err(usage(format_args!("LISTEN_FDNAMES has {} names, and LISTEN_FDS is {count}", names.len())))
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Purpose {
        Locks,
        Admin,
        Ops,
    }

    /// What a socket of this name is for. One without a name is that of the locks. A unit's own name will do, which
    /// systemd gives where the unit gives none.
    fn purpose(name: &str) -> Option<Purpose> {
        match name.strip_suffix(".socket").unwrap_or(name) {
            "" | "unknown" | "monolock" => Some(Purpose::Locks),
            "admin" | "monolock-admin" => Some(Purpose::Admin),
            "ops" | "monolock-ops" => Some(Purpose::Ops),
            _ => None,
        }
    }

    fn tcp(descriptors: &mut ListenFd, index: usize) -> io::Result<TcpListener> {
        descriptors.take_tcp_listener(index)?.ok_or_else(missing)
    }

    fn admin(descriptors: &mut ListenFd, index: usize) -> io::Result<AdminSocket> {
        match descriptors.take_unix_listener(index) {
            Ok(socket) => socket.map(AdminSocket::Unix).ok_or_else(missing),
            Err(_) => tcp(descriptors, index).map(AdminSocket::Tcp),
        }
    }

    fn missing() -> io::Error {
        io::Error::from(io::ErrorKind::NotFound)
    }

    fn usage(sentence: impl Display) -> Failure {
        Failure::new(USAGE, sentence)
    }
}
