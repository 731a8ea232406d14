//! The slowest heartbeats while something else goes on, beside those of a quiet moment before.

use std::hint;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Context;
use super::crowd::{Until, crowd};
use crate::generator::{background_load, load};
use crate::sheet::{Goal, Sheet};
use crate::statistics::real;
use crate::target::{Kind, Target};

const TAIL: &str = "p99.9";
const QUIET: &str = "quiet";
const DISTURBED: &str = "disturbed";

const LEASES: usize = 10_000;
const LISTED: usize = 15_000;
const HANDSHAKES_A_SECOND: usize = 1000;

/// How long the crowd has to come together before its leases end.
const GATHERING: Duration = Duration::from_secs(5);

fn probe(context: &Context, target: &Target, sheet: &mut Sheet, of: &str) -> io::Result<()> {
    let arguments = format!("heartbeat --connections 10 --rate 2000 --duration {}", context.milliseconds(3000));
    let load = load(&context.programs, target, &arguments)?;
    sheet.push(TAIL, "µs", of, load.latency_us.p99_9);
    sheet.push("p50", "µs", of, load.latency_us.p50);
    sheet.push("failures", "", of, load.failures.total);
    Ok(())
}

/// Probes while something goes on beside it, on a thread of its own, until it hears that it is over.
fn probe_beside<T: Send>(
    context: &Context,
    target: &Target,
    sheet: &mut Sheet,
    disturb: impl FnOnce(&AtomicBool) -> T + Send,
) -> io::Result<T> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&over));
        let probed = probe(context, target, sheet, DISTURBED);
        over.store(true, Ordering::Relaxed);
        let outcome = disturbing.join().map_err(|_| io::Error::other("what disturbs has panicked"))?;
        probed.map(|()| outcome)
    })
}

fn judge(sheet: &mut Sheet) {
    sheet.judge_ratio(TAIL, DISTURBED, QUIET, Goal::AtMost(3.0));
}

pub(super) fn expiry(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let target = Target::start(Kind::Monolock, &context.programs)?;
    for _ in 0..context.rounds {
        probe(context, &target, sheet, QUIET)?;
        let end = Instant::now() + GATHERING;
        let crowd = crowd(&target.address, context.many(LEASES), Until::Then(end))?;
        // The leases end in the middle of what is measured.
        let half = Duration::from_millis(if context.quick { 300 } else { 1500 });
        thread::sleep(end.saturating_duration_since(Instant::now()).saturating_sub(half));
        probe(context, &target, sheet, DISTURBED)?;
        drop(crowd);
    }
    judge(sheet);
    Ok(())
}

pub(super) fn listing(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let target = Target::start(Kind::Operations, &context.programs)?;
    let admin = target.admin.ok_or_else(|| io::Error::other("the server has no admin API"))?;
    let crowd = crowd(&target.address, context.many(LISTED), Until::Later)?;
    for _ in 0..context.rounds {
        probe(context, &target, sheet, QUIET)?;
        let listed = probe_beside(context, &target, sheet, |over| {
            let mut listed = 0;
            while !over.load(Ordering::Relaxed) {
                listed += list_all(admin)?;
            }
            Ok::<_, io::Error>(listed)
        })??;
        sheet.push("locks listed", "", DISTURBED, real(listed));
    }
    drop(crowd);
    judge(sheet);
    Ok(())
}

/// What is counted of a page. Whoever reads it on the same cores should disturb as little as can be.
#[derive(Deserialize)]
struct Page {
    locks: Vec<IgnoredAny>,
    next: Option<String>,
}

/// Reads all pages of the list, and says how many locks were on them.
fn list_all(admin: SocketAddr) -> io::Result<usize> {
    let mut listed = 0;
    let mut after = None;
    loop {
        let from = after.map_or_else(String::new, |name: String| format!("&after={}", name.replace('/', "%2F")));
        let page = get(admin, &format!("/api/locks?limit=10000{from}"))?;
        listed += page.locks.len();
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(listed),
        }
    }
}

fn get(address: SocketAddr, path: &str) -> io::Result<Page> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let head = head.ok_or_else(|| io::Error::other("the admin API sent no answer"))?;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(io::Error::other(format!("{path}: {}", String::from_utf8_lossy(&answer[..head]))));
    }
    serde_json::from_slice(&answer[head + 4..]).map_err(io::Error::from)
}

/// What the machine alone does to the slowest heartbeats, when somebody else has one of its cores for three seconds. No
/// goal: the other tails are to be read beside it.
pub(super) fn computing(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let target = Target::start(Kind::Monolock, &context.programs)?;
    for _ in 0..context.rounds {
        probe(context, &target, sheet, QUIET)?;
        probe_beside(context, &target, sheet, |over| {
            while !over.load(Ordering::Relaxed) {
                hint::black_box(0);
            }
        })?;
    }
    sheet.judge_ratio(TAIL, DISTURBED, QUIET, Goal::None);
    Ok(())
}

pub(super) fn handshakes(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let target = Target::start(Kind::Tls, &context.programs)?;
    for _ in 0..context.rounds {
        probe(context, &target, sheet, QUIET)?;
        let arguments = format!("cycle --connections 50 --rate {HANDSHAKES_A_SECOND} --duration 1m");
        let background = background_load(&context.programs, &target, &arguments)?;
        thread::sleep(Duration::from_millis(300));
        let probed = probe(context, &target, sheet, DISTURBED);
        drop(background);
        probed?;
    }
    judge(sheet);
    sheet.notes.push("the handshakes' client sides run on the same two cores".to_owned());
    Ok(())
}
