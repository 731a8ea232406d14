//! Whole screens, as they look after keys and events.

use std::time::{Duration, SystemTime};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::api::{Client, Holder, Lock, Waiter};
use crate::follow::Event;
use crate::top::frame::{Palette, draw};
use crate::top::screen::{Contact, Screen, Task};

/// A time so many seconds after the first.
fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn client(identity: &str, session: u64) -> Client {
    let remote_addr = format!("10.0.0.1:{}", 5000 + session);
    Client { identity: identity.to_owned(), remote_addr, session, lease_ms: 10_000, lease_remaining_ms: 8000 }
}

fn lock(name: &str, held_since: u64, waiting_since: &[u64]) -> Lock {
    let holder = Holder { client: client("", held_since), since: at(held_since), token: 40 + held_since };
    let waiter = |since: &u64| Waiter { client: client("", *since), queued_at: at(*since) };
    Lock { name: name.to_owned(), holder: Some(holder), waiters: waiting_since.iter().map(waiter).collect() }
}

fn screen() -> Screen {
    let mut screen = Screen::new("127.0.0.1:7071".to_owned(), None, at(100));
    screen.list();
    screen.locks.page(vec![
        lock("busy", 90, &[91, 92, 93]),
        lock("nightly/import", 50, &[60]),
        lock("old", 1, &[]),
        lock("\u{1b}[31m\u{202e}hostile", 95, &[]),
    ]);
    screen.locks.listed();
    screen
}

fn press(screen: &mut Screen, codes: impl IntoIterator<Item = KeyCode>) -> Option<Task> {
    codes.into_iter().fold(None, |_, code| screen.key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn typed(text: &str) -> impl Iterator<Item = KeyCode> {
    text.chars().map(KeyCode::Char)
}

/// The screen's lines, of a terminal of this size.
fn picture(screen: &mut Screen, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(screen, Palette::Plain, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

#[track_caller]
fn assert_shows(screen: &mut Screen, (width, height): (u16, u16), expected: &str) {
    let lines = picture(screen, (width, height));
    let expected: Vec<&str> = expected.strip_prefix('\n').unwrap().lines().collect();
    assert_eq!(lines, expected, "\n{}\n", lines.join("\n"));
}

#[test]
fn all_locks_in_80_by_24() {
    let mut screen = screen();
    let mut lines = vec![
        "monolock 127.0.0.1:7071  4 locks, 4 waiters  live",
        "sorted by waiters",
        "NAME                         HOLDER             HELD FOR   WAITERS  LONGEST WAIT",
        "busy                         10.0.0.1:5090      10s              3            9s",
        "nightly/import               10.0.0.1:5050      50s              1           40s",
        r"\u{1b}[31m\u{202e}hostile    10.0.0.1:5095      5s               0             -",
        "old                          10.0.0.1:5001      1m 39s           0             -",
    ];
    lines.resize(23, "");
    lines.push("Enter look  s sort  / filter  r release  ? help  q quit");
    assert_eq!(picture(&mut screen, (80, 24)), lines);
}

#[test]
fn keys_sort_and_filter() {
    let names = |screen: &mut Screen| -> Vec<String> {
        let lines = picture(screen, (60, 10));
        lines[3..9]
            .iter()
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .filter(|name| !name.is_empty())
            .collect()
    };
    let mut screen = screen();
    let hostile = r"\u{1b}[31m\u{2…";
    assert_eq!(names(&mut screen), ["busy", "nightly/import", hostile, "old"]);
    press(&mut screen, typed("s"));
    assert_eq!(names(&mut screen), ["nightly/import", "busy", hostile, "old"], "by the longest wait");
    press(&mut screen, typed("s"));
    assert_eq!(names(&mut screen), ["old", "nightly/import", "busy", hostile], "by the longest hold");
    press(&mut screen, typed("s"));
    assert_eq!(names(&mut screen), [hostile, "busy", "nightly/import", "old"], "by name");

    press(&mut screen, typed("/ight"));
    assert_eq!(names(&mut screen), ["nightly/import"]);
    assert_eq!(picture(&mut screen, (60, 10))[9], "/ight   Enter: keep   Esc: drop");
    press(&mut screen, [KeyCode::Backspace, KeyCode::Char('?'), KeyCode::Enter]);
    assert_eq!(names(&mut screen), ["no"], "a pattern matches the whole name");
    press(&mut screen, [KeyCode::Esc]);
    press(&mut screen, typed("/?us*").chain([KeyCode::Enter]));
    assert_eq!(names(&mut screen), ["busy"]);
    assert_eq!(picture(&mut screen, (60, 10))[1], "sorted by name  filter ?us*");
    press(&mut screen, [KeyCode::Esc]);
    assert_eq!(names(&mut screen).len(), 4);
}

#[test]
fn a_lock_with_its_queue_and_a_release_that_names_the_holder() {
    let mut screen = screen();
    assert_eq!(press(&mut screen, [KeyCode::Down, KeyCode::Up, KeyCode::Enter]), Some(Task::Look("busy".to_owned())));
    screen.leases = Some(lock("busy", 90, &[]));
    assert_shows(
        &mut screen,
        (72, 12),
        "
monolock 127.0.0.1:7071  4 locks, 4 waiters  live
busy
held by  10.0.0.1:5090, session 90, for 10s
token    130, lease 10s, 8s left when last seen

PLACE  WAITS FOR    SESSION  WAITER
    1  9s                91  10.0.0.1:5091
    2  8s                92  10.0.0.1:5092
    3  7s                93  10.0.0.1:5093


Esc back  r release  x kick the selected waiter  ? help  q quit",
    );
    assert_eq!(press(&mut screen, typed("r")), None);
    assert_shows(
        &mut screen,
        (72, 12),
        "
monolock 127.0.0.1:7071  4 locks, 4 waiters  live
bu┌ Release ─────────────────────────────────────────────────────────┐
he│ Release busy?                                                    │
to│                                                                  │
  │ It is held by 10.0.0.1:5090, session 90                          │
PL│ for 10s, under token 130.                                        │
  │ Next is 10.0.0.1:5091, session 91.                               │
  │                                                                  │
  │ y: release it   n: do nothing                                    │
  │                                                                  │
  └──────────────────────────────────────────────────────────────────┘
Esc back  r release  x kick the selected waiter  ? help  q quit",
    );
}

#[test]
fn nothing_is_released_or_kicked_by_a_slip() {
    let mut screen = screen();
    for slip in [KeyCode::Enter, KeyCode::Char(' '), KeyCode::Char('q'), KeyCode::Char('r')] {
        press(&mut screen, typed("r"));
        assert_eq!(press(&mut screen, [slip]), None);
        assert!(screen.prompt.is_some(), "{slip:?} is no answer");
        assert_eq!(press(&mut screen, typed("n")), None);
        assert!(screen.prompt.is_none());
        assert_eq!(screen.message.as_deref(), Some("nothing was done"));
    }
    // While the question stands, the lock passes on: the answer is about the claim that was shown.
    press(&mut screen, typed("r"));
    let event = |event: &str, session, token| Event {
        time: Some(at(99)),
        kind: event.to_owned(),
        lock: "busy".to_owned(),
        session: Some(session),
        token: Some(token),
        ..Event::default()
    };
    assert_eq!(screen.happened(event("released", 90, 130)), None);
    assert_eq!(screen.happened(event("granted", 91, 200)), None);
    let meant = Task::Release { name: "busy".to_owned(), token: 130 };
    assert_eq!(press(&mut screen, typed("y")), Some(meant));

    press(&mut screen, [KeyCode::Enter, KeyCode::Down]);
    assert_eq!(press(&mut screen, typed("x")), None);
    // The selected waiter is meant, though the queue has moved up since.
    assert_eq!(screen.happened(event("waiter_gone", 92, 0)), None);
    assert_eq!(press(&mut screen, typed("y")), Some(Task::Kick { name: "busy".to_owned(), session: 93 }));
}

#[test]
fn events_move_the_rows_and_the_selection_stays_with_its_lock() {
    let mut screen = screen();
    press(&mut screen, [KeyCode::Down]);
    assert_eq!(screen.selected.as_deref(), Some("nightly/import"));
    for session in 200..205 {
        let event = Event {
            time: Some(at(100)),
            kind: "queued".to_owned(),
            lock: "nightly/import".to_owned(),
            session: Some(session),
            ..Event::default()
        };
        screen.happened(event);
    }
    let lines = picture(&mut screen, (80, 10));
    assert_eq!(lines[3], "nightly/import               10.0.0.1:5050      50s              6           40s");
    assert_eq!(press(&mut screen, [KeyCode::Enter]), Some(Task::Look("nightly/import".to_owned())));
}

#[test]
fn whatever_the_size_there_is_a_picture() {
    for size in [(1, 1), (2, 3), (10, 4), (20, 5), (200, 60)] {
        for keys in ["", "r", "/x", "?", "\n", "\nx"] {
            let mut screen = screen();
            press(&mut screen, keys.chars().map(|c| if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) }));
            assert_eq!(picture(&mut screen, size).len(), usize::from(size.1));
        }
    }
}

#[test]
fn a_lost_server_is_said_and_what_was_seen_stays() {
    let mut screen = screen();
    screen.contact = Contact::Lost("it has closed the connection".to_owned());
    let lines = picture(&mut screen, (90, 10));
    assert_eq!(lines[0], "monolock 127.0.0.1:7071  4 locks, 4 waiters  LOST: it has closed the connection");
    assert!(lines[3].starts_with("busy"));
}

#[test]
fn fifteen_thousand_locks_are_a_screen_as_well() {
    let mut screen = Screen::new("s".to_owned(), None, at(100));
    screen.list();
    screen.locks.page((0..15_000).map(|number| lock(&format!("{number:05}"), 1, &[])).collect());
    screen.locks.listed();
    picture(&mut screen, (80, 24));
    press(&mut screen, [KeyCode::End]);
    let lines = picture(&mut screen, (80, 24));
    assert!(lines[22].starts_with("14999"), "{lines:?}");
    press(&mut screen, [KeyCode::PageUp]);
    assert_eq!(screen.selected.as_deref(), Some("14979"));
    press(&mut screen, typed("/0123*").chain([KeyCode::Enter, KeyCode::End]));
    assert_eq!(screen.selected.as_deref(), Some("01239"));
}
