//! A reader of the event stream, in raw text.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::admin::{DESCRIPTION, validator};
use crate::http::{self, Response};

/// What has come of a stream, piece by piece.
#[derive(Debug)]
pub(crate) struct Follower {
    stream: TcpStream,
    /// Of chunks that are not whole yet.
    raw: Vec<u8>,
    /// Of pieces that are not whole yet.
    text: String,
    pieces: VecDeque<String>,
    /// The last chunk has come, the one without anything in it.
    has_ended: bool,
    /// As a browser keeps it.
    pub(crate) last_id: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

/// What may stand between two empty lines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    Event(Event),
    Comment(String),
    End,
}

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| validator(&DESCRIPTION["components"]["schemas"]["Event"]));

impl Follower {
    /// Follows from the first event on, which is a `hello`.
    #[track_caller]
    pub(crate) fn start(admin: SocketAddr, query: &str) -> Self {
        let mut follower = Self::request(admin, query, "");
        assert_eq!(follower.event().name, "hello");
        follower
    }

    /// A stream of which nothing was read but the head.
    #[track_caller]
    pub(crate) fn request(admin: SocketAddr, query: &str, headers: &str) -> Self {
        Self::over(http::connect(admin), query, headers).unwrap()
    }

    /// The same over a connection, or why not.
    #[track_caller]
    pub(crate) fn over(mut stream: TcpStream, query: &str, headers: &str) -> Result<Self, Response> {
        let request = format!("GET /api/events?{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (response, raw) = http::read_head(&mut stream);
        if response.status != 200 {
            return Err(response);
        }
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert!(response.header_names().all(|name| !name.starts_with("access-control-")), "{response:?}");
        let (text, pieces, last_id) = (String::new(), VecDeque::new(), String::new());
        Ok(Self { stream, raw, text, pieces, has_ended: false, last_id })
    }

    /// The next event, whatever comments stand before it.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Event {
        loop {
            match self.piece() {
                Piece::Event(event) => return event,
                Piece::Comment(_) => {}
                Piece::End => panic!("the stream has ended"),
            }
        }
    }

    /// The data of the next event, which is of this kind.
    #[track_caller]
    pub(crate) fn expect(&mut self, name: &str) -> Value {
        let event = self.event();
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }

    #[track_caller]
    pub(crate) fn ended(&mut self) {
        assert_eq!(self.piece(), Piece::End);
    }

    #[track_caller]
    pub(crate) fn piece(&mut self) -> Piece {
        while self.pieces.is_empty() {
            if self.has_ended {
                return Piece::End;
            }
            while !self.take_chunk() {
                let mut buffer = [0; 1 << 14];
                let read = self.stream.read(&mut buffer).expect("the next event in time");
                assert_ne!(read, 0, "the stream breaks off after {:?}", self.text);
                self.raw.extend_from_slice(&buffer[..read]);
            }
            let text = std::mem::take(&mut self.text);
            let mut rest = text.as_str();
            while let Some((piece, after)) = rest.split_once("\n\n") {
                self.pieces.push_back(piece.to_owned());
                rest = after;
            }
            rest.clone_into(&mut self.text);
        }
        let piece = self.pieces.pop_front().unwrap();
        self.read_piece(&piece)
    }

    fn read_piece(&mut self, piece: &str) -> Piece {
        let (mut id, mut name, mut data, mut comment) = (None, None, None, None);
        for line in piece.split('\n') {
            // Nothing raw reaches a terminal.
            assert!(line.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c.escape_debug().len() == 1), "{line:?}");
            let (field, value) = line.split_once(": ").unwrap();
            let place = match field {
                "id" => &mut id,
                "event" => &mut name,
                "data" => &mut data,
                "" => &mut comment,
                other => panic!("no field is called {other:?}"),
            };
            assert_eq!(place.replace(value.to_owned()), None, "{piece:?}");
        }
        if let Some(id) = &id {
            self.last_id.clone_from(id);
        }
        if let Some(comment) = comment {
            assert_eq!((name, data), (None, None));
            return Piece::Comment(comment);
        }
        let (name, data) = (name.unwrap(), data.unwrap());
        let data: Value = serde_json::from_str(&data).unwrap();
        let errors: Vec<_> = SCHEMA.iter_errors(&data).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?} in {data}");
        assert_eq!(data["event"], name);
        Piece::Event(Event { id, name, data })
    }

    /// Moves a whole chunk over to the text, if there is one.
    fn take_chunk(&mut self) -> bool {
        let Some(line) = self.raw.windows(2).position(|window| window == b"\r\n") else { return false };
        let length = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).unwrap(), 16).unwrap();
        let (begin, end) = (line + 2, line + 2 + length);
        if self.raw.len() < end + 2 {
            return false;
        }
        assert_eq!(&self.raw[end..end + 2], b"\r\n");
        self.text.push_str(std::str::from_utf8(&self.raw[begin..end]).unwrap());
        self.raw.drain(..end + 2);
        self.has_ended = length == 0;
        true
    }
}

impl Event {
    /// The number in its id.
    #[track_caller]
    pub(crate) fn number(&self) -> u64 {
        number(self.id.as_ref().unwrap())
    }
}

#[track_caller]
pub(crate) fn number(id: &str) -> u64 {
    id.split_once('-').unwrap().1.parse().unwrap()
}
