//! The process's limit of open descriptors: each connection takes one.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open descriptors to the hard one, and returns it; `None` is no limit.
///
/// It concerns the whole process, so it is for a program to call and not for [`Server`](crate::Server).
///
/// # Errors
/// Those of the operating system. The limit is then what it was.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current)
}
