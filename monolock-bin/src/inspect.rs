//! `monolock info`, `locks` and `lock`: what the admin API shows, for people and for programs.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anstyle::Style;
use clap::Args;
use monolock_core::LockName;

use crate::admin::{AdminArgs, OutputArgs, block_on};
use crate::api::{Api, ApiError, Client, Holder, Info, Lock, RawPage, Reply, since};
use crate::failure::Failure;
use crate::text::{
    BAD, BUSY, Cell, FAINT, GOOD, HEAD, NAME, age, brief, counted, pairs, print, print_raw, quoted, safe, safe_json,
    styled, table, time, who,
};
use crate::value::{Checked, glob, lock_name};

/// Settings of `info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Settings of `locks`.
#[derive(Args, Debug)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Only locks whose names match: * is any run of characters, ? exactly one
    #[arg(value_name = "GLOB", value_parser = Checked(glob))]
    matching: Option<String>,
}

/// Settings of `lock`.
#[derive(Args, Debug)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// The lock
    #[arg(value_name = "NAME", value_parser = Checked(lock_name))]
    name: LockName,
}

/// Shows the server.
///
/// # Errors
/// It does not answer.
pub(crate) fn info(args: &InfoArgs) -> Result<ExitCode, Failure> {
    let InfoArgs { admin, output } = args;
    let api = admin.api()?;
    block_on(async {
        let Reply { value, body, .. } = api.info().await.map_err(|error| api.failure(&error))?;
        if output.json {
            print_line(&body)?;
        } else {
            print(output.color.color, &server(&api, &value))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Lists the locks that somebody claims.
///
/// # Errors
/// The server does not answer.
pub(crate) fn locks(args: &LocksArgs) -> Result<ExitCode, Failure> {
    let LocksArgs { admin, output, matching } = args;
    let api = admin.api()?;
    block_on(async {
        if output.json {
            list_json(&api, matching.as_deref()).await
        } else {
            let rows = rows(&api, matching.as_deref()).await.map_err(|error| api.failure(&error))?;
            print(output.color.color, &listing(&rows, matching.as_deref()))
        }?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Shows one lock with its holder and its queue.
///
/// # Errors
/// The server does not answer, or nobody claims the lock.
pub(crate) fn lock(args: &LockArgs) -> Result<ExitCode, Failure> {
    let LockArgs { admin, output, name } = args;
    let api = admin.api()?;
    block_on(async {
        let Reply { value, body, now } = api.lock(name.as_str()).await.map_err(|error| api.failure(&error))?;
        if output.json {
            print_line(&body)?;
        } else {
            print(output.color.color, &whole_lock(&value, now))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints one document of the API, on a line of its own.
pub(crate) fn print_line(body: &[u8]) -> Result<(), Failure> {
    let document = String::from_utf8_lossy(body.trim_ascii_end());
    print_raw(format!("{}\n", safe_json(&document)).as_bytes())
}

fn server(api: &Api, info: &Info) -> String {
    let Info { version, uptime_ms, start_grace_remaining_ms, config, locks, sessions } = info;
    let is_set = |setting: &Option<String>| setting.as_deref().map_or_else(|| "off".to_owned(), safe);
    let up = age(Duration::from_millis(*uptime_ms));
    let title = format!("monolock {} at {}", safe(version), api.endpoint());
    let rows = [
        ("up for", up),
        ("locks", locks.to_string()),
        ("sessions", sessions.to_string()),
        ("listens on", safe(&config.listen)),
        ("health, metrics", is_set(&config.ops_listen)),
        (
            "TLS",
            match (config.tls, config.mtls) {
                (false, _) => "off".to_owned(),
                (true, false) => "on, without client certificates".to_owned(),
                (true, true) => "on, with client certificates".to_owned(),
            },
        ),
        ("access list", is_set(&config.acl_file)),
        ("audit log", is_set(&config.audit_log)),
        ("io-timeout", brief(Duration::from_millis(config.io_timeout_ms))),
        (
            "start grace",
            match start_grace_remaining_ms {
                0 => "over".to_owned(),
                left => format!("nobody is granted anything for {} yet", brief(Duration::from_millis(*left))),
            },
        ),
    ];
    format!("{}\n{}", styled(HEAD, &title), pairs(rows))
}

/// One lock in a listing. Of a queue it keeps no more than is shown.
struct Row {
    name: String,
    holder: Option<Holder>,
    waiters: usize,
    longest_wait: Option<Duration>,
    now: SystemTime,
}

/// All locks whose names match, page by page.
async fn rows(api: &Api, matching: Option<&str>) -> Result<Vec<Row>, ApiError> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let Reply { value: page, now, .. } = api.page(matching, after.as_deref()).await?;
        rows.extend(page.locks.into_iter().map(|Lock { name, holder, waiters }| Row {
            name,
            holder,
            waiters: waiters.len(),
            longest_wait: waiters.first().map(|first| since(now, first.queued_at)),
            now,
        }));
        match next(page.next, after.as_deref())? {
            None => return Ok(rows),
            next => after = next,
        }
    }
}

/// Prints all locks whose names match as one document, page by page.
async fn list_json(api: &Api, matching: Option<&str>) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    let mut before = "{\"locks\":[\n";
    loop {
        let Reply { body, .. } = api.page(matching, after.as_deref()).await.map_err(|error| api.failure(&error))?;
        let page: Result<RawPage<'_>, _> = serde_json::from_slice(&body);
        let page = page.map_err(|error| api.failure(&ApiError::Foreign(error.to_string())))?;
        let mut text = String::with_capacity(body.len());
        for lock in page.locks {
            text.push_str(before);
            text.push_str(&safe_json(lock.get()));
            before = ",\n";
        }
        let next = next(page.next, after.as_deref()).map_err(|error| api.failure(&error))?;
        if next.is_none() {
            // A document without a lock has not even begun.
            text.push_str(if before == ",\n" { "\n]}\n" } else { "{\"locks\":[]}\n" });
            return print_raw(text.as_bytes());
        }
        print_raw(text.as_bytes())?;
        after = next;
    }
}

/// Where the next page begins. One that does not go on would have no end.
fn next(next: Option<String>, after: Option<&str>) -> Result<Option<String>, ApiError> {
    match (next, after) {
        (Some(next), Some(after)) if next.as_str() <= after => {
            Err(ApiError::Foreign("its listing does not go on".to_owned()))
        }
        (next, _) => Ok(next),
    }
}

fn listing(rows: &[Row], matching: Option<&str>) -> String {
    if rows.is_empty() {
        return match matching {
            None => "nobody claims a lock\n".to_owned(),
            Some(matching) => format!("nobody claims a lock whose name matches {}\n", quoted(matching)),
        };
    }
    let cells = rows.iter().map(|Row { name, holder, waiters, longest_wait, now }| {
        let of_holder = |text: &dyn Fn(&Holder) -> String| holder.as_ref().map_or_else(|| "-".to_owned(), text);
        [
            Cell::in_style(NAME, safe(name)),
            match holder {
                Some(Holder { client, .. }) => Cell::new(who(&client.identity, &client.remote_addr)),
                None => Cell::in_style(FAINT, "nobody yet"),
            },
            Cell::new(of_holder(&|holder| age(since(*now, holder.since)))),
            Cell::in_style(if *waiters == 0 { FAINT } else { BUSY }, waiters.to_string()),
            Cell::new(longest_wait.map_or_else(|| "-".to_owned(), age)),
            Cell::in_style(FAINT, of_holder(&|holder| holder.token.to_string())),
        ]
    });
    table(["NAME", "HOLDER", "HELD FOR", "WAITERS", "LONGEST WAIT", "TOKEN"], cells)
}

/// A lock, its holder and its queue.
pub(crate) fn whole_lock(lock: &Lock, now: SystemTime) -> String {
    let Lock { name, holder, waiters } = lock;
    let title = styled(HEAD, &safe(name));
    let holder = match holder {
        None => pairs([("held by", "nobody yet: the server grants nothing so soon after its start".to_owned())]),
        Some(holder) => pairs(of_holder(holder, now)),
    };
    let queue = match waiters.len() {
        0 => format!("\n{}\n", styled(GOOD, "nobody waits")),
        number => {
            let waits = if number == 1 { "waits" } else { "wait" };
            format!("\n{}\n{}", styled(BUSY, &format!("{number} {waits}:")), queue(lock, now))
        }
    };
    format!("{title}\n{holder}{queue}")
}

fn of_holder(holder: &Holder, now: SystemTime) -> Vec<(&'static str, String)> {
    let Holder { client, since: granted, token } = holder;
    let mut rows = vec![("held by", who(&client.identity, &client.remote_addr))];
    if !client.identity.is_empty() {
        rows.push(("from", safe(&client.remote_addr)));
    }
    rows.extend([
        ("since", format!("{}, for {}", time(*granted), age(since(now, *granted)))),
        ("token", token.to_string()),
        ("session", client.session.to_string()),
        ("lease", format!("{}, {}", brief(Duration::from_millis(client.lease_ms)), left(client))),
    ]);
    rows
}

fn queue(lock: &Lock, now: SystemTime) -> String {
    let rows = lock.waiters.iter().zip(1..).map(|(waiter, place)| {
        let client = &waiter.client;
        let lease = format!("{}, {}", brief(Duration::from_millis(client.lease_ms)), left(client));
        let place = Cell::in_style(FAINT, place.to_string());
        let rest = [
            Cell::new(safe(&client.remote_addr)),
            Cell::new(client.session.to_string()),
            Cell::new(age(since(now, waiter.queued_at))),
            Cell::in_style(urgency(client), lease),
        ];
        (place, Cell::new(safe(&client.identity)), rest)
    });
    // Without mutual TLS nobody has an identity.
    if lock.waiters.iter().any(|waiter| !waiter.client.identity.is_empty()) {
        let rows = rows.map(|(place, identity, [address, session, waits, lease])| {
            [place, identity, address, session, waits, lease]
        });
        table(["#", "IDENTITY", "ADDRESS", "SESSION", "WAITS FOR", "LEASE"], rows)
    } else {
        let rows = rows.map(|(place, _, [address, session, waits, lease])| [place, address, session, waits, lease]);
        table(["#", "ADDRESS", "SESSION", "WAITS FOR", "LEASE"], rows)
    }
}

/// How much of a lease is left.
fn left(client: &Client) -> String {
    format!("{} left", brief(Duration::from_millis(client.lease_remaining_ms)))
}

/// A client sends a heartbeat each quarter of its lease; one with less than half of it has missed some.
fn urgency(client: &Client) -> Style {
    if client.lease_remaining_ms < client.lease_ms / 2 { BAD } else { Style::new() }
}

/// What is said of a holder in a sentence: who, from where, in which session.
pub(crate) fn named(client: &Client) -> String {
    let Client { identity, remote_addr, session, .. } = client;
    match identity.as_str() {
        "" => format!("{} (session {session})", safe(remote_addr)),
        identity => format!("{} ({}, session {session})", safe(identity), safe(remote_addr)),
    }
}

/// What a person is told of a lock before its holder's claim is ended.
pub(crate) fn in_short(lock: &Lock, holder: &Holder, now: SystemTime) -> String {
    format!(
        "{} is held by {}\nsince {}, for {}\nunder token {}; {}\n",
        quoted(&lock.name),
        named(&holder.client),
        time(holder.since),
        age(since(now, holder.since)),
        holder.token,
        match lock.waiters.first() {
            None => "nobody waits".to_owned(),
            Some(next) =>
                format!("{} in the queue, and next is {}", counted(lock.waiters.len(), "waiter"), named(&next.client)),
        },
    )
}
