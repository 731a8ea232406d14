//! `monolock top`: all locks live on a full screen.
//!
//! What is shown and what keys do is decided by [`Screen`], which knows neither terminal nor network. This shell reads
//! keys and the event stream, does what it is told to, and gives the terminal back however it ends.

mod frame;
mod model;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anstream::{AutoStream, ColorChoice};
use clap::Args;
use crossterm::event;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval};

use crate::admin::{AdminArgs, ColorArgs, block_on};
use crate::api::{Api, ApiError, Lock, Reply};
use crate::failure::{FAILED, Failure, USAGE};
use crate::follow::{Notice, follow};
use crate::text::quoted;
use crate::top::frame::{Palette, draw};
use crate::top::screen::{Contact, Screen, Task, View};
use crate::value::{Checked, glob};

/// Nobody reads faster.
const FRAME_TIME: Duration = Duration::from_millis(200);

/// Ages are in seconds.
const LONGEST_FRAME_TIME: Duration = Duration::from_secs(1);

/// Between two looks at the leases of one lock, and before a listing that failed is tried again.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// Settings of `top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    color: ColorArgs,
    /// Only locks whose names match: * is any run of characters, ? exactly one
    #[arg(value_name = "GLOB", value_parser = Checked(glob))]
    matching: Option<String>,
}

pub(crate) const TOP_HELP: &str = "\
Keys
  Up Down PgUp PgDn Home End   move
  Enter, Esc                   look at a lock and its queue; back
  s                            sort by waiters, longest wait, longest hold, name
  /                            filter by name
  r                            release the lock, after a question that names its holder
  x                            in a lock: remove the selected waiter, after a question
  ?                            help
  q                            quit";

/// What other tasks have to say.
#[derive(Debug)]
enum Report {
    /// Of the listing of this number.
    Page(u64, Vec<Lock>, SystemTime),
    Listed(u64),
    NotListed(u64, ApiError),
    Looked(Option<Box<Lock>>),
    Done(String),
}

/// Shows the locks until a key, or the end of the world, ends it.
///
/// # Errors
/// There is no terminal, or no admin API.
pub(crate) fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    let TopArgs { admin, color, matching } = args;
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return Err(Failure::new(USAGE, "top needs a terminal: elsewhere there are monolock locks and monolock watch"));
    }
    let palette = match color.color {
        ColorChoice::Auto if AutoStream::choice(&io::stdout()) == ColorChoice::Never => Palette::Plain,
        ColorChoice::Never => Palette::Plain,
        ColorChoice::Auto | ColorChoice::Always | ColorChoice::AlwaysAnsi => Palette::Colours,
    };
    let api = admin.api()?;
    block_on(async {
        // What is wrong is said before the terminal is taken.
        let notices = follow(api.clone(), matching.clone()).await.map_err(|error| api.failure(&error))?;
        let not_taken = |error| Failure::new(FAILED, format_args!("cannot use the terminal: {error}"));
        let mut terminal = ratatui::try_init().map_err(not_taken)?;
        let screen = Screen::new(api.endpoint().to_string(), matching.clone(), SystemTime::now());
        let shown = Shell::new(api, screen, palette).run(&mut terminal, notices).await;
        drop(terminal);
        let given_back = ratatui::try_restore().map_err(not_taken);
        shown.and(given_back).map(|()| ExitCode::SUCCESS)
    })
}

struct Shell {
    api: Api,
    screen: Screen,
    palette: Palette,
    reports: Sender<Report>,
    incoming: Option<Receiver<Report>>,
    /// What the server's clock said, and when.
    clock: (SystemTime, Instant),
    /// The number of the last listing. What comes of others is too old.
    listing: u64,
    last_look: Instant,
    /// When a listing that failed is to be tried again.
    list_at: Option<Instant>,
}

impl Shell {
    fn new(api: Api, screen: Screen, palette: Palette) -> Self {
        let (reports, incoming) = channel(16);
        let clock = (SystemTime::now(), Instant::now());
        Self {
            api,
            screen,
            palette,
            reports,
            incoming: Some(incoming),
            clock,
            listing: 0,
            last_look: Instant::now(),
            list_at: None,
        }
    }

    async fn run(mut self, terminal: &mut DefaultTerminal, mut notices: Receiver<Notice>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::new(FAILED, format_args!("cannot use the terminal: {error}"));
        let mut incoming = self.incoming.take().expect("a shell runs once");
        let mut keys = keys();
        let mut frames = interval(FRAME_TIME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        let mut drawn: Option<Instant> = None;
        loop {
            tokio::select! {
                // A person goes before any number of events.
                biased;
                key = keys.recv() => match key {
                    None => return Ok(()),
                    Some(Err(error)) => return Err(failed(error)),
                    Some(Ok(event::Event::Key(key))) => {
                        let task = self.screen.key(key);
                        if self.perform(task) == Performed::Quit {
                            return Ok(());
                        }
                    }
                    // The new size is asked for when the screen is drawn.
                    Some(Ok(_)) => {}
                },
                _ = stop.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = frames.tick() => {
                    self.look_again();
                    if drawn.is_some_and(|drawn| drawn.elapsed() < LONGEST_FRAME_TIME) {
                        continue;
                    }
                }
                Some(report) = incoming.recv() => {
                    self.hear(report);
                    drawn = None;
                    continue;
                }
                notice = notices.recv() => {
                    match notice {
                        None => return Ok(()),
                        Some(Notice::Failed(error)) => return Err(self.api.failure(&error)),
                        Some(notice) => self.notice(notice),
                    }
                    drawn = None;
                    continue;
                }
            }
            let (now, at) = self.clock;
            self.screen.now = now + at.elapsed();
            terminal.draw(|frame| draw(&mut self.screen, self.palette, frame)).map_err(failed)?;
            drawn = Some(Instant::now());
        }
    }

    fn notice(&mut self, notice: Notice) {
        let task = match notice {
            Notice::Complete => {
                let is_first = !self.screen.locks.is_complete();
                self.screen.contact = Contact::Live;
                is_first.then(|| self.screen.list())
            }
            Notice::Missed { .. } => {
                self.screen.contact = Contact::Live;
                Some(self.screen.list())
            }
            Notice::Happened { event, .. } => self.screen.happened(*event),
            Notice::Lost(why) => {
                self.screen.contact = Contact::Lost(why);
                None
            }
            Notice::Failed(_) => None,
        };
        self.perform(task);
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Page(listing, ..) | Report::Listed(listing) | Report::NotListed(listing, _)
                if listing != self.listing => {}
            Report::Page(_, locks, now) => {
                self.clock = (now, Instant::now());
                self.screen.locks.page(locks);
            }
            Report::Listed(_) => self.screen.locks.listed(),
            Report::NotListed(_, error) => {
                self.screen.message = Some(format!("the locks cannot be listed: {error}"));
                self.list_at = Some(Instant::now() + LOOK_TIME);
            }
            Report::Looked(lock) => self.screen.leases = lock.map(|lock| *lock),
            Report::Done(sentence) => self.screen.message = Some(sentence),
        }
    }

    /// What is looked at is looked at again from time to time, since no event tells of leases.
    fn look_again(&mut self) {
        if self.list_at.take_if(|at| *at <= Instant::now()).is_some() {
            let task = self.screen.list();
            self.perform(Some(task));
        }
        if let View::One { name, .. } = &self.screen.view
            && self.last_look.elapsed() >= LOOK_TIME
        {
            let task = Task::Look(name.clone());
            self.perform(Some(task));
        }
    }

    /// Does a task, or lets it be done.
    fn perform(&mut self, task: Option<Task>) -> Performed {
        let (api, reports) = (self.api.clone(), self.reports.clone());
        match task {
            None => {}
            Some(Task::Quit) => return Performed::Quit,
            Some(Task::List) => {
                self.list_at = None;
                self.listing += 1;
                tokio::spawn(list(api, self.screen.glob.clone(), self.listing, reports));
            }
            Some(Task::Look(name)) => {
                self.last_look = Instant::now();
                tokio::spawn(async move {
                    let lock = api.lock(&name).await.ok().map(|reply| Box::new(reply.value));
                    let _ = reports.send(Report::Looked(lock)).await;
                });
            }
            Some(Task::Release { name, token }) => {
                tokio::spawn(async move {
                    let sentence = match api.release(&name, token).await {
                        Ok(_) => format!("released {}", quoted(&name)),
                        Err(ApiError::OtherToken(_)) => "nothing was done: another holds the lock by now".to_owned(),
                        Err(error) => format!("nothing was done: {error}"),
                    };
                    let _ = reports.send(Report::Done(sentence)).await;
                });
            }
            Some(Task::Kick { name, session }) => {
                tokio::spawn(async move {
                    let sentence = match api.kick(&name, session).await {
                        Ok(_) => format!("removed session {session} from the queue of {}", quoted(&name)),
                        Err(error) => format!("nothing was done: {error}"),
                    };
                    let _ = reports.send(Report::Done(sentence)).await;
                });
            }
        }
        Performed::GoOn
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Performed {
    GoOn,
    Quit,
}

/// Reads all pages.
async fn list(api: Api, matching: Option<String>, number: u64, reports: Sender<Report>) {
    let mut after: Option<String> = None;
    loop {
        let report = match api.page(matching.as_deref(), after.as_deref()).await {
            Ok(Reply { value: page, now, .. }) => {
                let goes_on = page.next.as_deref() > after.as_deref();
                after = page.next.filter(|_| goes_on);
                Report::Page(number, page.locks, now)
            }
            Err(error) => {
                let _ = reports.send(Report::NotListed(number, error)).await;
                return;
            }
        };
        if reports.send(report).await.is_err() {
            return;
        }
        if after.is_none() {
            let _ = reports.send(Report::Listed(number)).await;
            return;
        }
    }
}

/// Keys and other doings at the terminal, read by a thread that ends with the process.
fn keys() -> Receiver<io::Result<event::Event>> {
    let (sender, receiver) = channel(64);
    thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.blocking_send(event).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
