//! A small language for what a human tells about locks: one input a line, and what comes of it behind the arrow.
//!
//! ```text
//!  0s acquire jobs a lease=10s    -> a granted #1
//!  4s acquire jobs b lease=5s     -> b queued behind 1
//!  5s heartbeat a                 -> a holds #1
//!  6s release a force             -> a released #1 force; b granted #2
//! 11s tick                        -> b expired #2
//! ```
//!
//! Also: `close`, `wall 3s` (the wall clock shows that second since 1970), `tokens below 3` (there are no others),
//! `show jobs` (who holds, who waits) and `deadline`, which look and are no input. `granting from 3s` stands first if
//! it stands at all. A duration is checked where the script says one: `b granted #2 waited=2s`. Nothing is said as
//! `nothing`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use monolock_core::{
    Acquire, Effect, Effects, Lease, LockEngine, LockNameRef, ReleaseReason, SessionId, SessionView, Standing,
    Timestamp, TokenSequence,
};

/// Plays `script` and panics, showing what was expected and what came, at the lines that differ.
pub(crate) fn check(script: &str) {
    let mut world = World::new();
    let mut differences = String::new();
    for (number, line) in script.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (input, expected) = line.split_once("->").unwrap_or((line, ""));
        let got = world.play(input.trim(), expected.contains("held=") || expected.contains("waited="));
        if got != expected.trim() {
            let _ = write!(
                differences,
                "\nline {number}: {}\n  expected: {}\n  got:      {got}",
                input.trim(),
                expected.trim()
            );
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

struct World {
    engine: LockEngine<BuildHasherDefault<DefaultHasher>>,
    tokens: Arc<TokenSequence>,
    sessions: BTreeMap<String, SessionId>,
    effects: Effects,
}

impl World {
    fn new() -> Self {
        let tokens = Arc::new(TokenSequence::new());
        let engine = LockEngine::new(Arc::clone(&tokens), BuildHasherDefault::default());
        Self { engine, tokens, sessions: BTreeMap::new(), effects: Effects::new() }
    }

    fn play(&mut self, input: &str, with_durations: bool) -> String {
        let words: Vec<_> = input.split_whitespace().collect();
        match words[..] {
            ["granting", "from", instant] => {
                let engine = LockEngine::new(Arc::clone(&self.tokens), BuildHasherDefault::default());
                self.engine = engine.granting_from(at(instant));
                return String::new();
            }
            ["wall", second] => {
                self.tokens.lift_to_unix_second(duration(second).as_secs());
                return String::new();
            }
            ["tokens", "below", end] => {
                self.tokens.reserve_below(end.parse().unwrap());
                return String::new();
            }
            ["show", lock] => return self.show(lock),
            ["deadline"] => {
                return self.engine.next_deadline().map_or("never".into(), |instant| format!("{instant:?}"));
            }
            _ => {}
        }
        self.effects.clear();
        let refused = self.input(&words);
        let effects = self.effects.iter().map(|effect| self.tell(effect, with_durations));
        let told: Vec<_> = effects.chain(refused).collect();
        if told.is_empty() { "nothing".into() } else { told.join("; ") }
    }

    fn input(&mut self, words: &[&str]) -> Option<String> {
        let Self { engine, effects, sessions, .. } = self;
        let now = at(words[0]);
        match words[1..] {
            ["acquire", lock, client, lease] => {
                let lease = duration(lease.strip_prefix("lease=").expect("a claim says its lease"));
                let request = Acquire { name: name(lock), lease: Lease::try_from(lease).unwrap() };
                match engine.acquire(now, request, effects) {
                    Ok(session) => drop(sessions.insert(client.into(), session)),
                    Err(error) => return Some(format!("{client} refused: {error}")),
                }
                None
            }
            ["heartbeat", client] => engine.heartbeat(now, sessions[client], effects).err(),
            ["release", client] => engine.release(now, sessions[client], ReleaseReason::Graceful, effects).err(),
            ["release", client, why] => engine.release(now, sessions[client], reason(why), effects).err(),
            ["tick"] => {
                engine.tick(now, effects);
                None
            }
            ["close"] => {
                engine.close(now, effects);
                None
            }
            _ => panic!("no such input: {words:?}"),
        }
        .map(|error| format!("{}: {error}", words[2]))
    }

    fn show(&self, lock: &str) -> String {
        let Some(lock) = self.engine.lock(name(lock)) else { return "nobody".into() };
        let tell = |session: SessionView<'_>| format!("{} {}", self.client(session.id()), standing(session.standing()));
        lock.holder().into_iter().chain(lock.waiters()).map(tell).collect::<Vec<_>>().join("; ")
    }

    fn tell(&self, effect: &Effect, with_durations: bool) -> String {
        let client = self.client(effect.session());
        let mut told = match effect {
            Effect::Granted { token, .. } => format!("{client} granted {token:?}"),
            Effect::Queued { ahead, .. } => format!("{client} queued behind {ahead}"),
            Effect::Confirmed { standing: now, .. } => format!("{client} {}", standing(*now)),
            Effect::Released { token, reason: ReleaseReason::Expired, .. } => format!("{client} expired {token:?}"),
            Effect::Released { token, reason, .. } => {
                format!("{client} released {token:?}{}", other_than_graceful(*reason))
            }
            Effect::Withdrawn { reason: ReleaseReason::Expired, .. } => format!("{client} expired"),
            Effect::Withdrawn { reason, .. } => format!("{client} withdrawn{}", other_than_graceful(*reason)),
        };
        match effect {
            Effect::Granted { waited, .. } | Effect::Withdrawn { waited, .. } if with_durations => {
                let _ = write!(told, " waited={waited:?}");
            }
            Effect::Released { held, .. } if with_durations => {
                let _ = write!(told, " held={held:?}");
            }
            Effect::Granted { .. }
            | Effect::Queued { .. }
            | Effect::Confirmed { .. }
            | Effect::Released { .. }
            | Effect::Withdrawn { .. } => {}
        }
        told
    }

    fn client(&self, id: SessionId) -> &str {
        self.sessions
            .iter()
            .find(|&(_, &session)| session == id)
            .map(|(client, _)| client)
            .expect("its claim was taken in")
    }
}

fn standing(standing: Standing) -> String {
    match standing {
        Standing::Waiting => "waits".into(),
        Standing::Holding(token) => format!("holds {token:?}"),
    }
}

fn other_than_graceful(reason: ReleaseReason) -> String {
    if reason == ReleaseReason::Graceful { String::new() } else { format!(" {reason}") }
}

fn reason(text: &str) -> ReleaseReason {
    ReleaseReason::ALL.into_iter().find(|reason| reason.as_str() == text).expect("it is a reason")
}

fn name(text: &str) -> LockNameRef<'_> {
    LockNameRef::new(text).unwrap()
}

fn at(text: &str) -> Timestamp {
    Timestamp::ORIGIN.saturating_add(duration(text))
}

fn duration(text: &str) -> Duration {
    let number = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[number.len()..] {
        "ns" => 1e-9,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        unit => panic!("no such unit: {unit:?} in {text:?}"),
    };
    Duration::from_secs_f64(number.parse::<f64>().expect("a number stands before the unit") * unit)
}

#[test]
#[should_panic(expected = "expected: a granted #2\n  got:      a granted #1")]
fn a_wrong_script_shows_what_was_expected_and_what_came() {
    check("0s acquire jobs a lease=10s -> a granted #2");
}
