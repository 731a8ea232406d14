//! As much HTTP as it takes to ask the server how it is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::run::Result;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The body of what a path on an address answers.
pub(crate) fn get(address: (Ipv4Addr, u16), path: &str) -> Result<String> {
    let connect = || {
        let stream = TcpStream::connect_timeout(&SocketAddr::from(address), TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        ask(stream, path)
    };
    connect().map_err(|error| format!("GET {path}: {error}"))
}

/// The same, on a Unix socket.
pub(crate) fn get_unix(socket: &Path, path: &str) -> Result<String> {
    let connect = || {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        ask(stream, path)
    };
    connect().map_err(|error| format!("GET {path}: {error}"))
}

fn ask(mut stream: impl Read + Write, path: &str) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.contains(" 200 ") {
        return Ok(body.to_owned());
    }
    Err(std::io::Error::other(head.lines().next().unwrap_or("no answer").to_owned()))
}

/// The value of a metric without labels.
pub(crate) fn metric(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| format!("there is no metric {name}"))
}
