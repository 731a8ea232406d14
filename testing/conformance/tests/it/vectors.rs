//! The golden vectors are what this project's own wire format says; the other clients' unit tests read the same file.

use monolock_core::wire::{ClientFrame, ErrorClass, ErrorCode, Phase, ServerFrame, UnknownServerFrame};
use monolock_core::wire::{decode_client, decode_server};
use monolock_core::{Lease, LockNameRef};
use serde_json::{Value, json};

fn section(name: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(include_str!("../../vectors.json")).expect("the vectors are JSON");
    let section = vectors[name].as_array().expect("a section is a list").clone();
    assert!(!section.is_empty());
    section
}

fn bytes(vector: &Value) -> Vec<u8> {
    let hex = vector["hex"].as_str().expect("the bytes are text");
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits a byte");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn phase(vector: &Value) -> Phase {
    match vector["phase"].as_str().expect("the phase is text") {
        "first" => Phase::First,
        "later" => Phase::Later,
        other => panic!("phase {other}"),
    }
}

fn described(frame: ServerFrame<'_>) -> Value {
    match frame {
        ServerFrame::Waiting => json!({"type": "waiting"}),
        ServerFrame::Acquired { token } => json!({"type": "acquired", "token": token.get().to_string()}),
        ServerFrame::Error { code, reason } => {
            json!({"type": "error", "code": code.0, "reason": String::from_utf8_lossy(reason)})
        }
    }
}

#[test]
fn client_frames() {
    for vector in section("client") {
        let (bytes, frame, phase) = (bytes(&vector), &vector["frame"], phase(&vector));
        let expected = match frame["type"].as_str().unwrap() {
            "heartbeat" => ClientFrame::Heartbeat,
            "acquire" => ClientFrame::Acquire {
                lease: Lease::from_millis(frame["lease_ms"].as_u64().unwrap().try_into().unwrap()).unwrap(),
                name: LockNameRef::new(frame["name"].as_str().unwrap()).unwrap(),
            },
            other => panic!("type {other}"),
        };
        let mut encoded = Vec::new();
        expected.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{vector}");
        assert_eq!(decode_client(phase, &bytes), Ok(Some((expected, bytes.len()))), "{vector}");
        for cut in 0..bytes.len() {
            assert_eq!(decode_client(phase, &bytes[..cut]), Ok(None), "{vector} cut at {cut}");
        }
    }
}

#[test]
fn invalid_client_frames() {
    for vector in section("client_invalid") {
        let error = decode_client(phase(&vector), &bytes(&vector)).unwrap_err();
        assert_eq!(json!({"code": error.code().0, "reason": error.to_string()}), vector["error"], "{vector}");
    }
}

#[test]
fn server_frames() {
    for vector in section("server") {
        let bytes = bytes(&vector);
        let (frame, taken) = decode_server(&bytes).unwrap().unwrap();
        assert_eq!((described(frame), taken), (vector["frame"].clone(), bytes.len()), "{vector}");
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        assert_eq!(encoded, bytes, "{vector}");
        for cut in 0..bytes.len() {
            assert_eq!(decode_server(&bytes[..cut]), Ok(None), "{vector} cut at {cut}");
        }
    }
}

#[test]
fn invalid_server_frames() {
    for vector in section("server_invalid") {
        let error = match decode_server(&bytes(&vector)).unwrap_err() {
            UnknownServerFrame::ZeroToken => "zero_token",
            UnknownServerFrame::Type(_) => "unknown_type",
        };
        assert_eq!(vector["error"], error, "{vector}");
    }
}

#[test]
fn server_streams() {
    for vector in section("server_streams") {
        let bytes = bytes(&vector);
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        while let Some((frame, taken)) = decode_server(rest).unwrap() {
            frames.push(described(frame));
            rest = &rest[taken..];
        }
        assert_eq!((json!(frames), rest), (vector["frames"].clone(), &[][..]), "{vector}");
    }
}

#[test]
fn error_classes() {
    for vector in section("classes") {
        let class = match ErrorCode(vector["code"].as_u64().unwrap().try_into().unwrap()).class() {
            ErrorClass::ServerCondition => "server_condition",
            ErrorClass::ClientError => "client_error",
        };
        assert_eq!(vector["class"], class, "{vector}");
    }
}

#[test]
fn the_largest_token_is_exact() {
    let largest = u64::MAX.to_string();
    let largest = section("server").iter().any(|vector| vector["frame"]["token"] == largest.as_str());
    assert!(largest, "a client that reads tokens into a smaller type is found out");
}
