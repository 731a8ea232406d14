//! The wire format: one answer to any bytes, however they are cut.

use std::fmt::Debug;

use monolock_core::wire::{
    ClientFrame, MAX_CLIENT_FRAME_BYTES, MAX_SERVER_FRAME_BYTES, Phase, ServerFrame, decode_client, decode_server,
};

use crate::protocol::{Start, client_start, server_start};

/// What a decoder answers: a frame and its length, nothing yet, or an error.
type Answer<F, E> = Result<Option<(F, usize)>, E>;

/// The first byte decides about the cuts, the rest is a stream, of a client and of a server.
///
/// Whatever the cuts, the frames are the same; no byte is asked for that a frame does not need, nor one looked at that
/// it does not have; what was decoded is encoded as it was; and all is as the naive reading has it.
pub fn wire(bytes: &[u8]) {
    let Some((&cuts, stream)) = bytes.split_first() else { return };
    let pieces = pieces(cuts, stream);

    let client = |first: bool, bytes: &[u8]| {
        let phase = if first { Phase::First } else { Phase::Later };
        decode_client(phase, bytes).map(|found| found.map(|(frame, taken)| (format!("{frame:?}"), taken)))
    };
    assert_eq!(read(&pieces, client), read(&[stream], client), "a client's stream in pieces and whole");
    let mut rest = stream;
    let mut phase = Phase::First;
    while let Some(taken) = client_frame(phase, rest) {
        (phase, rest) = (Phase::Later, &rest[taken..]);
    }
    client_frame(Phase::Later, stream);

    let server =
        |_, bytes: &[u8]| decode_server(bytes).map(|found| found.map(|(frame, taken)| (format!("{frame:?}"), taken)));
    assert_eq!(read(&pieces, server), read(&[stream], server), "a server's stream in pieces and whole");
    let mut rest = stream;
    while let Some(taken) = server_frame(rest) {
        rest = &rest[taken..];
    }
}

/// A stream in pieces of at most seven bytes.
fn pieces(cuts: u8, mut stream: &[u8]) -> Vec<&[u8]> {
    let (mut pieces, mut state) = (Vec::new(), u32::from(cuts));
    while !stream.is_empty() {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let length = usize::try_from(state >> 29).unwrap_or(0).max(1);
        let (piece, rest) = stream.split_at(length.min(stream.len()));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

/// All frames of a stream that comes in pieces, and how it ends: what is left, or an error.
fn read<E>(pieces: &[&[u8]], decode: impl Fn(bool, &[u8]) -> Answer<String, E>) -> (Vec<String>, Result<Vec<u8>, E>) {
    let (mut buffer, mut frames) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match decode(frames.is_empty(), &buffer) {
                Ok(None) => break,
                Ok(Some((frame, taken))) => {
                    frames.push(frame);
                    buffer.drain(..taken);
                }
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(buffer))
}

/// Looks at the frame at the start of a client's stream; says how long it is.
fn client_frame(phase: Phase, bytes: &[u8]) -> Option<usize> {
    let answer = has_one_answer(bytes, MAX_CLIENT_FRAME_BYTES, |bytes| decode_client(phase, bytes));
    let start = match answer {
        Ok(None) => Start::More,
        Ok(Some((_, taken))) => Start::Frame(taken),
        Err(error) => Start::Wrong(Some(error.code().0)),
    };
    assert_eq!(start, client_start(phase == Phase::First, bytes), "the naive reading");
    let (frame, taken) = answer.ok()??;
    if let ClientFrame::Acquire { lease, name } = frame {
        let lease_ms = bytes[2..6].iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
        assert_eq!((lease.as_millis(), name.as_str().as_bytes()), (lease_ms, &bytes[8..taken]));
    }
    let mut encoded = Vec::new();
    frame.encode(&mut encoded);
    assert_eq!(encoded, bytes[..taken], "encoded as it came");
    Some(taken)
}

/// Looks at the frame at the start of a server's stream; says how long it is.
fn server_frame(bytes: &[u8]) -> Option<usize> {
    let answer = has_one_answer(bytes, MAX_SERVER_FRAME_BYTES, decode_server);
    let start = match answer {
        Ok(None) => Start::More,
        Ok(Some((_, taken))) => Start::Frame(taken),
        Err(_) => Start::Wrong(None),
    };
    assert_eq!(start, server_start(bytes), "the naive reading");
    let (frame, taken) = answer.ok()??;
    match frame {
        ServerFrame::Waiting => {}
        ServerFrame::Acquired { token } => {
            assert_eq!(token.get(), bytes[1..9].iter().fold(0, |number, &byte| number << 8 | u64::from(byte)));
        }
        ServerFrame::Error { code, reason } => assert_eq!((code.0, reason), (bytes[1], &bytes[3..taken])),
    }
    let mut encoded = Vec::new();
    frame.encode(&mut encoded);
    assert_eq!(encoded, bytes[..taken], "encoded as it came");
    Some(taken)
}

/// The answer to `bytes`, which is the same from the byte on that decides it; a frame is there with its last byte.
fn has_one_answer<'a, F: Copy + Debug + PartialEq, E: Copy + Debug + PartialEq>(
    bytes: &'a [u8],
    longest: usize,
    decode: impl Fn(&'a [u8]) -> Answer<F, E>,
) -> Answer<F, E> {
    let answer = decode(bytes);
    let looked_at = bytes.len().min(longest + 1);
    let decided = (0..=looked_at).find(|&cut| decode(&bytes[..cut]) != Ok(None));
    assert!(decided.is_some() || looked_at < longest, "no frame is longer than the longest");
    for cut in decided.into_iter().flat_map(|decided| decided..=looked_at) {
        assert_eq!(decode(&bytes[..cut]), answer, "more bytes change nothing");
    }
    match answer {
        Ok(None) => assert_eq!(decided, None),
        Ok(Some((_, taken))) => assert_eq!(decided, Some(taken), "a frame needs its own bytes and no other"),
        Err(_) => {}
    }
    answer
}
