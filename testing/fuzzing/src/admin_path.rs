//! Targets of admin requests: a name goes there and back, and no target means another lock than it says.

use std::net::Ipv4Addr;
use std::time::Duration;

use monolock_net::fuzzing::{Hall, parameters, parse_target, segment};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::session::{encoded, runtime, settle};
use crate::streams::{ClientEnd, connect};

const KNOWN: [&str; 3] = ["match", "after", "limit"];

/// All bytes as what follows `/api/locks/` in a target; and as a name, some of whose bytes stand for themselves.
pub fn admin_path(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let target = format!("/api/locks/{text}");
    if let Some((path, query)) = parse_target(&target) {
        is_decoded_once(&target, &path, &query);
        runtime().block_on(asks_for_one_lock(&target, &path, &query));
    }
    if let [mask, name @ ..] = bytes
        && let Ok(name) = std::str::from_utf8(name)
        && (1..=255).contains(&name.len())
    {
        let written = written(*mask, name);
        let target = format!("/api/locks/{written}?after={written}");
        assert_eq!(segment(&target, 2).as_deref(), Ok(name), "{target}");
        let [after] = parameters(&target, ["after"]).expect("it is well written");
        assert_eq!(after.as_deref(), Some(name), "{target}");
        runtime().block_on(asks_for_one_lock(&format!("/api/locks/{written}"), &format!("/api/locks/{written}"), ""));
    }
}

/// Each segment and each parameter is what a naive decoder makes of it.
fn is_decoded_once(target: &str, path: &str, query: &str) {
    let segments: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    for (number, raw) in segments.iter().enumerate() {
        assert_eq!(segment(target, number).ok(), decoded(raw, false), "segment {number} of {target:?}");
    }
    assert_eq!(segment(target, segments.len()).as_deref(), Ok(""), "there is no more");
    assert_eq!(parameters(target, KNOWN).ok(), read_query(query), "the query of {target:?}");
}

/// The known parameters; `None` where one is unknown, there twice or badly written.
fn read_query(query: &str) -> Option<[Option<String>; 3]> {
    let mut values = [const { None }; 3];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let equals = pair.find('=').unwrap_or(pair.len());
        let name = decoded(&pair[..equals], true)?;
        let value = decoded(pair.get(equals + 1..).unwrap_or_default(), true)?;
        let place = &mut values[KNOWN.iter().position(|known| *known == name)?];
        if place.is_some() {
            return None;
        }
        *place = Some(value);
    }
    Some(values)
}

/// Three hexadecimal characters for a byte, all else for itself; a `+` for a space where it is one.
fn decoded(raw: &str, in_query: bool) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), raw.as_bytes());
    while let Some((&first, mut after)) = rest.split_first() {
        bytes.push(match first {
            b'%' => {
                let [high, low, left @ ..] = after else { return None };
                after = left;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
            }
            b'+' if in_query => b' ',
            other => other,
        });
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// A name in a path, with its letters and digits as they are or, where the mask says so, in hexadecimal of either case.
fn written(mask: u8, name: &str) -> String {
    let byte = |(at, byte): (usize, u8)| {
        let choice = mask.rotate_left(u32::try_from(at % 8).unwrap_or_default());
        match choice & 3 {
            0 | 1 if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
            2 => format!("%{byte:02X}"),
            _ => format!("%{byte:02x}"),
        }
    };
    name.bytes().enumerate().map(byte).collect()
}

/// The lock that a target names is found and released, and the locks whose names are near are left alone.
async fn asks_for_one_lock(target: &str, path: &str, query: &str) {
    let hall = Hall::new(Duration::from_secs(5));
    let raw = path.strip_prefix("/api/locks/").filter(|raw| !raw.is_empty() && !raw.contains('/'));
    let has_query = query.split('&').any(|pair| !pair.is_empty());
    let named = raw.and_then(|raw| decoded(raw, false)).filter(|name| (1..=255).contains(&name.len()));
    let neighbours = named.iter().flat_map(|name| near(name)).collect::<Vec<_>>();
    let mut clients: Vec<_> = neighbours.iter().map(|name| occupy(&hall, name)).collect();
    settle().await;
    if let Some(name) = &named
        && !has_query
    {
        let (status, _) = ask(&hall, "GET", target).await;
        assert_eq!(status, 404, "nobody claims {name:?}, of {target:?}");
        clients.push(occupy(&hall, name));
        settle().await;
        for (method, target) in [("GET", target.to_owned()), ("POST", format!("{path}/release"))] {
            let (status, body) = ask(&hall, method, &target).await;
            assert_eq!((status, &body["name"]), (200, &Value::from(name.as_str())), "{method} {target:?}");
        }
    } else {
        let (status, body) = ask(&hall, "GET", target).await;
        let expected = if raw.is_some() { &[400][..] } else { &[400, 404, 405] };
        // The list of all locks, at `/api/locks` itself, is not below it.
        assert!(expected.contains(&status), "{status} for {target:?}: {body}");
        assert!(body["error"].is_string(), "{body}");
    }
    for name in &neighbours {
        let (status, body) = ask(&hall, "GET", &format!("/api/locks/{}", encoded(name))).await;
        assert_eq!((status, &body["name"]), (200, &Value::from(name.as_str())), "after {target:?}");
    }
    let tasks: Vec<_> = clients.into_iter().map(|(_end, task)| task).collect();
    settle().await;
    for task in tasks {
        task.await.expect("a session's task does not panic");
    }
    assert_eq!(hall.counts(), (0, 0));
}

/// Names for which a name may be mistaken.
fn near(name: &str) -> Vec<String> {
    let others = [decoded(name, false), decoded(name, true), Some(encoded(name)), Some(name.replace(' ', "+"))];
    let mut near: Vec<_> =
        others.into_iter().flatten().filter(|other| other != name && (1..=255).contains(&other.len())).collect();
    near.sort();
    near.dedup();
    near
}

fn occupy(hall: &Hall, name: &str) -> (ClientEnd, JoinHandle<()>) {
    let (mut end, stream) = connect().expect("the system has descriptors left");
    let task = tokio::spawn(hall.serve(stream, (Ipv4Addr::LOCALHOST, 1).into()));
    let length = u8::try_from(name.len()).expect("a name is no longer");
    end.send(&[&[0x01, 0x01, 0, 0, 0xff, 0xff, 0, length][..], name.as_bytes()].concat());
    (end, task)
}

async fn ask(hall: &Hall, method: &str, target: &str) -> (u16, Value) {
    let (status, body) = hall.ask(method, target).await.expect("it is a request");
    (status, serde_json::from_slice(&body).expect("the answer is JSON"))
}
