//! The command line: what may be said, and the one sentence for what may not.
//!
//! Every flag has a variable; the flag wins over the variable and the variable over the default. A variable that is set to nothing is not
//! set. A check belongs to the value it checks ([`value`](crate::value)), so nothing after the parser sees a wrong one.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use monolock_core::{Lease, LockName};
use tracing::level_filters::LevelFilter;

use crate::argv;
use crate::failure::{Failure, USAGE};
use crate::value::{
    Checked, ListenAddress, LogFormat, lease, listen_address, log_format, log_level, positive_duration,
};

/// A small server for named locks, with leases, first-in-first-out queues and fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "monolock", version, propagate_version = true, args_override_self = true, max_term_width = 100)]
#[command(override_usage = "monolock [OPTIONS]\n       monolock <COMMAND> [OPTIONS]")]
#[command(
    after_help = "Without a command, monolock serves, with the options above. A flag wins over its variable, the variable over the default."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve locks (what monolock does without a command)
    ///
    /// SIGTERM and SIGINT stop the server in order: no new connections, code 01 to every client, and an end within the io-timeout. A
    /// second one ends it at once.
    Serve(ServeArgs),

    /// Watch locks change hands: a stop, a crash and a hang, in a few seconds
    ///
    /// Starts a server on a free port of this machine and three workers, and tells what happens to them.
    Demo(DemoArgs),

    /// One worker of the demo.
    #[command(name = "__demo-worker", hide = true)]
    DemoWorker(DemoWorkerArgs),
}

// Settings of the server. (A doc comment here would replace the program's own description in its help.)
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen: host:port, [v6]:port, or :port for every address; port 0 takes a free one
    #[arg(long, env = "MONOLOCK_LISTEN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:7070", value_parser = Checked(listen_address))]
    pub(crate) listen: ListenAddress,

    /// How long a client may take for its first frame and for a write it does not read, and a stop at most
    #[arg(long, env = "MONOLOCK_IO_TIMEOUT", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = Checked(positive_duration))]
    pub(crate) io_timeout: Duration,

    #[command(flatten)]
    pub(crate) log: LogArgs,
}

// Settings of the log, which goes to stderr.
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// How much is logged: error, warn, info, debug or trace
    #[arg(long, env = "MONOLOCK_LOG_LEVEL", hide_env_values = true, value_name = "LEVEL")]
    #[arg(default_value = "info", value_parser = Checked(log_level))]
    pub(crate) log_level: LevelFilter,

    /// How it is logged: text, or json with one object a line
    #[arg(long, env = "MONOLOCK_LOG_FORMAT", hide_env_values = true, value_name = "FORMAT")]
    #[arg(default_value = "text", value_parser = Checked(log_format))]
    pub(crate) log_format: LogFormat,
}

/// Settings of the demo.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long a silent worker keeps its lock
    #[arg(long, env = "MONOLOCK_LEASE", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "2s", value_parser = Checked(lease))]
    pub(crate) lease: Lease,
}

/// What a worker of the demo is told.
#[derive(Args, Debug)]
pub(crate) struct DemoWorkerArgs {
    #[arg(long)]
    pub(crate) server: SocketAddr,
    #[arg(long, value_parser = Checked(lease))]
    pub(crate) lease: Lease,
    pub(crate) name: LockName,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Help or the version, to be printed.
    Text(clap::Error),
    /// A command to be run.
    Run(Command),
}

/// Reads the command line and the variables.
///
/// # Errors
/// A sentence about the first thing that is wrong.
pub(crate) fn parse(argv: impl IntoIterator<Item = OsString>) -> Result<Request, Failure> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let mut parser = forget_empty_variables(Cli::command());
    if argv.get(1).is_some_and(|first| argv::asks_for_text(first)) {
        // The program's own help shows the flags of the command that needs no name.
        parser = ServeArgs::augment_args(parser);
    }
    parser.build();
    let argv = argv::normalise(&parser, argv);
    let parsed = parser.try_get_matches_from(argv).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Ok(Request::Run(cli.command)),
        Err(error) if error.use_stderr() => Err(Failure::new(USAGE, sentence(&error))),
        Err(error) => Ok(Request::Text(error)),
    }
}

/// An empty variable counts as unset.
fn forget_empty_variables(command: clap::Command) -> clap::Command {
    let forget = |arg: clap::Arg| {
        let empty = arg.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
        if empty { arg.env(Resettable::Reset) } else { arg }
    };
    command.mut_args(forget).mut_subcommands(forget_empty_variables)
}

/// The parser's complaint in one sentence.
fn sentence(error: &clap::Error) -> String {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(" and ")),
        _ => None,
    };
    let argument = said(ContextKind::InvalidArg).map(|argument| without_value_name(&argument)).unwrap_or_default();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "clap's kinds are open-ended; its own words are good enough for the rest"
    )]
    match error.kind() {
        ErrorKind::UnknownArgument => match said(ContextKind::SuggestedArg) {
            Some(meant) => format!("there is no flag {argument}: did you mean {meant}?"),
            None => format!("there is no place for {argument:?} here: see monolock --help"),
        },
        ErrorKind::InvalidSubcommand => {
            let command = said(ContextKind::InvalidSubcommand).unwrap_or_default();
            match said(ContextKind::SuggestedSubcommand) {
                Some(meant) => format!("there is no command {command:?}: did you mean {meant}?"),
                None => format!("there is no command {command:?}: see monolock --help"),
            }
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing: see monolock --help"),
        ErrorKind::ArgumentConflict => match said(ContextKind::PriorArg) {
            Some(prior) => {
                format!("{argument} and {} exclude each other: give one of them", without_value_name(&prior))
            }
            None => format!("{argument} does not go with the rest: see monolock --help"),
        },
        ErrorKind::InvalidValue => format!("{argument} needs a value: see monolock --help"),
        _ => first_paragraph(&error.render()),
    }
}

/// `--listen` of `--listen <ADDRESS>`.
fn without_value_name(argument: &str) -> String {
    match argument.split_once(' ') {
        Some((flag, _)) if flag.starts_with("--") => flag.to_owned(),
        _ => argument.to_owned(),
    }
}

fn first_paragraph(text: &StyledStr) -> String {
    let text = text.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}
