//! Histories as a person tells them: a time in milliseconds, then who, then what.
//!
//! ```text
//! 0    server 1 starts grace=2000 tokens     serves at once, with a token file
//! 10   a asks 1 red lease=1000
//! 12   a queued 1
//! 20   a granted 1 token=7
//! 21   a believes 1
//! 25   a keeps 1
//! 30   a releases 1                           or: a loses 1
//! 40   dark a 40..900                         or: dark all 40..900
//! 50   server 1 killed                        or: stopped, dies
//! 55   server 1 unreachable
//! 60   clock -3600
//! 70   audit 1 granted red 7                  without such lines each grant has its two
//! ```

use std::collections::BTreeMap;

use monolock_chaos::check::{Verdict, Violation, check};
use monolock_chaos::history::{Audit, Death, Record, What, parse};

const MS: u64 = 1_000_000;

/// The records and audit logs of a story.
pub(crate) fn told(story: &str) -> (Vec<Record>, Vec<Audit>) {
    let mut teller = Teller::default();
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        teller.tell(line);
    }
    teller.end()
}

/// What the checker says of it.
pub(crate) fn checked(story: &str) -> Verdict {
    let (records, audits) = told(story);
    // As it is written and read.
    let text: String = records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    check(&parse(&text).unwrap(), &audits)
}

#[track_caller]
pub(crate) fn passes(story: &str) -> Verdict {
    let verdict = checked(story);
    assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
    verdict
}

/// There is exactly one violation.
#[track_caller]
pub(crate) fn violation(story: &str) -> Violation {
    let mut violations = checked(story).violations;
    assert_eq!(violations.len(), 1, "{violations:#?}");
    violations.remove(0)
}

#[derive(Default)]
struct Teller {
    records: Vec<Record>,
    audits: BTreeMap<u32, String>,
    epoch: u32,
    is_audited: bool,
    locks: BTreeMap<(String, u64), String>,
}

impl Teller {
    fn tell(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (t, words) = (words[0].parse::<u64>().unwrap() * MS, &words[1..]);
        let option = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            value.map(|value| value.parse::<u64>().unwrap())
        };
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("no number in {line:?}"));
        let what = match words {
            ["server", epoch, "starts", ..] => {
                self.epoch = epoch.parse().unwrap();
                self.audits.entry(self.epoch).or_default();
                let (grace_ms, token_file) = (option("grace").unwrap_or(0), words.contains(&"tokens"));
                What::Starting { epoch: self.epoch, grace_ms, token_file }
            }
            ["server", epoch, "unreachable"] => What::Unreachable { epoch: epoch.parse().unwrap() },
            ["server", epoch, how] => {
                let epoch = epoch.parse().unwrap();
                self.records.push(Record { t, what: What::Ending { epoch } });
                let how = match *how {
                    "killed" => Death::Killed,
                    "stopped" => Death::Stopped,
                    "dies" => Death::ByItself,
                    other => panic!("{other}?"),
                };
                What::Dead { epoch, how }
            }
            ["dark", who, span] => {
                let (from, to) = span.split_once("..").unwrap();
                let worker = (*who != "all").then(|| (*who).to_owned());
                What::Dark { worker, from: number(from) * MS, to: number(to) * MS }
            }
            ["clock", offset] => What::Stepped { offset_s: offset.parse().unwrap() },
            ["audit", epoch, event, lock, token, ..] => {
                self.is_audited = true;
                let (wait_ms, held_ms) = (option("wait").unwrap_or(0), option("held").unwrap_or(0));
                self.audit(
                    epoch.parse().unwrap(),
                    &format!(
                        r#"{{"time":"","event":"{event}","lock":"{lock}","identity":"","token":{token},"wait_ms":{wait_ms},"held_ms":{held_ms}}}"#
                    ),
                );
                return;
            }
            ["over", living, "within", bound_ms] => {
                let living = living.split(',').map(name).collect();
                What::FaultsOver { living, bound_ms: number(bound_ms) }
            }
            ["left", value, "of", limit] => {
                What::AtEnd { what: "sessions".to_owned(), value: number(value), limit: number(limit) }
            }
            [who, "asks", claim, lock, ..] => {
                let (worker, claim, lock) = (name(who), number(claim), (*lock).to_owned());
                self.locks.insert((worker.clone(), claim), lock.clone());
                What::Ask { worker, claim, lock, lease_ms: option("lease").unwrap_or(1000) }
            }
            [who, "granted", claim, ..] => {
                let (worker, claim, token) = (name(who), number(claim), option("token").unwrap());
                if let Some(lock) = self.locks.get(&(worker.clone(), claim)).cloned() {
                    for event in ["granted", "released"] {
                        let line = format!(r#"{{"time":"","event":"{event}","lock":"{lock}","token":{token}}}"#);
                        if !self.is_audited {
                            self.audit(self.epoch, &line);
                        }
                    }
                }
                What::Granted { worker, claim, token }
            }
            [who, "queued", claim] => What::Queued { worker: name(who), claim: number(claim) },
            [who, "believes", claim] => What::Believed { worker: name(who), claim: number(claim) },
            [who, "keeps", claim] => What::Keeping { worker: name(who), claim: number(claim) },
            [who, "releases", claim] => What::Releasing { worker: name(who), claim: number(claim) },
            [who, "loses", claim] => {
                What::Lost { worker: name(who), claim: number(claim), reason: "timeout".to_owned() }
            }
            [who, "dies"] => What::Gone { worker: name(who), killed: false },
            [who, "killed"] => What::Gone { worker: name(who), killed: true },
            [who, "writes", lock, token, verdict] => What::Fenced {
                worker: name(who),
                lock: (*lock).to_owned(),
                token: number(token),
                accepted: *verdict == "accepted",
            },
            ["fault", fault, class, rest @ ..] => {
                let (worker, claim, lock) = match rest {
                    [who, claim, lock] => (Some(name(who)), Some(number(claim)), Some((*lock).to_owned())),
                    _ => (None, None, None),
                };
                let (class, brief) = class.strip_prefix("brief-").map_or((*class, false), |class| (class, true));
                What::Injected { fault: fault.parse().unwrap(), class: class.to_owned(), worker, claim, lock, brief }
            }
            ["healed", fault, effect] => What::Healed { fault: fault.parse().unwrap(), effect: number(effect) },
            _ => panic!("{line:?}?"),
        };
        self.records.push(Record { t, what });
    }

    fn audit(&mut self, epoch: u32, line: &str) {
        let text = self.audits.entry(epoch).or_default();
        text.push_str(line);
        text.push('\n');
    }

    fn end(self) -> (Vec<Record>, Vec<Audit>) {
        let audits = self.audits.iter().map(|(epoch, text)| Audit::parse(*epoch, text)).collect();
        (self.records, audits)
    }
}

/// The first life in a place.
fn name(place: &str) -> String {
    if place.contains('.') { place.to_owned() } else { format!("{place}.1") }
}
