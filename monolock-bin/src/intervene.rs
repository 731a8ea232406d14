//! `monolock release` and `kick`: ends claims, and only those that were meant.
//!
//! Between a look and a deed the lock may pass on. So a release always says the token of the holder that was seen or
//! named, and a kick the session, whatever the waiter was found by.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use monolock_core::LockName;

use crate::admin::{AdminArgs, OutputArgs, block_on};
use crate::api::{Api, ApiError, Holder, Lock, Reply, Waiter, since};
use crate::failure::{Failure, NONE_SUCH, OTHER_CLAIM, USAGE};
use crate::inspect::{in_short, named, print_line};
use crate::text::{age, brief, print, quoted, safe};
use crate::value::{Checked, lock_name, switch, token};

/// Settings of `release`.
#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Only if the lock is held under this token; asks nothing
    #[arg(long, env = "MONOLOCK_RELEASE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[arg(value_parser = Checked(token))]
    token: Option<u64>,
    /// Whoever holds the lock now; asks nothing
    #[arg(long, env = "MONOLOCK_YES", hide_env_values = true, value_parser = Checked(switch))]
    yes: bool,
    /// The lock
    #[arg(value_name = "NAME", value_parser = Checked(lock_name))]
    name: LockName,
}

/// Settings of `kick`.
#[derive(Args, Debug)]
pub(crate) struct KickArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// The lock
    #[arg(value_name = "NAME", value_parser = Checked(lock_name))]
    name: LockName,
    /// The waiter: a session's number, an address with or without its port, or an identity
    #[arg(value_name = "WHO")]
    who: String,
}

pub(crate) const RELEASE_HELP: &str = "\
Without --token it looks who holds the lock and ends that claim alone. On a terminal it asks first; elsewhere it needs --token or \
--yes.

The client is told, and its connection is closed; the next waiter has the lock at once. A holder that cannot be reached believes in \
its lock until 0.8 of its lease has passed: let the guarded resource check tokens, or wait for the lease.

Exit status
\x20   0  the claim is ended
\x20   1  anything that has no status of its own
\x20   2  the command line or a variable is wrong
\x20   3  nobody holds the lock
\x20   4  nothing was done: the lock is held under another token, or the answer was no
\x20 122  the admin API refuses who asks: a bearer token is missing or wrong
\x20 123  no admin API was reached";

pub(crate) const KICK_HELP: &str = "\
A number is a session, which no other client has or will have. An address may have come back on another connection, and an identity may \
wait twice: where WHO fits several waiters, nothing is done and they are named.

The client is told, and its connection is closed. It may come back and queue anew. To end the holder's claim, use release.

Exit status
\x20   0  the claim is ended
\x20   1  anything that has no status of its own
\x20   2  the command line or a variable is wrong
\x20   3  no such waiter, or nobody claims the lock
\x20   4  nothing was done: WHO fits several waiters
\x20 122  the admin API refuses who asks: a bearer token is missing or wrong
\x20 123  no admin API was reached";

/// Ends the holder's claim.
///
/// # Errors
/// It is not ended: nobody holds the lock, or another, or a person said no.
pub(crate) fn release(args: &ReleaseArgs) -> Result<ExitCode, Failure> {
    let ReleaseArgs { admin, output, token, yes, name } = args;
    let api = admin.api()?;
    block_on(async {
        let token = match token {
            Some(token) => *token,
            None => seen_token(&api, name.as_str(), *yes).await?,
        };
        let released = match api.release(name.as_str(), token).await {
            Ok(released) => released,
            Err(ApiError::OtherToken(present)) => return Err(other_holder(&api, name.as_str(), token, present).await),
            Err(error) => return Err(api.failure(&error)),
        };
        if output.json {
            print_line(&released.body)?;
        } else {
            let Holder { client, since: granted, token } = &released.value.holder;
            let held = age(since(released.now, *granted));
            let sentence = format!(
                "released {}, which {} had held for {held} under token {token}\n",
                quoted(name.as_str()),
                named(client)
            );
            print(output.color.color, &sentence)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The token of whoever holds the lock now, if that claim is to be ended.
async fn seen_token(api: &Api, name: &str, yes: bool) -> Result<u64, Failure> {
    let may_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !yes && !may_ask {
        return Err(Failure::new(
            USAGE,
            "release needs --token or --yes where nobody can be asked: standard input and error are no terminal",
        ));
    }
    let Reply { value: lock, now, .. } = api.lock(name).await.map_err(|error| api.failure(&error))?;
    let Some(holder) = &lock.holder else {
        return Err(Failure::new(NONE_SUCH, format_args!("nobody holds the lock {}", quoted(name))));
    };
    if yes {
        return Ok(holder.token);
    }
    let warning = format!(
        "A holder that is cut off may believe in it for up to {} more.\n",
        brief(Duration::from_millis(holder.client.lease_remaining_ms))
    );
    let question = format!("{}{warning}Release it? [y/N] ", in_short(&lock, holder, now));
    if agreed(&question) { Ok(holder.token) } else { Err(Failure::new(OTHER_CLAIM, "nothing was done")) }
}

/// Asks a person; anything but a yes is a no.
fn agreed(question: &str) -> bool {
    let mut stderr = io::stderr().lock();
    let asked = write!(stderr, "{question}").and_then(|()| stderr.flush());
    let mut answer = String::new();
    asked.is_ok()
        && io::stdin().lock().read_line(&mut answer).is_ok()
        && ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

/// The sentence for a lock that has passed on: who holds it now.
async fn other_holder(api: &Api, name: &str, wanted: u64, present: u64) -> Failure {
    let holder = match api.lock(name).await {
        Ok(Reply { value: Lock { holder: Some(holder), .. }, .. }) if holder.token == present => {
            format!(", by {}", named(&holder.client))
        }
        // It has passed on again, or cannot be seen.
        Ok(_) | Err(_) => String::new(),
    };
    Failure::new(
        OTHER_CLAIM,
        format_args!(
            "nothing was done: the lock {} is not held under token {wanted}, but under {present}{holder}",
            quoted(name)
        ),
    )
}

/// Ends a waiter's claim.
///
/// # Errors
/// It is not ended: there is no such waiter, or more than one.
pub(crate) fn kick(args: &KickArgs) -> Result<ExitCode, Failure> {
    let KickArgs { admin, output, name, who } = args;
    let api = admin.api()?;
    block_on(async {
        let Reply { value: lock, now, .. } = api.lock(name.as_str()).await.map_err(|error| api.failure(&error))?;
        let session = meant(&lock, who)?.client.session;
        let kicked = api.kick(name.as_str(), session).await.map_err(|error| api.failure(&error))?;
        if output.json {
            print_line(&kicked.body)?;
        } else {
            let Waiter { client, queued_at } = &kicked.value.waiter;
            let waited = age(since(now, *queued_at));
            let sentence =
                format!("removed {} from the queue of {} after {waited}\n", named(client), quoted(name.as_str()));
            print(output.color.color, &sentence)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Which waiter a word means.
///
/// # Errors
/// None, or several.
fn meant<'a>(lock: &'a Lock, who: &str) -> Result<&'a Waiter, Failure> {
    let name = quoted(&lock.name);
    let is_meant = |identity: &str, remote_addr: &str, session: u64| {
        if let Ok(number) = who.parse::<u64>() {
            return session == number;
        }
        let address = remote_addr.parse::<SocketAddr>().ok();
        if let Ok(wanted) = who.parse::<SocketAddr>() {
            return address == Some(wanted);
        }
        let is_host = who.parse::<IpAddr>().is_ok_and(|wanted| address.is_some_and(|address| address.ip() == wanted));
        is_host || (!who.is_empty() && identity == who)
    };
    let fits = |client: &crate::api::Client| is_meant(&client.identity, &client.remote_addr, client.session);
    let waiters: Vec<&Waiter> = lock.waiters.iter().filter(|waiter| fits(&waiter.client)).collect();
    match (waiters.as_slice(), &lock.holder) {
        ([waiter], _) => Ok(waiter),
        ([], Some(holder)) if fits(&holder.client) => Err(Failure::new(
            NONE_SUCH,
            format_args!(
                "{} holds the lock {name} and does not wait: monolock release ends its claim",
                named(&holder.client)
            ),
        )),
        ([], _) => Err(Failure::new(NONE_SUCH, format_args!("no {} waits for the lock {name}", safe(who)))),
        (several, _) => {
            const SHOWN: usize = 10;
            let mut names: Vec<String> = several.iter().take(SHOWN).map(|waiter| named(&waiter.client)).collect();
            if several.len() > SHOWN {
                names.push(format!("{} more", several.len() - SHOWN));
            }
            let names = names.join(", ");
            Err(Failure::new(
                OTHER_CLAIM,
                format_args!(
                    "nothing was done: {} fits {} waiters, so name one by its session: {names}",
                    safe(who),
                    several.len()
                ),
            ))
        }
    }
}
