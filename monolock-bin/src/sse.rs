//! Server-sent events, as a stream of bytes has them (WHATWG HTML, "Server-sent events").
//!
//! A stream may be cut anywhere, and its author is not trusted: what is put aside until a message is whole has a bound.

/// How long a line, and all data of one message, may be. An event with the longest name takes some 3 KiB.
const MAX_BYTES: usize = 64 << 10;

/// Takes bytes as they come, and gives messages when they are whole.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    /// Whether the last byte was a CR, whose LF belongs to it.
    after_cr: bool,
    event: String,
    data: String,
    id: Option<String>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type.
    pub(crate) event: String,
    pub(crate) data: String,
}

/// A line or a message is longer than any that is meant to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Parser {
    /// The id that a reader says who wants to go on from here.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Another stream follows: what was not whole of the last one never will be. The id stays.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { id: self.id.take(), ..Self::default() };
    }

    /// What is whole with these bytes.
    ///
    /// # Errors
    /// What is not whole yet has outgrown its bound.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Message>, TooLong> {
        let mut messages = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => {}
                b'\n' | b'\r' => messages.extend(self.end_of_line()?),
                _ if self.line.len() >= MAX_BYTES => return Err(TooLong),
                _ => self.line.push(byte),
            }
            self.after_cr = byte == b'\r';
        }
        Ok(messages)
    }

    fn end_of_line(&mut self) -> Result<Option<Message>, TooLong> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let message = Message { event: std::mem::take(&mut self.event), data: std::mem::take(&mut self.data) };
            return Ok(Some(message).filter(|message| !message.data.is_empty()));
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "data" if self.data.len() + value.len() >= MAX_BYTES => return Err(TooLong),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, or a field that is nothing to us.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, Message, Parser, TooLong};

    fn message(event: &str, data: &str) -> Message {
        Message { event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn a_stream_that_is_cut_anywhere_says_the_same() {
        let stream = "id: a-1\nevent: hello\ndata: {\"x\":1}\n\n: keep-alive\nid: a-2\n\nevent:granted\r\ndata:one\r\ndata: two\r\n\
                      retry: 5\r\n\r\ndata\rdata: ü\r\revent: unfinished\ndata: x\n";
        let expected = [message("hello", "{\"x\":1}"), message("granted", "one\ntwo"), message("", "ü")];
        for cut in 0..=stream.len() {
            let mut parser = Parser::default();
            let mut messages = parser.feed(&stream.as_bytes()[..cut]).unwrap();
            messages.extend(parser.feed(&stream.as_bytes()[cut..]).unwrap());
            assert_eq!(messages, expected, "cut at {cut}");
            assert_eq!(parser.last_id(), Some("a-2"));
        }
    }

    #[test]
    fn nothing_is_put_aside_without_a_bound() {
        let fill = |text: &str| Parser::default().feed(text.repeat(2 * MAX_BYTES / text.len()).as_bytes());
        assert_eq!(fill("x"), Err(TooLong));
        assert_eq!(fill("data: xxxxxxxxxxxx\n"), Err(TooLong));
        assert_eq!(fill(": comment\n"), Ok(vec![]));
    }
}
