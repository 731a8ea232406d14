//! The file, pipe or standard output that the audit log is written to.
//!
//! Whatever it is, it is not waited for in writing, and a file may be renamed or deleted at any time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
#[cfg(unix)]
use std::os::fd::AsFd as _;
#[cfg(windows)]
use std::os::windows::io::AsHandle as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::audit::{AuditFailure, AuditSink};

/// A sink, open or to be opened by the next write.
#[derive(Debug)]
pub(crate) struct Target {
    sink: AuditSink,
    file: Option<File>,
}

/// What was found where the file was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reopened {
    Same,
    Another,
}

impl Target {
    /// Opens the sink. A named pipe that nobody reads yet is opened later, where a failure does not stop the server.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn open(sink: &AuditSink, on_failure: AuditFailure) -> io::Result<Self> {
        let file = match open(sink) {
            Err(error) if on_failure == AuditFailure::Continue && is_unread_pipe(&error) => None,
            file => Some(file?),
        };
        Ok(Self { sink: sink.clone(), file })
    }

    /// What it is of.
    pub(crate) const fn sink(&self) -> &AuditSink {
        &self.sink
    }

    /// Writes once, as much as it takes.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&self.sink)?,
        };
        self.file.insert(file).write(bytes)
    }

    /// Opens the file anew. Where that fails the old one stays.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn reopen(&mut self) -> io::Result<Reopened> {
        let new = match &self.sink {
            AuditSink::Stdout => return Ok(Reopened::Same),
            AuditSink::File(_) => open(&self.sink)?,
        };
        let is_same = self.file.as_ref().is_some_and(|old| is_same(old, &new));
        self.file = Some(new);
        Ok(if is_same { Reopened::Same } else { Reopened::Another })
    }

    /// Closes a file that has no name any more; says whether it had one.
    pub(crate) fn forget_deleted(&mut self) -> bool {
        let is_deleted = match &self.sink {
            AuditSink::Stdout => false,
            AuditSink::File(path) => self.file.as_ref().is_some_and(|file| is_deleted(path, file)),
        };
        if is_deleted {
            self.file = None;
        }
        is_deleted
    }

    /// Whether it is a file that cannot have so many bytes of ours any more: it was emptied.
    pub(crate) fn is_shorter_than(&self, bytes: usize) -> bool {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.is_some_and(|metadata| metadata.is_file() && metadata.len() < bytes as u64)
    }

    /// Waits until a pipe takes more, at most so long; says whether it does. Whether anything else does is not to be
    /// known.
    #[cfg(unix)]
    pub(crate) fn wait_for_room(&self, patience: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let Some(file) = self.file.as_ref().filter(|file| is_pipe(file)) else {
            thread::sleep(patience);
            return false;
        };
        let mut events = [PollFd::new(file, PollFlags::OUT)];
        let most = Timespec::try_from(patience).expect("the waits of this module are short");
        let has_come = poll(&mut events, Some(&most)).is_ok_and(|events| events > 0);
        let is_broken = events[0].revents().contains(PollFlags::ERR);
        if is_broken {
            thread::sleep(patience);
        }
        has_come && !is_broken
    }

    #[cfg(not(unix))]
    pub(crate) fn wait_for_room(&self, patience: Duration) -> bool {
        thread::sleep(patience);
        false
    }
}

/// Opens for appending. A named pipe is not waited for, here nor in writing: without a reader it fails, and is tried
/// again later.
fn open(sink: &AuditSink) -> io::Result<File> {
    let path = match sink {
        AuditSink::File(path) => path,
        // Not the handle of the standard library: what its buffer has taken of a write that fails is not to be known.
        #[cfg(unix)]
        AuditSink::Stdout => return io::stdout().as_fd().try_clone_to_owned().map(File::from),
        #[cfg(not(unix))]
        AuditSink::Stdout => return io::stdout().as_handle().try_clone_to_owned().map(File::from),
    };
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;

        let non_blocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
        options.mode(0o640).custom_flags(non_blocking);
    }
    options.open(path)
}

#[cfg(unix)]
fn is_unread_pipe(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::NXIO)
}

#[cfg(not(unix))]
fn is_unread_pipe(_error: &io::Error) -> bool {
    false
}

#[cfg(unix)]
fn is_pipe(file: &File) -> bool {
    use std::os::unix::fs::FileTypeExt as _;

    file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(unix)]
fn is_deleted(_path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

#[cfg(not(unix))]
fn is_deleted(path: &Path, _file: &File) -> bool {
    !path.exists()
}

#[cfg(unix)]
fn is_same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) else { return false };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_one: &File, _other: &File) -> bool {
    false
}
