//! A Unix socket that only its owner can reach, from its first moment on.
//!
//! The socket is bound in a directory that is closed to others, given its mode there, and moved to its place: the
//! process's umask, which all threads share, is left alone, and nobody ever sees the socket with other rights.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// The file of a socket, which is removed with this.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file that has taken the place since is another's.
    identity: (u64, u64),
}

/// Listens at `path`, with mode 0600. The socket of a server that is gone is replaced.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] where a server lives, [`io::ErrorKind::AlreadyExists`] where something else is in the
/// place, and those of the operating system.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    check_place(path)?;
    let workshop = Workshop::beside(path)?;
    let socket = workshop.0.join("s");
    let listener = StdUnixListener::bind(&socket)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
    let metadata = fs::symlink_metadata(&socket)?;
    fs::rename(&socket, path)?;
    let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener)?, file))
}

/// Whether the place is free, or held by a socket that nobody listens on any more.
fn check_place(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A living server with a full queue is not waited for.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        Ok(()) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.identity);
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// A directory that nobody else may look into, which is removed with this.
struct Workshop(PathBuf);

impl Workshop {
    /// Its name is short, since the path of a socket must be.
    fn beside(path: &Path) -> io::Result<Self> {
        /// What a server that was killed in the middle has left behind is passed over.
        const ATTEMPTS: u32 = 100;

        let parent = path.parent().unwrap_or(Path::new(""));
        let mut attempt = 0;
        loop {
            let directory = parent.join(format!(".{:x}.{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => return Ok(Self(directory)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // After a failure the socket may still be in it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
