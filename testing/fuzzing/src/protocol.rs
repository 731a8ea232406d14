//! `docs/protocol.md`, "Frames" and "Errors", read naively: a line here for a line there.

/// What the beginning of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// More bytes are needed.
    More,
    /// A frame of so many bytes.
    Frame(usize),
    /// Bytes that must not come, and the code that says so; a client has no code for them.
    Wrong(Option<u8>),
}

/// What a client may send; `first` as long as its `ACQUIRE` has not come.
pub(crate) fn client_start(first: bool, bytes: &[u8]) -> Start {
    let wrong = |code| Start::Wrong(Some(code));
    match *bytes {
        [0x01, ..] if !first => wrong(0x12),
        [0x02, ..] if first => wrong(0x11),
        [0x02, ..] => Start::Frame(1),
        [0x01, version, ..] if version != 1 => wrong(0x10),
        [0x01, _, 0, 0, 0, 0, ..] => wrong(0x17),
        [0x01, _, _, _, _, _, 0, 0, ..] => wrong(0x14),
        [0x01, _, _, _, _, _, 0, length, ref rest @ ..] => match rest.get(..length.into()) {
            None => Start::More,
            Some(name) if String::from_utf8(name.to_vec()).is_ok() => Start::Frame(8 + name.len()),
            Some(_) => wrong(0x16),
        },
        [0x01, _, _, _, _, _, _, _, ..] => wrong(0x15),
        [0x01, ..] | [] => Start::More,
        _ => wrong(0x13),
    }
}

/// What a server may send.
pub(crate) fn server_start(bytes: &[u8]) -> Start {
    match *bytes {
        [0x11, ..] => Start::Frame(1),
        [0x12, 0, 0, 0, 0, 0, 0, 0, 0, ..] => Start::Wrong(None),
        [0x12, _, _, _, _, _, _, _, _, ..] => Start::Frame(9),
        [0x13, _, length, ref rest @ ..] if rest.len() >= length.into() => Start::Frame(3 + usize::from(length)),
        [0x12 | 0x13, ..] | [] => Start::More,
        _ => Start::Wrong(None),
    }
}
