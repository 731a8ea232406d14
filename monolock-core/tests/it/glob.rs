//! Patterns, beside a matcher that is plainly right and terribly slow.

use monolock_core::Glob;
use proptest::prelude::*;

fn oracle(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (['*', rest @ ..], _) => oracle(rest, text) || (!text.is_empty() && oracle(pattern, &text[1..])),
        (['?', rest @ ..], [_, left @ ..]) => oracle(rest, left),
        ([one, rest @ ..], [other, left @ ..]) => one == other && oracle(rest, left),
        (_, []) | ([], _) => false,
    }
}

/// The oracle with a memory, for long texts: row by row over the pattern.
fn table(pattern: &[char], text: &[char]) -> bool {
    let mut row: Vec<bool> = (0..=text.len()).map(|at| at == 0).collect();
    for &wanted in pattern {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
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

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

fn holds(pattern: &str, text: &str) -> bool {
    Glob::new(pattern).matches(text)
}

#[test]
fn what_a_human_expects() {
    for (pattern, text) in [
        ("", ""),
        ("*", ""),
        ("*", "anything/at all\n"),
        ("**", ""),
        ("a", "a"),
        ("?", "é"),
        ("?", "\u{1f512}"),
        ("a*", "a"),
        ("*a", "banana"),
        ("shard-?", "shard-7"),
        ("*/daily/*", "x/daily/"),
        ("a*b*c", "aXbYbZc"),
        ("*?", "x"),
        ("[a]", "[a]"),
        ("a\\*", "a\\x"),
        ("é*", "éa"),
    ] {
        assert!(holds(pattern, text), "{pattern:?} does not match {text:?}");
    }
    for (pattern, text) in [
        ("", "a"),
        ("?", ""),
        ("a", "A"),
        ("a", "aa"),
        ("*a", "bananas"),
        ("shard-?", "shard-12"),
        ("a*b", "ac"),
        ("?", "e\u{301}"),
        ("??", "é"),
        ("*?*?*", "x"),
        ("é", "e\u{301}"),
        ("[a]", "a"),
    ] {
        assert!(!holds(pattern, text), "{pattern:?} matches {text:?}");
    }
}

#[test]
fn a_pattern_is_shown_as_it_was_given() {
    let glob = Glob::new("a*\n?");
    assert_eq!(
        (glob.as_str(), glob.to_string(), format!("{glob:?}")),
        ("a*\n?", "a*\n?".into(), r#"Glob("a*\n?")"#.into())
    );
}

#[test]
fn no_pattern_makes_it_backtrack() {
    let text = "a".repeat(100_000);
    assert!(!holds(&("*a".repeat(200) + "*b"), &text));
    assert!(holds(&"a*".repeat(200), &text));
    assert!(!holds(&("a".repeat(300) + &"*?".repeat(300) + "b"), &text));
    assert!(holds(&"*".repeat(10_000), &text));
}

#[test]
fn lengths_around_the_word_size() {
    for length in [1, 62, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300] {
        let text = "é".repeat(length);
        for pattern in [text.clone(), "?".repeat(length), format!("*{text}"), format!("{text}*"), "?*".repeat(length)] {
            assert!(holds(&pattern, &text), "{length}: {pattern}");
            assert!(!holds(&pattern, &text[..text.len() - 2]), "{length}: {pattern} and a shorter text");
            assert_eq!(
                holds(&pattern, &format!("{text}é")),
                pattern.contains('*'),
                "{length}: {pattern} and a longer text"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn agrees_with_the_oracle(pattern in "[ab*?é]{0,9}", text in "[abé]{0,9}") {
        prop_assert_eq!(holds(&pattern, &text), oracle(&chars(&pattern), &chars(&text)));
        prop_assert_eq!(oracle(&chars(&pattern), &chars(&text)), table(&chars(&pattern), &chars(&text)));
    }

    #[test]
    fn agrees_with_the_oracle_on_any_characters(pattern in "\\PC{0,8}", text in "\\PC{0,8}") {
        prop_assert_eq!(holds(&pattern, &text), oracle(&chars(&pattern), &chars(&text)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A text made from the pattern matches more often than any two strings would.
    #[test]
    fn agrees_with_the_oracle_on_long_texts(
        parts in proptest::collection::vec(("[a🔒]{0,40}", prop_oneof![Just("*"), Just("?"), Just("")], "[a🔒]{0,30}"), 1..12),
        spoil in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let pattern: String = parts.iter().flat_map(|(literal, joker, _)| [literal.as_str(), joker]).collect();
        let filled = |joker: &str, fill: &str| match joker {
            "*" => fill.to_owned(),
            "?" => "b".to_owned(),
            _ => String::new(),
        };
        let mut text: Vec<char> =
            parts.iter().flat_map(|(literal, joker, fill)| chars(&format!("{literal}{}", filled(joker, fill)))).collect();
        prop_assert!(holds(&pattern, &text.iter().collect::<String>()));
        if let Some(spoil) = spoil.filter(|_| !text.is_empty()) {
            text.remove(spoil.index(text.len()));
        }
        prop_assert_eq!(holds(&pattern, &text.iter().collect::<String>()), table(&chars(&pattern), &text));
    }
}
