//! The wire format, byte by byte (`docs/protocol.md`).

use monolock_core::wire::{
    ClientFrame, ErrorClass, ErrorCode, MAX_CLIENT_FRAME_BYTES, MAX_SERVER_FRAME_BYTES, Phase, ProtocolError,
    ServerFrame, UnknownServerFrame, VERSION, decode_client, decode_server,
};
use monolock_core::{Lease, LockNameRef, Token};
use proptest::prelude::*;

fn acquire(lease_ms: u32, name: &str) -> ClientFrame<'_> {
    ClientFrame::Acquire { lease: Lease::from_millis(lease_ms).unwrap(), name: LockNameRef::new(name).unwrap() }
}

fn acquired(token: u64) -> ServerFrame<'static> {
    ServerFrame::Acquired { token: Token::new(token).unwrap() }
}

fn client_bytes(frame: ClientFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn server_bytes(frame: ServerFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

#[test]
fn client_frames_byte_by_byte() {
    for (phase, frame, bytes) in [
        (Phase::First, acquire(2000, "jobs"), &b"\x01\x01\x00\x00\x07\xd0\x00\x04jobs"[..]),
        (Phase::First, acquire(1, "x"), b"\x01\x01\x00\x00\x00\x01\x00\x01x"),
        (Phase::First, acquire(u32::MAX, "\0\n/*"), b"\x01\x01\xff\xff\xff\xff\x00\x04\0\n/*"),
        (Phase::First, acquire(0x0102_0304, "é"), b"\x01\x01\x01\x02\x03\x04\x00\x02\xc3\xa9"),
        (Phase::Later, ClientFrame::Heartbeat, b"\x02"),
    ] {
        assert_eq!(client_bytes(frame), bytes);
        assert_eq!(decode_client(phase, bytes), Ok(Some((frame, bytes.len()))));
    }
    let longest = client_bytes(acquire(7, &"x".repeat(255)));
    assert_eq!(longest[..8], *b"\x01\x01\x00\x00\x00\x07\x00\xff");
    assert_eq!(longest.len(), MAX_CLIENT_FRAME_BYTES);
}

#[test]
fn server_frames_byte_by_byte() {
    let error = |code, reason| ServerFrame::Error { code, reason };
    for (frame, bytes) in [
        (ServerFrame::Waiting, &b"\x11"[..]),
        (acquired(1), b"\x12\x00\x00\x00\x00\x00\x00\x00\x01"),
        (acquired(0x0102_0304_0506_0708), b"\x12\x01\x02\x03\x04\x05\x06\x07\x08"),
        (acquired(u64::MAX), b"\x12\xff\xff\xff\xff\xff\xff\xff\xff"),
        (error(ErrorCode::SERVER_SHUTTING_DOWN, b""), b"\x13\x01\x00"),
        (error(ErrorCode::EMPTY_NAME, b"empty lock name"), b"\x13\x14\x0fempty lock name"),
        (error(ErrorCode(0xee), "ä".as_bytes()), b"\x13\xee\x02\xc3\xa4"),
    ] {
        assert_eq!(server_bytes(frame), bytes);
        assert_eq!(decode_server(bytes), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn every_error_code_and_its_class() {
    for (code, number) in [
        (ErrorCode::SERVER_SHUTTING_DOWN, 0x01),
        (ErrorCode::CLOSED_BY_ADMINISTRATOR, 0x02),
        (ErrorCode::LIMIT_REACHED, 0x03),
        (ErrorCode::UNSUPPORTED_VERSION, 0x10),
        (ErrorCode::FIRST_MUST_BE_ACQUIRE, 0x11),
        (ErrorCode::DUPLICATE_ACQUIRE, 0x12),
        (ErrorCode::UNKNOWN_TYPE, 0x13),
        (ErrorCode::EMPTY_NAME, 0x14),
        (ErrorCode::NAME_TOO_LONG, 0x15),
        (ErrorCode::NAME_NOT_UTF8, 0x16),
        (ErrorCode::ZERO_LEASE, 0x17),
        (ErrorCode::NOT_AUTHORIZED, 0x18),
        (ErrorCode::LEASE_TOO_LONG, 0x19),
    ] {
        assert_eq!(code.0, number);
        assert_eq!(code.to_string(), format!("0x{number:02x}"));
    }
    for number in 0..=u8::MAX {
        let class = if number < 0x10 { ErrorClass::ServerCondition } else { ErrorClass::ClientError };
        assert_eq!(ErrorCode(number).class(), class, "by the range, also for codes that do not exist yet");
    }
}

/// What each wrong beginning is answered with; the bytes stop where the answer is decided.
const WRONG: [(Phase, &[u8], u8, &str); 16] = [
    (Phase::First, b"\x02", 0x11, "first message must be ACQUIRE"),
    (Phase::First, b"\x00", 0x13, "unknown message type: 0x00"),
    (Phase::First, b"\x7f", 0x13, "unknown message type: 0x7f"),
    (Phase::First, b"\x11", 0x13, "unknown message type: 0x11"),
    (Phase::First, b"\x01\x00", 0x10, "unsupported protocol version: 0"),
    (Phase::First, b"\x01\x02", 0x10, "unsupported protocol version: 2"),
    (Phase::First, b"\x01\x01\0\0\0\0", 0x17, "lease must be positive"),
    (Phase::First, b"\x01\x01\0\0\0\x01\0\0", 0x14, "empty lock name"),
    (Phase::First, b"\x01\x01\0\0\0\x01\x01\0", 0x15, "lock name too long: 256 bytes, 255 are allowed"),
    (Phase::First, b"\x01\x01\0\0\0\x01\xff\xff", 0x15, "lock name too long: 65535 bytes, 255 are allowed"),
    (Phase::First, b"\x01\x01\0\0\0\x01\0\x01\xff", 0x16, "lock name is not valid UTF-8"),
    (Phase::First, b"\x01\x01\0\0\0\x01\0\x03\xed\xa0\x80", 0x16, "lock name is not valid UTF-8"),
    (Phase::First, b"\x01\x01\0\0\0\x01\0\x02a\xc3", 0x16, "lock name is not valid UTF-8"),
    (Phase::Later, b"\x01", 0x12, "duplicate ACQUIRE"),
    (Phase::Later, b"\x7f", 0x13, "unknown message type: 0x7f"),
    (Phase::Later, b"G", 0x13, "unknown message type: 0x47"),
];

#[test]
fn wrong_bytes_are_answered_as_soon_as_they_decide() {
    for (phase, bytes, code, reason) in WRONG {
        let error = decode_client(phase, bytes).unwrap_err();
        assert_eq!((error.code().0, error.to_string()), (code, reason.into()), "{bytes:02x?}");
        for cut in 0..bytes.len() {
            assert_eq!(decode_client(phase, &bytes[..cut]), Ok(None), "{:02x?}", &bytes[..cut]);
        }
        let junk = [bytes, &vec![0xff; 64 << 10]].concat();
        assert_eq!(decode_client(phase, &junk), Err(error), "what follows changes nothing");
    }
}

#[test]
fn the_first_wrong_field_decides() {
    // Wrong from one field on in every field that follows.
    let all_wrong = b"\x01\x02\0\0\0\0\0\0";
    let wrong = |from: usize| {
        let mut bytes = b"\x01\x01\0\0\0\x05\0\x01".to_vec();
        bytes[from..].copy_from_slice(&all_wrong[from..]);
        decode_client(Phase::First, &bytes).map(|_| ())
    };
    assert_eq!(wrong(1), Err(ProtocolError::UnsupportedVersion(2)));
    assert_eq!(wrong(2), Err(ProtocolError::ZeroLease));
    assert_eq!(wrong(6), Err(ProtocolError::EmptyName));
    assert_eq!(decode_client(Phase::First, b"\x01\x01\0\0\0\0\xff\xff\xff"), Err(ProtocolError::ZeroLease));
    assert_eq!(
        decode_client(Phase::First, b"\x01\x01\0\0\0\x05\x01\0\xff"),
        Err(ProtocolError::NameTooLong { bytes: 256 })
    );
}

#[test]
fn the_version_is_the_number_one() {
    assert_eq!(VERSION, 1);
}

#[test]
fn b38_every_stream_cut_at_every_position_gives_the_same_frames() {
    let mut stream = client_bytes(acquire(2000, "jobs/é/\u{1f512}"));
    stream.extend([2, 2, 2]);
    let whole = read_all(&[&stream]);
    assert_eq!(whole.len(), 4);
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            assert_eq!(read_all(&[&stream[..first], &stream[first..second], &stream[second..]]), whole);
        }
    }
    let bytes: Vec<_> = stream.chunks(1).collect();
    assert_eq!(read_all(&bytes), whole);
}

/// The frames of a stream that comes in pieces, as text, since they borrow the buffer.
fn read_all(pieces: &[&[u8]]) -> Vec<String> {
    let (mut buffer, mut frames, mut phase) = (Vec::new(), Vec::new(), Phase::First);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some((frame, taken)) = decode_client(phase, &buffer).unwrap() {
            frames.push(format!("{frame:?}"));
            phase = Phase::Later;
            buffer.drain(..taken);
        }
    }
    assert!(buffer.is_empty());
    frames
}

#[test]
fn server_frames_cut_at_every_position_wait_for_more() {
    let error = ServerFrame::Error { code: ErrorCode::UNKNOWN_TYPE, reason: b"unknown message type: 0x7f" };
    for frame in [ServerFrame::Waiting, acquired(1 << 50), error] {
        let bytes = server_bytes(frame);
        (0..bytes.len()).for_each(|cut| assert_eq!(decode_server(&bytes[..cut]), Ok(None)));
        let glued = [&bytes[..], &bytes[..]].concat();
        assert_eq!(decode_server(&glued), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn bytes_that_no_server_sends_are_refused() {
    for byte in (0..=u8::MAX).filter(|byte| !(0x11..=0x13).contains(byte)) {
        let error = decode_server(&[byte]).unwrap_err();
        assert_eq!(error, UnknownServerFrame::Type(byte));
        assert_eq!(error.to_string(), format!("unknown message type: 0x{byte:02x}"));
    }
    let error = decode_server(b"\x12\0\0\0\0\0\0\0\0").unwrap_err();
    assert_eq!((error, error.to_string()), (UnknownServerFrame::ZeroToken, "ACQUIRED with token 0".into()));
}

#[test]
fn a_reason_that_is_too_long_is_cut_between_characters() {
    let reason_of = |reason: &str| {
        let bytes = server_bytes(ServerFrame::Error { code: ErrorCode::NOT_AUTHORIZED, reason: reason.as_bytes() });
        assert!(bytes.len() <= MAX_SERVER_FRAME_BYTES);
        assert_eq!(usize::from(bytes[2]), bytes.len() - 3);
        String::from_utf8(bytes[3..].to_vec()).expect("a reason is UTF-8")
    };
    assert_eq!(reason_of(&"x".repeat(255)), "x".repeat(255));
    assert_eq!(reason_of(&"x".repeat(256)), "x".repeat(255));
    assert_eq!(reason_of(&"é".repeat(200)), "é".repeat(127));
    assert_eq!(reason_of(&("x".repeat(254) + "\u{1f512}")), "x".repeat(254));
    assert_eq!(reason_of(&("x".repeat(252) + "\u{1f512}")), "x".repeat(252));
    assert_eq!(reason_of(&("x".repeat(251) + "\u{1f512}x")), "x".repeat(251) + "\u{1f512}");
}

#[test]
fn a_reason_that_is_not_text_is_cut_all_the_same() {
    let bytes = server_bytes(ServerFrame::Error { code: ErrorCode::NOT_AUTHORIZED, reason: &[0x80; 400] });
    assert!(matches!(decode_server(&bytes), Ok(Some((ServerFrame::Error { .. }, taken))) if taken == bytes.len()));
}

prop_compose! {
    fn any_name()(name in "\\PC{1,60}|[\\x00-\\x7f]{1,255}") -> String { name }
}

proptest! {
    #[test]
    fn client_frames_go_round(lease_ms in 1_u32.., name in any_name(), rest in any::<Vec<u8>>()) {
        let frame = acquire(lease_ms, &name);
        let mut bytes = client_bytes(frame);
        let length = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(decode_client(Phase::First, &bytes), Ok(Some((frame, length))));
    }

    #[test]
    fn server_frames_go_round(token in 1_u64.., code: u8, reason in proptest::collection::vec(any::<u8>(), 0..=255)) {
        for frame in [acquired(token), ServerFrame::Error { code: ErrorCode(code), reason: &reason }] {
            let bytes = server_bytes(frame);
            prop_assert_eq!(decode_server(&bytes), Ok(Some((frame, bytes.len()))));
        }
    }

    /// More bytes never change an answer, and what is accepted is what would be written.
    #[test]
    fn any_bytes_have_one_answer(start in prop_oneof![Just(&b""[..]), Just(&b"\x01\x01"[..]), Just(&b"\x01\x01\0\0\0\x09\0"[..]), Just(&b"\x13"[..])],
                                 rest in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = [start, &rest].concat();
        for phase in [Phase::First, Phase::Later] {
            let answer = decode_client(phase, &bytes);
            for cut in 0..bytes.len() {
                let earlier = decode_client(phase, &bytes[..cut]);
                prop_assert!(earlier == Ok(None) || earlier == answer);
            }
            if let Ok(Some((frame, taken))) = answer {
                prop_assert_eq!(&client_bytes(frame), &bytes[..taken]);
            }
            prop_assert!(answer != Ok(None) || bytes.len() < MAX_CLIENT_FRAME_BYTES);
        }
        let answer = decode_server(&bytes);
        prop_assert!((0..bytes.len()).all(|cut| [Ok(None), answer].contains(&decode_server(&bytes[..cut]))));
        if let Ok(Some((frame, taken))) = answer {
            prop_assert_eq!(&server_bytes(frame), &bytes[..taken]);
        }
    }
}
