//! The command line: what may be said, and the one sentence for what may not.
//!
//! Every flag has a variable; the flag wins over the variable and the variable over the default. A variable that is set
//! to nothing is not set. A check belongs to the value it checks ([`value`](crate::value)), so nothing after the parser
//! sees a wrong one.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::{Resettable, StyledStr};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use monolock_core::{Lease, LockName};
use tracing::level_filters::LevelFilter;

use crate::acl::AclCommand;
use crate::argv;
use crate::bench::{BENCH_HELP, BenchArgs};
use crate::failure::{Failure, USAGE};
use crate::generate::{CompletionsArgs, ManArgs};
use crate::healthcheck::{HEALTHCHECK_HELP, HealthcheckArgs};
use crate::inspect::{InfoArgs, LockArgs, LocksArgs};
use crate::intervene::{KICK_HELP, KickArgs, RELEASE_HELP, ReleaseArgs};
use crate::operations::{LimitArgs, OversightArgs, SecurityArgs};
use crate::secured::TlsArgs;
use crate::top::{TOP_HELP, TopArgs};
use crate::value::{
    Checked, ListenAddress, LogFormat, lease, listen_address, lock_name, log_format, log_level, positive_duration,
    server_address, switch,
};
use crate::watch::WatchArgs;

/// The version, and in parentheses what it was built from and for (`build.rs`).
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MONOLOCK_BUILD"), ")");

/// A small server for named locks, with leases, first-in-first-out queues and fencing tokens.
#[derive(Debug, Parser)]
#[command(name = "monolock", version = VERSION, propagate_version = true, args_override_self = true, max_term_width = 100)]
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
    /// SIGTERM and SIGINT stop the server in order: no new connections, code 01 to every client, and an end within the
    /// io-timeout. A second one ends it at once.
    ///
    /// A service manager such as systemd is told of readiness, reloads and the stop (`NOTIFY_SOCKET`). It may pass
    /// sockets by the names monolock, admin and ops (`LISTEN_FDS`), which win over the flags for these addresses.
    Serve(Box<ServeArgs>),

    /// Run a command while holding a lock
    ///
    /// Waits for its turn in the queue of the lock NAME, runs the command without a shell, and releases the lock when
    /// the command has ended. The command finds the lock's name in the variable `MONOLOCK_LOCK` and its fencing
    /// token in `MONOLOCK_TOKEN`.
    #[command(after_long_help = RUN_HELP)]
    Run(Box<RunArgs>),

    /// Show the server: its version, its settings, how many locks and sessions it has
    #[command(after_long_help = STATUS_HELP)]
    Info(InfoArgs),

    /// List the locks that somebody claims: who holds them, since when, how many wait
    #[command(after_long_help = STATUS_HELP)]
    Locks(LocksArgs),

    /// Show one lock: its holder, its token, its lease, and its queue in order
    #[command(after_long_help = STATUS_HELP)]
    Lock(LockArgs),

    /// End the claim of a lock's holder; the next waiter has the lock at once
    #[command(after_long_help = RELEASE_HELP)]
    Release(ReleaseArgs),

    /// Remove a waiter from a lock's queue
    #[command(after_long_help = KICK_HELP)]
    Kick(KickArgs),

    /// Print a line for whatever happens to the locks, as it happens
    ///
    /// It comes back to a server that is gone for a while or restarted, and says what it has missed.
    #[command(after_long_help = STATUS_HELP)]
    Watch(WatchArgs),

    /// Look at all locks live, full-screen: sort, filter, inspect, release, kick
    #[command(after_long_help = TOP_HELP)]
    Top(TopArgs),

    /// Ask the server's --ops-listen whether it is ready, as containers do that have no curl
    #[command(after_long_help = HEALTHCHECK_HELP)]
    Healthcheck(HealthcheckArgs),

    /// Look into an access-control list
    #[command(subcommand)]
    Acl(AclCommand),

    /// Put load on a server, and tell latency, throughput and failures
    ///
    /// A load generator for any monolock server: raw frames over many connections, from several threads.
    #[command(after_long_help = BENCH_HELP)]
    Bench(Box<BenchArgs>),

    /// Watch locks change hands: a stop, a crash and a hang, in a few seconds
    ///
    /// Starts a server on a free port of this machine and three workers, and tells what happens to them.
    Demo(DemoArgs),

    /// Print the completions of a shell
    Completions(CompletionsArgs),

    /// Write manual pages, for those who package the program.
    #[command(hide = true)]
    Man(ManArgs),

    /// The stage between `run` and its command.
    #[command(name = "__exec", hide = true)]
    Exec(ExecArgs),

    /// One worker of the demo.
    #[command(name = "__demo-worker", hide = true)]
    DemoWorker(DemoWorkerArgs),
}

// Settings of the server. (A doc comment here would replace the program's own description in its help.)
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Where to listen
    #[arg(help = "Where to listen: host:port, [v6]:port, or :port for every address; port 0 takes a free one")]
    #[arg(long, env = "MONOLOCK_LISTEN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(default_value = "0.0.0.0:7070", value_parser = Checked(listen_address))]
    pub(crate) listen: ListenAddress,

    /// How long a client may take for its first frame and for a write it does not read, and a stop at most
    #[arg(long, env = "MONOLOCK_IO_TIMEOUT", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "5s", value_parser = Checked(positive_duration))]
    pub(crate) io_timeout: Duration,

    #[command(flatten)]
    pub(crate) log: LogArgs,

    #[command(flatten)]
    pub(crate) security: SecurityArgs,

    #[command(flatten)]
    pub(crate) oversight: OversightArgs,

    #[command(flatten)]
    pub(crate) limits: LimitArgs,
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

/// Settings of `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The server, host:port
    #[arg(long, env = "MONOLOCK_SERVER", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:7070", value_parser = Checked(server_address))]
    pub(crate) server: String,

    /// How long this machine may be out of touch before the lock passes on
    #[arg(long, env = "MONOLOCK_LEASE", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "10s", value_parser = Checked(lease))]
    pub(crate) lease: Lease,

    /// How long to wait for the lock at most; without it as long as it takes
    #[arg(long, env = "MONOLOCK_WAIT", hide_env_values = true, value_name = "DURATION")]
    #[arg(value_parser = Checked(positive_duration))]
    wait: Option<Duration>,

    /// Do not wait: take the lock only if it is free
    #[arg(long = "try", env = "MONOLOCK_TRY", hide_env_values = true, value_parser = Checked(switch))]
    only_try: bool,

    /// Do not say that there is a wait
    #[arg(long, env = "MONOLOCK_QUIET", hide_env_values = true, value_parser = Checked(switch))]
    pub(crate) quiet: bool,

    /// What `--wait` and `--try` come to.
    #[arg(skip)]
    pub(crate) patience: Patience,

    /// The lock
    #[arg(value_name = "NAME", value_parser = Checked(lock_name))]
    pub(crate) name: LockName,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    // Last, since whatever came after it would stand under its heading in the help.
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// How long a lock is worth waiting for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Within(Duration),
    #[default]
    Unlimited,
}

const STATUS_HELP: &str = "\
Exit status
\x20   0  done
\x20   1  anything that has no status of its own
\x20   2  the command line or a variable is wrong
\x20   3  there is no such lock
\x20 122  the admin API refuses who asks: a bearer token is missing or wrong
\x20 123  no admin API was reached";

const RUN_HELP: &str = "\
Exit status: that of the command, 128+n if signal n ended it, and of monolock itself
\x20   2  the command line or a variable is wrong
\x20 120  the lock is held by another (--try)
\x20 121  the lock was lost while the command ran, and the command was ended
\x20 122  the server refuses the claim
\x20 123  no server was reached
\x20 124  the lock was not obtained within --wait
\x20 125  the command could not be run for another reason
\x20 126  the command is not executable
\x20 127  there is no such command
128+n  signal n ended the wait

Waiting: a server that cannot be reached at first ends the wait (123). A place in the queue that is lost later, as when the \
server is restarted, is sought again at the end of the queue until --wait is over. The command runs at most once.

Loss: when the lock is lost, the command's process group has SIGTERM, and SIGKILL after a tenth of the lease (5s at most), so it \
is gone before the lease is over on the server. A process that left the group escapes this: let the guarded resource refuse \
old tokens.

Signals: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 end the wait, and are passed on to the command's group once it \
runs. The lock is held until the command has ended; what it leaves running in the background is not waited for.

Death: if monolock is killed with SIGKILL, the lock passes on at once. On Linux the command then has SIGTERM, but only the \
command itself: what it has started is for it to end.

Terminal: the command has the foreground, unless standard input or output is not a terminal, as in a pipeline. Ctrl-Z stops \
both. A stopped holder loses the lock when its lease is over; continued after that, the command is ended (121).";

/// What the stage before the command is told.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    #[arg(long)]
    pub(crate) parent: i32,
    #[arg(long)]
    pub(crate) foreground: bool,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Settings of the demo.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// How long a silent worker keeps its lock
    #[arg(long, env = "MONOLOCK_DEMO_LEASE", hide_env_values = true, value_name = "DURATION")]
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

/// The whole command line, as it is described to people.
pub(crate) fn command() -> clap::Command {
    // The program's own page shows the flags of the command that needs no name.
    ServeArgs::augment_args(Cli::command())
}

/// Reads the command line and the variables.
///
/// # Errors
/// A sentence about the first thing that is wrong.
pub(crate) fn parse(command_line: impl IntoIterator<Item = OsString>) -> Result<Request, Failure> {
    let words: Vec<OsString> = command_line.into_iter().collect();
    // The version is that of the program, whichever command is asked for it.
    let parser = Cli::command().mut_subcommands(|command| command.display_name("monolock"));
    let mut parser = adjust(parser);
    if words.get(1).is_some_and(|first| argv::asks_for_text(first)) {
        // The program's own help shows the flags of the command that needs no name.
        parser = ServeArgs::augment_args(parser);
    }
    parser.build();
    let words = argv::normalise(&parser, words);
    let command = words.get(1).map_or_else(String::new, |command| command.to_string_lossy().into_owned());
    let parsed = parser.try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?.command, matches)));
    match parsed {
        Ok((Command::Run(args), matches)) => {
            let (_, matches) = matches.subcommand().expect("run is a command");
            let patience = patience(&args, matches)?;
            Ok(Request::Run(Command::Run(Box::new(RunArgs { patience, ..*args }))))
        }
        Ok((command, _)) => Ok(Request::Run(command)),
        Err(error) if error.use_stderr() => Err(Failure::new(USAGE, sentence(&error, &command))),
        Err(error) => Ok(Request::Text(error)),
    }
}

/// An empty variable counts as unset, and what follows a flag is its value, whatever it begins with.
fn adjust(command: clap::Command) -> clap::Command {
    let adjust_arg = |arg: clap::Arg| {
        let is_empty = arg.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
        let arg = if is_empty { arg.env(Resettable::Reset) } else { arg };
        if arg.get_action().takes_values() && !arg.is_positional() { arg.allow_hyphen_values(true) } else { arg }
    };
    command.mut_args(adjust_arg).mut_subcommands(adjust)
}

/// What `--wait` and `--try` come to: a flag wins over the other one's variable as over its own.
fn patience(args: &RunArgs, matches: &ArgMatches) -> Result<Patience, Failure> {
    let is_flag = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    match (args.only_try, args.wait) {
        (false, None) => Ok(Patience::Unlimited),
        (true, None) => Ok(Patience::None),
        (false, Some(wait)) => Ok(Patience::Within(wait)),
        (true, Some(wait)) => match (is_flag("only_try"), is_flag("wait")) {
            (true, false) => Ok(Patience::None),
            (false, true) => Ok(Patience::Within(wait)),
            (true, true) => Err(Failure::new(USAGE, "--try and --wait exclude each other: give one of them")),
            (false, false) => {
                Err(Failure::new(USAGE, "MONOLOCK_TRY and MONOLOCK_WAIT exclude each other: unset one of them"))
            }
        },
    }
}

/// The parser's complaint about a command's line, in one sentence.
fn sentence(error: &clap::Error, command: &str) -> String {
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
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
            None if command == "run" && !argument.starts_with('-') => {
                format!("{argument:?} stands where only -- may: put -- between the lock's name and the command")
            }
            None if argument.starts_with('-') => format!("there is no flag {argument}: see monolock {command} --help"),
            None => format!("there is no place for {argument:?} here: see monolock {command} --help"),
        },
        ErrorKind::InvalidSubcommand => {
            let command = said(ContextKind::InvalidSubcommand).unwrap_or_default();
            match said(ContextKind::SuggestedSubcommand) {
                Some(meant) => format!("there is no command {command:?}: did you mean {meant}?"),
                None => format!("there is no command {command:?}: see monolock --help"),
            }
        }
        ErrorKind::MissingRequiredArgument => format!("{argument} is missing: see monolock {command} --help"),
        ErrorKind::ArgumentConflict => match said(ContextKind::PriorArg) {
            Some(prior) => {
                format!("{argument} and {} exclude each other: give one of them", without_value_name(&prior))
            }
            None => format!("{argument} does not go with the rest: see monolock {command} --help"),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("{command} needs a command of its own: see monolock {command} --help")
        }
        ErrorKind::InvalidValue => format!("{argument} needs a value: see monolock {command} --help"),
        _ => first_paragraph(&error.render()),
    }
}

/// `--listen` of `--listen <ADDRESS>`, and `NAME` of `<NAME>`.
fn without_value_name(argument: &str) -> String {
    match argument.split_once(' ') {
        Some((flag, _)) if flag.starts_with("--") => flag.to_owned(),
        Some(_) | None => argument.replace(['<', '>', '.'], ""),
    }
}

fn first_paragraph(text: &StyledStr) -> String {
    let text = text.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}
