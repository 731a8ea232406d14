//! What `top` is looking at, and what its keys do: a machine without a terminal, a network or a clock.

use std::cmp::Reverse;
use std::time::SystemTime;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use monolock_core::Glob;

use crate::api;
use crate::follow::Event;
use crate::text::quoted;
use crate::top::model::{Claim, Lock, Locks, Next};

/// A pattern that is typed may be so long.
const PATTERN_CHARS: usize = 255;

/// What the shell around this is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Quit,
    /// List all locks from the beginning.
    List,
    /// Look at one lock's leases.
    Look(String),
    Release {
        name: String,
        token: u64,
    },
    Kick {
        name: String,
        session: u64,
    },
}

/// How the locks are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Waiters,
    Wait,
    Hold,
    Name,
}

/// What fills the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum View {
    All,
    /// One lock; the waiter of this session is selected.
    One {
        name: String,
        waiter: Option<u64>,
    },
    Help,
}

/// What is asked of the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Filter(String),
    Release { name: String, holder: Claim, token: u64 },
    Kick { name: String, waiter: Claim },
}

/// How the server is to be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    Live,
    Lost(String),
}

/// All that is on the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) locks: Locks,
    pub(crate) server: String,
    pub(crate) now: SystemTime,
    pub(crate) sort: Sort,
    pub(crate) filter: String,
    pub(crate) view: View,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) contact: Contact,
    /// What came of the last deed.
    pub(crate) message: Option<String>,
    /// The lock that is selected, whatever its place.
    pub(crate) selected: Option<String>,
    /// How many rows the screen has for locks or waiters.
    pub(crate) rows: usize,
    /// The leases of the lock that is looked at, as they were last seen.
    pub(crate) leases: Option<api::Lock>,
    pub(crate) glob: Option<String>,
}

impl Screen {
    pub(crate) fn new(server: String, glob: Option<String>, now: SystemTime) -> Self {
        let mut locks = Locks::default();
        locks.begin_listing();
        Self {
            locks,
            server,
            now,
            sort: Sort::Waiters,
            filter: String::new(),
            view: View::All,
            prompt: None,
            contact: Contact::Live,
            message: None,
            selected: None,
            rows: 1,
            leases: None,
            glob,
        }
    }

    /// Something has happened to a lock.
    pub(crate) fn happened(&mut self, event: Event) -> Option<Task> {
        match self.locks.happened(event) {
            Next::Nothing => None,
            Next::ListAnew => Some(self.list()),
        }
    }

    /// Some events were missed, or this is the first time.
    pub(crate) fn list(&mut self) -> Task {
        self.locks.begin_listing();
        Task::List
    }

    /// The locks that the filter lets through, in their order.
    pub(crate) fn visible(&self) -> Vec<(&String, &Lock)> {
        let pattern = if self.filter.contains(['*', '?']) { self.filter.clone() } else { format!("*{}*", self.filter) };
        let glob = Glob::new(&pattern);
        let mut visible: Vec<_> =
            self.locks.iter().filter(|(name, _)| self.filter.is_empty() || glob.matches(name)).collect();
        // They come by name, and a stable sort leaves equals so. No time is later than any.
        let or_last = |time: Option<SystemTime>| (time.is_none(), time);
        match self.sort {
            Sort::Waiters => {
                visible.sort_by_key(|(_, lock)| (Reverse(lock.waiters.len()), or_last(lock.waiting_since())));
            }
            Sort::Wait => visible.sort_by_key(|(_, lock)| or_last(lock.waiting_since())),
            Sort::Hold => visible.sort_by_key(|(_, lock)| or_last(lock.held_since())),
            Sort::Name => {}
        }
        visible
    }

    /// What a key does.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Option<Task> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Task::Quit);
        }
        self.message = None;
        if let Some(prompt) = self.prompt.take() {
            return self.answer(prompt, key.code);
        }
        match (self.view.clone(), key.code) {
            (_, KeyCode::Char('q')) => return Some(Task::Quit),
            (View::Help, _) | (View::One { .. }, KeyCode::Esc | KeyCode::Backspace | KeyCode::Left) => {
                self.view = View::All;
            }
            (_, KeyCode::Char('?' | 'h')) => self.view = View::Help,
            (View::All, code) => return self.key_of_all(code),
            (View::One { name, waiter }, code) => self.key_of_one(name, waiter, code),
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing here")]
    fn answer(&mut self, prompt: Prompt, code: KeyCode) -> Option<Task> {
        let is_yes = matches!(code, KeyCode::Char('y' | 'Y'));
        match (prompt, code) {
            (Prompt::Filter(_), KeyCode::Esc) => self.filter.clear(),
            (Prompt::Filter(_), KeyCode::Enter) => {}
            (Prompt::Filter(mut text), code) => {
                match code {
                    KeyCode::Char(c) if !c.is_control() && text.chars().count() < PATTERN_CHARS => text.push(c),
                    KeyCode::Backspace => drop(text.pop()),
                    _ => {}
                }
                self.filter.clone_from(&text);
                self.prompt = Some(Prompt::Filter(text));
            }
            (Prompt::Release { name, token, .. }, _) if is_yes => return Some(Task::Release { name, token }),
            (Prompt::Kick { name, waiter }, _) if is_yes => return Some(Task::Kick { name, session: waiter.session }),
            (Prompt::Release { .. } | Prompt::Kick { .. }, KeyCode::Char('n' | 'N') | KeyCode::Esc) => {
                self.message = Some("nothing was done".to_owned());
            }
            // A slip is neither a yes nor a no.
            (prompt, _) => self.prompt = Some(prompt),
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing here")]
    fn key_of_all(&mut self, code: KeyCode) -> Option<Task> {
        match code {
            KeyCode::Char('/') => self.prompt = Some(Prompt::Filter(self.filter.clone())),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Waiters => Sort::Wait,
                    Sort::Wait => Sort::Hold,
                    Sort::Hold => Sort::Name,
                    Sort::Name => Sort::Waiters,
                }
            }
            KeyCode::Enter | KeyCode::Right => {
                let name = self.chosen()?;
                self.leases = None;
                self.view = View::One { name: name.clone(), waiter: None };
                return Some(Task::Look(name));
            }
            KeyCode::Char('r') => {
                let name = self.chosen()?;
                self.ask_to_release(name);
            }
            code => {
                let visible = self.visible();
                let at = self.place_of_chosen(&visible);
                let to = moved(code, at, visible.len(), self.rows)?;
                let name = visible.get(to).map(|(name, _)| (*name).clone());
                self.selected = name;
            }
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing here")]
    fn key_of_one(&mut self, name: String, waiter: Option<u64>, code: KeyCode) {
        let lock = self.locks.get(&name);
        let waiters: Vec<u64> =
            lock.map_or_else(Vec::new, |lock| lock.waiters.iter().map(|waiter| waiter.session).collect());
        let at = waiter.and_then(|waiter| waiters.iter().position(|session| *session == waiter)).unwrap_or(0);
        match code {
            KeyCode::Char('r') => self.ask_to_release(name),
            KeyCode::Char('x') => {
                if let Some(waiter) = lock.and_then(|lock| lock.waiters.get(at)).cloned() {
                    self.prompt = Some(Prompt::Kick { name, waiter });
                } else {
                    self.message = Some("nobody waits".to_owned());
                }
            }
            code => {
                if let Some(to) = moved(code, at, waiters.len(), self.rows) {
                    self.view = View::One { name, waiter: waiters.get(to).copied() };
                }
            }
        }
    }

    fn ask_to_release(&mut self, name: String) {
        match self.locks.get(&name).and_then(|lock| lock.holder.clone()) {
            Some((holder, token)) => self.prompt = Some(Prompt::Release { name, holder, token }),
            None => self.message = Some(format!("nobody holds {}", quoted(&name))),
        }
    }

    /// The lock that is selected: the first where none is, or the selected one is gone.
    fn chosen(&self) -> Option<String> {
        let visible = self.visible();
        visible.get(self.place_of_chosen(&visible)).map(|(name, _)| (*name).clone())
    }

    pub(crate) fn place_of_chosen(&self, visible: &[(&String, &Lock)]) -> usize {
        let selected = self.selected.as_ref();
        selected.and_then(|selected| visible.iter().position(|(name, _)| *name == selected)).unwrap_or(0)
    }
}

/// Where a key leads from a place among so many; `None` for a key that leads nowhere.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other keys do nothing here")]
fn moved(code: KeyCode, at: usize, number: usize, rows: usize) -> Option<usize> {
    let to = match code {
        KeyCode::Up => at.saturating_sub(1),
        KeyCode::Down => at + 1,
        KeyCode::PageUp => at.saturating_sub(rows.max(1)),
        KeyCode::PageDown => at + rows.max(1),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => return None,
    };
    Some(to.min(number.saturating_sub(1)))
}
