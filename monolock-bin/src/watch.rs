//! `monolock watch`: a line for whatever happens to the locks, as long as one looks on.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anstyle::Style;
use clap::Args;

use crate::admin::{AdminArgs, OutputArgs, block_on};
use crate::failure::Failure;
use crate::follow::{Event, Notice, follow};
use crate::text::{BAD, BUSY, FAINT, GOOD, NAME, brief, print, print_raw, safe, safe_json, styled, who};
use crate::value::{Checked, glob};

/// Settings of `watch`.
#[derive(Args, Debug)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Only locks whose names match: * is any run of characters, ? exactly one
    #[arg(value_name = "GLOB", value_parser = Checked(glob))]
    matching: Option<String>,
}

/// Prints events until it is ended.
///
/// # Errors
/// The stream cannot be had, or not any more.
pub(crate) fn watch(args: &WatchArgs) -> Result<ExitCode, Failure> {
    let WatchArgs { admin, output, matching } = args;
    let api = admin.api()?;
    block_on(async {
        let following = follow(api.clone(), matching.clone()).await;
        let mut notices = following.map_err(|error| api.failure(&error))?;
        let mut is_lost = false;
        while let Some(notice) = notices.recv().await {
            let (document, line) = match notice {
                Notice::Happened { event, document } => (document, happened(&event)),
                Notice::Missed { count, document } => (document, missed(count)),
                Notice::Complete => {
                    if std::mem::take(&mut is_lost) {
                        tell("connected again, and nothing was missed");
                    }
                    continue;
                }
                Notice::Lost(why) => {
                    is_lost = true;
                    tell(&format!(
                        "the events of {} are interrupted: {}; trying to come back",
                        api.endpoint(),
                        safe(&why)
                    ));
                    continue;
                }
                Notice::Failed(error) => return Err(api.failure(&error)),
            };
            if output.json {
                print_raw(format!("{}\n", safe_json(&document)).as_bytes())?;
            } else {
                print(output.color.color, &format!("{line}\n"))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Says what is no event. A closed standard error is no reason to fail.
fn tell(sentence: &str) {
    let _ = writeln!(io::stderr(), "monolock: {sentence}");
}

fn missed(count: Option<u64>) -> String {
    let what = match count {
        Some(1) => "1 event was missed here".to_owned(),
        Some(count) => format!("{count} events were missed here"),
        None => "events were missed here: the server was restarted, or nobody knows how many".to_owned(),
    };
    styled(BAD, &format!("-- {what} --"))
}

fn happened(event: &Event) -> String {
    let Event { time, kind, lock, identity, remote_addr, session, token, wait_ms, held_ms, ahead, reason } = event;
    let style = match kind.as_str() {
        "granted" => GOOD,
        "queued" => BUSY,
        "denied" | "waiter_gone" => BAD,
        _ => Style::new(),
    };
    let time = time.map_or_else(|| "-".to_owned(), |time| humantime::format_rfc3339_millis(time).to_string());
    let from = match (identity.as_str(), session) {
        ("", Some(session)) => format!(" (session {session})"),
        ("", None) => String::new(),
        (_, Some(session)) => format!(" ({}, session {session})", safe(remote_addr)),
        (_, None) => format!(" ({})", safe(remote_addr)),
    };
    let lasted = |millis: u64| brief(Duration::from_millis(millis));
    let details = [
        token.map(|token| format!("token {token}")),
        wait_ms.map(|wait| format!("waited {}", lasted(wait))),
        held_ms.map(|held| format!("held {}", lasted(held))),
        ahead.map(|ahead| format!("{ahead} ahead")),
        reason.as_deref().map(safe),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    format!(
        "{}  {}  {}  {}{from}  {}",
        styled(FAINT, &time),
        styled(style, &format!("{:11}", safe(kind))),
        styled(NAME, &safe(lock)),
        who(identity, remote_addr),
        details.join(", ")
    )
    .trim_end()
    .to_owned()
}
