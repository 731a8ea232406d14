//! What a person sees and types: the real program in a pseudo-terminal, its screen read as a terminal would show it.

use std::env;
use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::operator::Administered;
use crate::support::{Frame, PATIENCE};

/// A program at a terminal.
struct Person {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
}

fn some(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl Person {
    fn types(administered: &Administered, line: &[&str]) -> Self {
        let pair = native_pty_system().openpty(size(80, 24)).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_monolock"));
        for (variable, _) in env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
                command.env_remove(variable);
            }
        }
        command.args(line);
        command.env("MONOLOCK_ADMIN_ADDRESS", administered.admin.to_string());
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Self { child, master: pair.master, keyboard, output, screen: vt100::Parser::new(some(24), some(80), 0) }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    fn lines(&self) -> Vec<String> {
        let (_, columns) = self.screen.screen().size();
        self.screen.screen().rows(0, columns.get()).map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    fn sees(&mut self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.lines()) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(error) => panic!("{what} is not to be seen ({error}):\n{}", self.lines().join("\n")),
            }
        }
    }

    #[track_caller]
    fn sees_text(&mut self, text: &str) {
        self.sees(text, |lines| lines.join("\n").contains(text));
    }

    /// Waits for the end, and says the exit status.
    fn ended(&mut self) -> u32 {
        // The terminal is closed with the program.
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.screen.process(&bytes);
        }
        self.child.wait().unwrap().exit_code()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn top_shows_a_lock_filters_and_releases_it_and_gives_the_terminal_back() {
    let administered = Administered::start();
    let server = &administered.server;
    let mut first = server.connect();
    first.acquire("nightly/import", 60_000);
    let token = first.expect_acquired();
    let mut second = server.queue("nightly/import");
    let _other = server.hold("other");
    let holder = first.stream.local_addr().unwrap().to_string();

    let mut person = Person::types(&administered, &["top"]);
    person.sees_text("2 locks, 1 waiter  live");
    let is_row = |line: &str| line.starts_with("nightly/import ") && line.contains(&holder);
    person.sees("the lock in the first row", |lines| is_row(&lines[3]) && lines[4].starts_with("other "));
    assert!(person.screen.screen().alternate_screen() && person.screen.screen().hide_cursor());

    // The claim that comes now is seen as it comes.
    let _third = server.queue("nightly/import");
    person.sees_text("2 locks, 2 waiters  live");
    person.press("/oth");
    person.sees("one row", |lines| lines[3].starts_with("other ") && lines[4].is_empty());
    person.press("\x1b");
    person.sees("both rows", |lines| is_row(&lines[3]));
    // Alone, it would be the beginning of another key.
    person.press("\r");
    person.sees_text(&format!("held by  {holder}, session "));
    person.sees_text(&format!("token    {token}, lease 1m, "));
    person.press("r");
    person.sees_text("Release nightly/import?");
    person.sees_text(&format!("It is held by {holder}, session "));
    person.press("n");
    person.sees_text("nothing was done");
    first.heartbeat();
    first.expect(Frame::Acquired(token));
    person.press("r");
    person.sees_text("y: release it");
    person.press("y");
    first.expect(Frame::Error(0x02));
    second.expect_acquired();
    person.sees_text("released \"nightly/import\"");
    let next = second.stream.local_addr().unwrap().to_string();
    person.sees_text(&format!("held by  {next}, session "));

    person.master.resize(size(60, 10)).unwrap();
    person.screen.screen_mut().set_size(some(10), some(60));
    person.sees("the last row, further up", |lines| lines[9].starts_with("released \"nightly/import\""));
    person.press("?");
    person.sees("the help, in so many rows", |lines| lines[9].starts_with("any key: back"));
    person.press("  q");
    assert_eq!(person.ended(), 0);
    let screen = person.screen.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor(), "the terminal is as it was");
}

#[test]
fn a_release_at_a_terminal_names_the_holder_and_asks() {
    let administered = Administered::start();
    let mut holder = administered.server.connect();
    holder.acquire("jobs", 60_000);
    let token = holder.expect_acquired();
    let address = holder.stream.local_addr().unwrap();
    for (answer, status) in [("\r", 4), ("no\r", 4), ("y\r", 0)] {
        let mut person = Person::types(&administered, &["release", "jobs"]);
        person.sees_text(&format!("\"jobs\" is held by {address} (session "));
        person.sees_text(&format!("under token {token}; nobody waits"));
        person.sees_text("Release it? [y/N]");
        person.press(answer);
        assert_eq!(person.ended(), status);
        person.sees_text(if status == 0 { "released \"jobs\"" } else { "monolock: nothing was done" });
    }
    holder.expect(Frame::Error(0x02));
}

#[test]
fn at_a_terminal_a_table_has_colours() {
    let administered = Administered::start();
    let _holder = administered.server.hold("jobs");
    let mut person = Person::types(&administered, &["locks"]);
    assert_eq!(person.ended(), 0);
    let name = person.screen.screen().cell(1, 0).unwrap();
    assert_eq!((name.contents(), name.fgcolor()), ("j", vt100::Color::Idx(6)));
}
