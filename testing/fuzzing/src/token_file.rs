//! The token file: what was written is read, and what was damaged is never taken for another mark.

use monolock_core::Token;
use monolock_net::fuzzing::{token_mark, token_text};

/// All bytes as the file's text; and a file as it is written, with one byte changed, added or lost.
pub fn token_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(mark) = token_mark(&text) {
        let words: Vec<_> = text.trim_end().split(' ').collect();
        assert_eq!((words[0], words[1], words.len()), ("monolock-tokens", "1", 4), "{text:?}");
        assert_eq!(numeral(words[2], 10), Some(mark.get().into()), "{text:?}");
        assert_eq!(numeral(words[3], 16), Some(mark.get().into()), "{text:?}");
    }

    let [place, byte, number @ ..] = bytes else { return };
    let mark = number.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte));
    let written = token_text(mark);
    assert_eq!(token_mark(&written).map(Token::get), (mark != 0).then_some(mark), "{written:?}");
    let at = usize::from(*place) % written.len();
    let (before, after) = written.as_bytes().split_at(at);
    for damaged in
        [[before, &[*byte], &after[1..]].concat(), [before, &[*byte], after].concat(), [before, &after[1..]].concat()]
    {
        let damaged = String::from_utf8_lossy(&damaged);
        let read = token_mark(&damaged).map(Token::get);
        assert!(read.is_none_or(|read| read == mark), "{damaged:?} is taken for {read:?} and was {mark}");
    }
}

/// The value of a numeral, digit by digit.
fn numeral(text: &str, radix: u32) -> Option<u128> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    digits
        .chars()
        .try_fold(0_u128, |number, digit| number.checked_mul(radix.into())?.checked_add(digit.to_digit(radix)?.into()))
}
