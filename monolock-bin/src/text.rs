//! Words for people on a terminal: names that do nothing there but be read, durations, and tables.
//!
//! Names and identities come from strangers. Whatever is no visible character is shown as an escape (`\n`,
//! `\u{202e}`), and a backslash as two, so that two names never look alike for it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr as _;

use crate::failure::{FAILED, Failure};

pub(crate) const HEAD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BUSY: Style = AnsiColor::Yellow.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();

/// No column is made wider than this for the sake of a long cell; the cell's own line is.
const WIDEST: usize = 48;

/// A name as it may be shown.
pub(crate) fn safe(name: &str) -> String {
    // Quotes need no escape here.
    name.split_inclusive(['"', '\'']).fold(String::with_capacity(name.len()), |mut safe, piece| {
        let quote = piece.ends_with(['"', '\'']).then(|| &piece[piece.len() - 1..]);
        safe.extend(piece[..piece.len() - quote.map_or(0, str::len)].escape_debug());
        safe.push_str(quote.unwrap_or_default());
        safe
    })
}

/// A name in quotes, for a sentence.
pub(crate) fn quoted(name: &str) -> String {
    format!("{name:?}")
}

/// Who a client is, the best that is known: its identity, else its address.
pub(crate) fn who(identity: &str, remote_addr: &str) -> String {
    safe(if identity.is_empty() { remote_addr } else { identity })
}

/// How long something has lasted: `7s`, `3m 04s`, `2h 05m`, `4d 03h`.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

/// A duration to the millisecond below ten seconds, and to the second above: `340ms`, `3s 20ms`, `2m 3s`.
pub(crate) fn brief(duration: Duration) -> String {
    let millis = duration.as_millis();
    let millis = if millis < 10_000 { millis } else { millis / 1000 * 1000 };
    let duration = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    if duration.is_zero() { "0ms".to_owned() } else { humantime::format_duration(duration).to_string() }
}

/// A time in UTC, to the second.
pub(crate) fn time(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace('T', " ").replace('Z', " UTC")
}

/// `1 lock`, `2 locks`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// A text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    if style == Style::new() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::in_style(Style::new(), text)
    }

    pub(crate) fn in_style(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

/// Rows in aligned columns with a head, two spaces between.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [Cell; N]>) -> String {
    let head = head.map(|text| Cell::in_style(HEAD, text));
    let rows: Vec<[Cell; N]> = std::iter::once(head).chain(rows).collect();
    aligned(&rows)
}

/// Pairs of what something is called and what it is.
pub(crate) fn pairs(pairs: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let rows: Vec<[Cell; 2]> =
        pairs.into_iter().map(|(what, value)| [Cell::in_style(FAINT, what), Cell::new(value)]).collect();
    aligned(&rows)
}

fn aligned<const N: usize>(rows: &[[Cell; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.text.width().min(WIDEST).max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
            text += &styled(cell.style, &cell.text);
            if place + 1 < N {
                let gap = width.saturating_sub(cell.text.width()) + 2;
                let _ = write!(text, "{:gap$}", "");
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// Writes to standard output, with the colours that go there.
///
/// # Errors
/// It takes no more. Where a reader has closed the pipe, it has read enough, and there is nothing to say about it.
pub(crate) fn print(color: ColorChoice, text: &str) -> Result<(), Failure> {
    let mut stdout = AutoStream::new(io::stdout().lock(), color);
    written(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// A document in JSON as it may be shown: what is no visible character is escaped there too, and it means the same.
pub(crate) fn safe_json(document: &str) -> String {
    // What is not ASCII, or is DEL, can stand in strings alone, and servers escape the other controls themselves.
    let is_safe = |c: char| c == '\n' || (c != '\u{7f}' && (c.is_ascii() || c.escape_debug().len() == 1));
    document.chars().fold(String::with_capacity(document.len()), |mut safe, c| {
        if is_safe(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
        safe
    })
}

/// Writes text for programs to standard output, as it is.
///
/// # Errors
/// Those of [`print()`].
pub(crate) fn print_raw(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text).and_then(|()| stdout.flush()))
}

fn written(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::nobody_reads();
        }
        Failure::new(FAILED, format_args!("cannot write to standard output: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anstyle::Style;

    use super::{Cell, age, brief, safe, styled, table};

    #[test]
    fn b52_what_is_shown_of_a_name_has_no_effect_and_is_unmistakable() {
        for (name, shown) in [
            ("nightly/import", "nightly/import"),
            ("\u{1b}[31mred\r\n", r"\u{1b}[31mred\r\n"),
            ("\u{202e}txt.exe\u{2066}\u{200f}\u{61c}", r"\u{202e}txt.exe\u{2066}\u{200f}\u{61c}"),
            ("a\\nb", r"a\\nb"),
            ("it's \"so\"", "it's \"so\""),
            ("\"\"", "\"\""),
            ("\0\u{7f}\u{9b}\u{85}", r"\0\u{7f}\u{9b}\u{85}"),
            ("\u{2028}\u{feff}\u{200b}", r"\u{2028}\u{feff}\u{200b}"),
            ("größer 锁 🔒", "größer 锁 🔒"),
        ] {
            assert_eq!(safe(name), shown);
        }
    }

    #[test]
    fn b52_json_has_nothing_raw_in_it_either_and_means_the_same() {
        let document = "{\"name\":\"a\u{202e}\u{7f}\u{9b}\u{e0001}\u{feff} größer 锁 🔒 \\n\\u001b\"}\n";
        let safe = super::safe_json(document);
        let expected = r#"{"name":"a\u202e\u007f\u009b\udb40\udc01\ufeff größer 锁 🔒 \n\u001b"}"#;
        assert_eq!(safe, format!("{expected}\n"));
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&safe), parsed(document));
    }

    #[test]
    fn a_time_is_in_utc() {
        assert_eq!(super::time(std::time::SystemTime::UNIX_EPOCH), "1970-01-01 00:00:00 UTC");
    }

    #[test]
    fn ages_and_durations_are_short() {
        let ages = [0, 59, 60, 3599, 3600, 86399, 86400, 9_000_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0s", "59s", "1m 00s", "59m 59s", "1h 00m", "23h 59m", "1d 00h", "104d 04h"]);
        let durations = [0, 1, 340, 3020, 9999, 10_500, 123_456].map(|millis| brief(Duration::from_millis(millis)));
        assert_eq!(durations, ["0ms", "1ms", "340ms", "3s 20ms", "9s 999ms", "10s", "2m 3s"]);
    }

    #[test]
    fn columns_are_as_wide_as_they_look_and_a_very_long_cell_moves_its_own_row_alone() {
        let long = "x".repeat(60);
        let rows = [["锁🔒", "1"], ["e\u{301}a", "2"], [&long, "3"], ["last", ""]];
        let text = table(["NAME", "N"], rows.map(|row| row.map(Cell::new)));
        let expected = [
            &styled(super::HEAD, "NAME"),
            "                                              ",
            &styled(super::HEAD, "N"),
            "\n锁🔒                                              1\ne\u{301}a                                                2\n",
            &long,
            "  3\nlast\n",
        ];
        assert_eq!(text, expected.concat());
        assert_eq!(styled(Style::new(), "plain"), "plain");
    }
}
