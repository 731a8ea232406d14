//! `monolock acl check`: which rule allows, or that none does; and what is said about a list that is wrong.

use std::fs;

use crate::support::{Ended, assert_fails, monolock, outcome};

/// The list of this text, asked about an identity and a lock.
fn check(text: &str, identity: &str, lock: &str) -> Ended {
    let directory = tempfile::tempdir().unwrap();
    let acl = directory.path().join("acl.json");
    fs::write(&acl, text).unwrap();
    let mut command = monolock(["acl", "check", "--acl-file"]);
    command.arg(&acl).args([identity, lock]);
    let mut ended = outcome(&mut command);
    ended.stderr = ended.stderr.replace(&acl.display().to_string(), "FILE");
    ended
}

const LIST: &str = r#"{
    "rules": [
        {"identity": "spiffe://prod/worker/*", "locks": ["nightly/*", "shard-?"]},
        {"identity": "*", "locks": ["common"]},
        {"identity": "zoë?", "locks": ["["]}
    ]
}"#;

#[test]
fn the_first_rule_that_allows_is_named() {
    for (identity, lock, verdict) in [
        (
            "spiffe://prod/worker/a/b",
            "nightly/x/y",
            r#"allowed by rule 1 (identity "spiffe://prod/worker/*", locks ["nightly/*", "shard-?"])"#,
        ),
        (
            "spiffe://prod/worker/",
            "shard-ß",
            r#"allowed by rule 1 (identity "spiffe://prod/worker/*", locks ["nightly/*", "shard-?"])"#,
        ),
        ("", "common", r#"allowed by rule 2 (identity "*", locks ["common"])"#),
        ("zoë!", "[", r#"allowed by rule 3 (identity "zoë?", locks ["["])"#),
    ] {
        let ended = check(LIST, identity, lock);
        let expected = Ended { status: 0, stdout: format!("{verdict}\n"), stderr: String::new() };
        assert_eq!(ended, expected, "{identity} {lock}");
    }
}

#[test]
fn that_none_allows_is_status_1() {
    for (identity, lock) in [
        ("spiffe://prod/worker", "nightly/x"),
        ("Spiffe://prod/worker/1", "nightly/x"),
        ("xspiffe://prod/worker/1", "nightly/x"),
        ("spiffe://prod/worker/1", "nightly"),
        ("spiffe://prod/worker/1", "shard-"),
        ("spiffe://prod/worker/1", "shard-10"),
        ("zoe\u{308}!", "["),
        ("zoë!", "[]"),
        ("anybody", "Common"),
    ] {
        let ended = check(LIST, identity, lock);
        assert_eq!(ended.status, 1, "{identity} {lock}");
        assert_eq!(ended.stdout, "denied: none of the 3 rules allows it\n");
    }
}

#[test]
fn a_list_that_is_wrong_names_the_rule_and_is_status_2() {
    for (text, sentence) in [
        (r#"{"rules": [{"identity": "", "locks": ["a"]}]}"#, r#"rule 1 (identity ""): the identity is empty"#),
        (
            r#"{"rules": [{"identity": "a", "locks": ["a"]}, {"identity": "b", "locks": []}]}"#,
            r#"rule 2 (identity "b"): there are no locks"#,
        ),
        (r#"{"rules": [{"identity": "a", "locks": ["a", ""]}]}"#, r#"rule 1 (identity "a"): a lock pattern is empty"#),
        (r#"{"rules": [{"identity": "a"}]}"#, "rule 1: missing field `locks`"),
        (r#"{"rules": [{"locks": ["a"]}]}"#, "rule 1: missing field `identity`"),
        (
            r#"{"rules": [{"identity": "a", "locks": ["a"]}, {"identity": "b", "locks": ["b"], "deny": ["c"]}]}"#,
            "rule 2: unknown field `deny`",
        ),
        (r#"{"rules": [{"identity": "a", "locks": ["a", 7]}]}"#, "rule 1: invalid type: integer `7`"),
        (r#"{"rules": [{"identity": "a", "locks": "a"}]}"#, r#"rule 1: invalid type: string "a""#),
        (r#"{"rules": [{"identity": "a", "identity": "b", "locks": ["a"]}]}"#, "rule 1: duplicate field `identity`"),
        (r#"{"rules": [["a", ["b"]]]}"#, "rule 1: invalid type: sequence"),
        ("[[]]", "invalid type: sequence"),
        (r#"{"rules": [], "roles": []}"#, "unknown field `roles`"),
        (r#"{"rules": []} {}"#, "trailing characters"),
        ("{}", "missing field `rules`"),
        ("", "EOF while parsing"),
        (r#"{"rules": [{"identity": "a", "locks": ["#, "rule 1: EOF while parsing"),
    ] {
        let ended = check(text, "a", "a");
        assert_eq!(
            (ended.status, ended.stdout.as_str(), ended.stderr.lines().count()),
            (2, "", 1),
            "{text}: {ended:?}"
        );
        assert!(ended.stderr.starts_with(&format!("monolock: --acl-file FILE: {sentence}")), "{text}: {ended:?}");
    }
    assert_fails(
        &mut monolock(["acl", "check", "--acl-file", "/nowhere.json", "a", "a"]),
        2,
        "--acl-file /nowhere.json: No such file or directory (os error 2)",
    );
}
