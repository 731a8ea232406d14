//! A client of HTTP/1.1 in raw text.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::client::PATIENCE;

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// One request without a body, and its answer.
#[track_caller]
pub(crate) fn request(address: SocketAddr, method: &str, target: &str) -> Response {
    request_with(address, method, target, "")
}

/// The same with more headers, each with the end of its line.
#[track_caller]
pub(crate) fn request_with(address: SocketAddr, method: &str, target: &str, headers: &str) -> Response {
    exchange(connect(address), &format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n"))
}

#[track_caller]
pub(crate) fn get(address: SocketAddr, target: &str) -> Response {
    request(address, "GET", target)
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request as it is written, and reads its answer.
#[track_caller]
pub(crate) fn exchange(mut stream: impl Read + Write, request: &str) -> Response {
    stream.write_all(request.as_bytes()).unwrap();
    let (mut response, mut bytes) = read_head(&mut stream);
    let length: usize = response.header("content-length").unwrap().parse().unwrap();
    while bytes.len() < length {
        read_some(&mut stream, &mut bytes);
    }
    response.body = String::from_utf8(bytes).unwrap();
    response
}

/// The head of an answer, and what has come of its body with it.
#[track_caller]
pub(crate) fn read_head(stream: &mut impl Read) -> (Response, Vec<u8>) {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        read_some(stream, &mut bytes);
    };
    let body = bytes.split_off(head);
    let text = std::str::from_utf8(&bytes).unwrap();
    let mut lines = text.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    (Response { status, headers, body: String::new() }, body)
}

#[track_caller]
fn read_some(stream: &mut impl Read, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 1 << 13];
    let read = stream.read(&mut buffer).unwrap();
    assert_ne!(read, 0, "the answer breaks off after {:?}", String::from_utf8_lossy(bytes));
    bytes.extend_from_slice(&buffer[..read]);
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().map(|(name, _)| name.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }
}

/// A name as one segment of a path: everything that could be encoded is.
pub(crate) fn encoded(name: &str) -> String {
    use std::fmt::Write as _;

    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02x}").unwrap();
        }
        text
    })
}
