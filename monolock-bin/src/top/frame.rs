//! The picture of a [`Screen`]: lines of cells, cut to the terminal's size, whatever that is.

use std::time::SystemTime;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::api::since;
use crate::text::{age, brief, counted, safe, who};
use crate::top::model::{Claim, Lock};
use crate::top::screen::{Contact, Prompt, Screen, Sort, View};

/// Whether there may be colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    Colours,
    Plain,
}

impl Palette {
    fn of(self, color: Color) -> Style {
        match self {
            Self::Colours => Style::new().fg(color),
            Self::Plain => Style::new(),
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Above the rows: the server, the order, the head. Below: the keys.
const FRAME_ROWS: u16 = 4;

/// Draws the screen. It learns how many rows it has.
pub(crate) fn draw(screen: &mut Screen, palette: Palette, frame: &mut Frame<'_>) {
    let area = frame.area();
    let Rect { width, height, .. } = area;
    let width = usize::from(width);
    screen.rows = usize::from(height.saturating_sub(FRAME_ROWS));
    let mut lines = vec![title(screen, palette, width)];
    match screen.view.clone() {
        View::All => all(screen, palette, width, &mut lines),
        View::One { name, waiter } => one(screen, palette, width, (&name, waiter), &mut lines),
        View::Help => lines.extend(HELP.lines().map(Line::raw)),
    }
    let body = usize::from(height.saturating_sub(1));
    lines.resize(body.max(1), Line::default());
    lines.push(last_line(screen, palette));
    frame.render_widget(Paragraph::new(lines), area);
    match &screen.prompt {
        Some(Prompt::Release { name, holder, token }) => {
            let lock = screen.locks.get(name);
            ask(frame, "Release", &release_question(name, holder, *token, lock, screen.now));
        }
        Some(Prompt::Kick { name, waiter }) => ask(frame, "Kick", &kick_question(name, waiter, screen.now)),
        Some(Prompt::Filter(_)) | None => {}
    }
}

const HELP: &str = "
  Up Down PgUp PgDn Home End   move
  Enter                        look at the lock that is selected, and its queue
  Esc                          back; in the list, drop the filter
  s                            sort by waiters, longest wait, longest hold, name
  /                            filter by name: * is any run of characters, ? one;
                               without them, names that have the text in them
  r                            release the lock: ends its holder's claim, asks first
  x                            in a lock: remove the selected waiter, asks first
  q                            quit

  A release hits the holder that was shown, or nothing: if the lock has passed on
  meanwhile, nothing is done.";

fn title(screen: &Screen, palette: Palette, width: usize) -> Line<'static> {
    let waiters: usize = screen.locks.iter().map(|(_, lock)| lock.waiters.len()).sum();
    let (state, style) = match (&screen.contact, screen.locks.is_complete()) {
        (Contact::Lost(why), _) => (format!("LOST: {}", safe(why)), palette.of(Color::Red).patch(BOLD)),
        (Contact::Live, false) => ("reading".to_owned(), palette.of(Color::Yellow)),
        (Contact::Live, true) => ("live".to_owned(), palette.of(Color::Green)),
    };
    let counts = format!("  {}, {}  ", counted(screen.locks.len(), "lock"), counted(waiters, "waiter"));
    let server = format!("monolock {}", screen.server);
    let server = fit(&server, width.saturating_sub(counts.width() + state.width()).max(8));
    Line::from(vec![Span::styled(server.trim_end().to_owned(), BOLD), Span::raw(counts), Span::styled(state, style)])
}

fn all(screen: &mut Screen, palette: Palette, width: usize, lines: &mut Vec<Line<'static>>) {
    let sort = match screen.sort {
        Sort::Waiters => "waiters",
        Sort::Wait => "longest wait",
        Sort::Hold => "longest hold",
        Sort::Name => "name",
    };
    let mut order = format!("sorted by {sort}");
    for (what, pattern) in [("only", screen.glob.as_deref()), ("filter", Some(&*screen.filter))] {
        if let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) {
            order.extend(["  ", what, " ", &safe(pattern)]);
        }
    }
    lines.push(Line::raw(fit(&order, width)));
    let columns = Columns::of(width);
    lines.push(Line::styled(columns.row(["NAME", "HOLDER", "HELD FOR", "WAITERS", "LONGEST WAIT"]), BOLD));
    let visible = screen.visible();
    let at = screen.place_of_chosen(&visible);
    let first = first_row(at, visible.len(), screen.rows);
    for (place, (name, lock)) in visible.iter().enumerate().skip(first).take(screen.rows) {
        let holder = lock.holder.as_ref().map_or_else(|| "nobody yet".to_owned(), |(holder, _)| called(holder));
        let lasted =
            |time: Option<SystemTime>| time.map_or_else(|| "-".to_owned(), |time| age(since(screen.now, time)));
        let cells = [
            &safe(name),
            &holder,
            &lasted(lock.held_since()),
            &lock.waiters.len().to_string(),
            &lasted(lock.waiting_since()),
        ];
        let style = if place == at {
            CHOSEN
        } else if lock.waiters.is_empty() {
            Style::new()
        } else {
            palette.of(Color::Yellow)
        };
        lines.push(Line::styled(columns.row(cells.map(String::as_str)), style));
    }
    if visible.is_empty() && screen.locks.is_complete() {
        let nobody = if screen.locks.len() == 0 { "nobody claims a lock" } else { "no name matches the filter" };
        lines.push(Line::raw(nobody));
    }
    let chosen = visible.get(at).map(|(name, _)| (*name).clone());
    screen.selected = screen.selected.take().and(chosen);
}

/// The widths of the list's columns.
struct Columns {
    name: usize,
    holder: usize,
}

impl Columns {
    const HELD: usize = 9;
    const WAITERS: usize = 7;
    const WAIT: usize = 12;
    const GAP: usize = 2;

    fn of(width: usize) -> Self {
        let rest = width.saturating_sub(Self::HELD + Self::WAITERS + Self::WAIT + 4 * Self::GAP);
        let holder = (rest * 2 / 5).max(4);
        Self { name: rest.saturating_sub(holder).max(4), holder }
    }

    fn row(&self, [name, holder, held, waiters, wait]: [&str; 5]) -> String {
        format!(
            "{}  {}  {}  {waiters:>7}  {wait:>12}",
            fit(name, self.name),
            fit(holder, self.holder),
            fit(held, Self::HELD)
        )
    }
}

fn one(
    screen: &Screen,
    palette: Palette,
    width: usize,
    (name, waiter): (&str, Option<u64>),
    lines: &mut Vec<Line<'static>>,
) {
    lines.push(Line::styled(fit(&safe(name), width), BOLD));
    let Some(lock) = screen.locks.get(name) else {
        lines.push(Line::raw("nobody claims this lock any more"));
        return;
    };
    let rows = screen.rows.saturating_sub(3);
    match &lock.holder {
        None => lines.push(Line::raw("held by  nobody yet")),
        Some((holder, token)) => {
            let held = format!("held by  {}, for {}", named(holder), age(since(screen.now, holder.since)));
            lines.push(Line::styled(fit(&held, width), palette.of(Color::Green)));
            let lease = lease(screen, name, holder.session);
            lines.push(Line::raw(fit(&format!("token    {token}{lease}"), width)));
        }
    }
    lines.push(Line::default());
    if lock.waiters.is_empty() {
        lines.push(Line::raw("nobody waits"));
        return;
    }
    let head = format!("{:>5}  {:9}  {:>9}  WAITER", "PLACE", "WAITS FOR", "SESSION");
    lines.push(Line::styled(fit(&head, width), BOLD));
    let at = waiter.and_then(|waiter| lock.waiters.iter().position(|claim| claim.session == waiter)).unwrap_or(0);
    let first = first_row(at, lock.waiters.len(), rows);
    for (place, claim) in lock.waiters.iter().enumerate().skip(first).take(rows) {
        let waits = age(since(screen.now, claim.since));
        let text = format!("{:>5}  {waits:9}  {:>9}  {}", place + 1, claim.session, both(claim));
        lines.push(Line::styled(fit(&text, width), if place == at { CHOSEN } else { Style::new() }));
    }
}

/// What was last seen of a session's lease.
fn lease(screen: &Screen, name: &str, session: u64) -> String {
    let lock = screen.leases.as_ref().filter(|lock| lock.name == name);
    let client = lock.and_then(|lock| lock.holder.as_ref()).map(|holder| &holder.client);
    let millis = |millis| brief(std::time::Duration::from_millis(millis));
    client.filter(|client| client.session == session).map_or_else(String::new, |client| {
        format!(", lease {}, {} left when last seen", millis(client.lease_ms), millis(client.lease_remaining_ms))
    })
}

/// The first row that is shown, so that the one at `at` is in sight.
fn first_row(at: usize, number: usize, rows: usize) -> usize {
    let middle = at.saturating_sub(rows / 2);
    middle.min(number.saturating_sub(rows))
}

fn last_line(screen: &Screen, palette: Palette) -> Line<'static> {
    match (&screen.prompt, &screen.message, &screen.view) {
        (Some(Prompt::Filter(text)), ..) => {
            let shown = format!("/{}", safe(text));
            Line::from(vec![
                Span::styled(shown, BOLD),
                Span::styled(" ", CHOSEN),
                Span::raw("  Enter: keep   Esc: drop"),
            ])
        }
        (_, Some(message), _) => Line::styled(message.clone(), palette.of(Color::Cyan).patch(BOLD)),
        (_, _, View::All) => Line::raw("Enter look  s sort  / filter  r release  ? help  q quit"),
        (_, _, View::One { .. }) => Line::raw("Esc back  r release  x kick the selected waiter  ? help  q quit"),
        (_, _, View::Help) => Line::raw("any key: back"),
    }
}

fn release_question(name: &str, holder: &Claim, token: u64, lock: Option<&Lock>, now: SystemTime) -> String {
    let next = lock.and_then(|lock| lock.waiters.front()).map(named);
    let next = next.map_or_else(|| "Nobody waits for it.".to_owned(), |next| format!("Next is {next}."));
    format!(
        "Release {}?\n\nIt is held by {}\nfor {}, under token {token}.\n{next}\n\ny: release it   n: do nothing",
        safe(name),
        named(holder),
        age(since(now, holder.since))
    )
}

fn kick_question(name: &str, waiter: &Claim, now: SystemTime) -> String {
    format!(
        "Remove {}\nfrom the queue of {}?\n\nIt has waited for {}.\n\ny: remove it   n: do nothing",
        named(waiter),
        safe(name),
        age(since(now, waiter.since))
    )
}

/// A box in the middle.
fn ask(frame: &mut Frame<'_>, title: &str, question: &str) {
    let area = frame.area();
    let width = area.width.saturating_sub(4).min(76);
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let wrapped: usize = question.lines().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = u16::try_from(wrapped + 3).unwrap_or(u16::MAX).min(area.height);
    let area = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let block = Block::bordered().title(format!(" {title} ")).padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(question.to_owned()).wrap(Wrap { trim: false }).block(block), area);
}

fn called(claim: &Claim) -> String {
    who(&claim.identity, &claim.remote_addr)
}

fn both(claim: &Claim) -> String {
    match claim.identity.as_str() {
        "" => safe(&claim.remote_addr),
        identity => format!("{} ({})", safe(identity), safe(&claim.remote_addr)),
    }
}

fn named(claim: &Claim) -> String {
    format!("{}, session {}", both(claim), claim.session)
}

/// A text in exactly so many columns: padded, or cut with an ellipsis.
fn fit(text: &str, width: usize) -> String {
    let mut fitted = text.to_owned();
    if text.width() > width {
        let room = width.saturating_sub(1);
        let mut used = 0;
        fitted = text
            .chars()
            .take_while(|c| {
                used += c.width().unwrap_or(0);
                used <= room
            })
            .collect();
        fitted.push('…');
    }
    let missing = width.saturating_sub(fitted.width());
    fitted + &" ".repeat(missing)
}
