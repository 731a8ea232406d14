//! Access-control lists: parsed as a reader of the JSON has it, and evaluated as a table says.

use monolock_core::LockNameRef;
use monolock_net::Acl;
use serde_json::{Map, Value, json};

/// Patterns of one rule: for the identity, and for the locks.
type Rule = (String, Vec<String>);

/// What a text is.
#[derive(Debug)]
enum Reading {
    /// No object with nothing but a list of rules.
    Other,
    /// The rule of this number is the first that is none.
    WrongRule(usize),
    Rules(Vec<Rule>),
}

/// All bytes as the JSON of a list; and as lines, of which the first says who wants which lock, and each other is a
/// rule, with tabs between the patterns.
pub fn acl(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    parse(&text);
    let mut lines = text.split('\n').map(|line| line.split('\t').map(str::to_owned));
    let Some(mut request) = lines.next() else { return };
    let (identity, lock) = (request.next().unwrap_or_default(), request.next().unwrap_or_default());
    let rules: Vec<_> = lines.map(|mut line| (line.next().unwrap_or_default(), line.collect::<Vec<_>>())).collect();
    let rules: Vec<_> = rules.iter().map(|(identity, locks)| json!({"identity": identity, "locks": locks})).collect();
    if let Some((acl, rules)) = parse(&json!({"rules": rules}).to_string()) {
        evaluate(&acl, &rules, &identity, &lock);
    }
}

fn parse(text: &str) -> Option<(Acl, Vec<Rule>)> {
    let parsed = Acl::parse(text);
    let reading = read(text);
    match (parsed, reading) {
        (Ok(acl), Reading::Rules(rules)) => {
            let parsed = acl.rules().iter().map(|rule| {
                (rule.identity().to_string(), rule.locks().iter().map(ToString::to_string).collect::<Vec<_>>())
            });
            assert!(parsed.eq(rules.iter().cloned()), "{acl:?} {rules:?}");
            assert!(acl.rules().iter().zip(1..).all(|(rule, number)| rule.number() == number));
            for (identity, locks) in &rules {
                for lock in locks {
                    evaluate(&acl, &rules, &example(identity), &example(lock));
                }
            }
            Some((acl, rules))
        }
        (Ok(acl), reading) => panic!("{acl:?} was read as {reading:?}"),
        // A reader of all JSON lets the last of two equal fields stand.
        (Err(error), _) if error.to_string().contains("duplicate field") => None,
        (Err(error), Reading::Rules(rules)) => panic!("{error}: {rules:?}"),
        (Err(error), Reading::WrongRule(number)) => {
            let said = error.to_string();
            let names_it = [format!("rule {number}: "), format!("rule {number} (")];
            assert!(names_it.iter().any(|name| said.starts_with(name)), "{said:?} is about rule {number}");
            None
        }
        (Err(error), Reading::Other) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// The text as any reader of JSON has it.
fn read(text: &str) -> Reading {
    let Ok(Value::Object(document)) = serde_json::from_str::<Value>(text) else { return Reading::Other };
    let Some(Value::Array(rules)) = document.get("rules").filter(|_| document.len() == 1) else {
        return Reading::Other;
    };
    let shaped: Vec<_> = rules.iter().map(|rule| rule.as_object().and_then(shape)).collect();
    // What has the wrong shape is found before what is only empty.
    if let Some(at) = shaped.iter().position(Option::is_none) {
        return Reading::WrongRule(at + 1);
    }
    let shaped: Vec<Rule> = shaped.into_iter().flatten().collect();
    let is_empty = |(identity, locks): &Rule| identity.is_empty() || locks.is_empty() || locks.contains(&String::new());
    match shaped.iter().position(is_empty) {
        Some(at) => Reading::WrongRule(at + 1),
        None => Reading::Rules(shaped),
    }
}

fn shape(rule: &Map<String, Value>) -> Option<Rule> {
    let identity = rule.get("identity")?.as_str()?.to_owned();
    let locks = rule.get("locks")?.as_array()?.iter().map(|lock| lock.as_str().map(str::to_owned));
    (rule.len() == 2).then_some((identity, locks.collect::<Option<_>>()?))
}

/// A text that a pattern matches.
fn example(pattern: &str) -> String {
    pattern.replace('*', "é/").replace('?', "\u{1f512}")
}

fn evaluate(acl: &Acl, rules: &[Rule], identity: &str, lock: &str) {
    let Ok(name) = LockNameRef::new(lock) else { return };
    let allows = |(who, what): &Rule| matches(who, identity) && what.iter().any(|pattern| matches(pattern, lock));
    let expected = rules.iter().position(allows).map(|at| at + 1);
    let allowing = acl.allowing_rule(identity, name).map(monolock_net::AclRule::number);
    assert_eq!(allowing, expected, "{identity:?} {lock:?} {rules:?}");
}

/// Whether a pattern matches a text, from a table: what of the text is matched by so much of the pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let mut row: Vec<bool> = (0..=text.len()).map(|at| at == 0).collect();
    for wanted in pattern.chars() {
        let mut next = vec![false; row.len()];
        for at in 0..row.len() {
            next[at] = match wanted {
                '*' => row[at] || (at > 0 && next[at - 1]),
                '?' => at > 0 && row[at - 1],
                literal => at > 0 && row[at - 1] && text[at - 1] == literal,
            };
        }
        row = next;
    }
    row[text.len()]
}
