//! What flags and variables may say: each kind of value with its check and the sentence for those who miss it.
//!
//! A [`Checked`] value knows whether it came from the flag or from the variable, so the sentence names the one that is
//! to be mended.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use anstream::ColorChoice;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Command, Error};
use clap_complete::Shell;
use monolock_client::MIN_LEASE_MS;
use monolock_core::{Lease, LockName, LockNameError, MAX_NAME_BYTES, Token};
use monolock_net::{AuditFailure, AuditSink};
use tokio::net::lookup_host;
use tracing::level_filters::LevelFilter;

use crate::failure::{FAILED, Failure};

/// The longest duration that is taken, as long as the longest lease: sums of two never overflow.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

/// A clap parser made of a check, which says what a wrong value should have been.
pub(crate) struct Checked<T>(pub(crate) fn(&str) -> Result<T, String>);

impl<T> Clone for Checked<T> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Checked<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse_ref_(command, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(&self, command: &Command, arg: Option<&Arg>, value: &OsStr, source: ValueSource) -> Result<T, Error> {
        let checked = match value.to_str() {
            Some(text) => (self.0)(text),
            None => Err("must be UTF-8".to_owned()),
        };
        checked.map_err(|wanted| {
            let origin = arg.map_or_else(|| "the value".to_owned(), |arg| origin(arg, source));
            let value = value.to_string_lossy();
            Error::raw(ErrorKind::ValueValidation, format!("{origin} is {value:?}, but {wanted}")).with_cmd(command)
        })
    }
}

/// What the user wrote the value into.
fn origin(arg: &Arg, source: ValueSource) -> String {
    match (source, arg.get_env(), arg.get_long()) {
        (ValueSource::EnvVariable, Some(variable), _) => variable.display().to_string(),
        (_, _, Some(long)) => format!("--{long}"),
        (_, _, None) => arg.get_value_names().and_then(<[_]>::first).map_or_else(String::new, ToString::to_string),
    }
}

/// A duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if !duration.is_zero() && duration <= LONGEST => Ok(duration),
        Ok(duration) if duration.is_zero() => Err("must be more than zero, such as 5s".to_owned()),
        Ok(_) => Err(format!("must not be more than {}ms (49.7 days)", LONGEST.as_millis())),
        Err(_) => Err("must be a duration, such as 5s, 250ms or 1m30s".to_owned()),
    }
}

/// A duration, or zero for none.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= LONGEST => Ok(duration),
        Ok(_) => Err(format!("must not be more than {}ms (49.7 days)", LONGEST.as_millis())),
        Err(_) if text == "0" => Ok(Duration::ZERO),
        Err(_) => Err("must be a duration, such as 0s, 250ms or 1m30s".to_owned()),
    }
}

/// A lease that a server allows at most.
pub(crate) fn longest_lease(text: &str) -> Result<Lease, String> {
    Lease::try_from(positive_duration(text)?).map_err(|error| format!("the {error}"))
}

/// A number of things, at least one.
pub(crate) fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "must be a whole number from 1 up".to_owned())
}

/// The path of a file.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must name a file".to_owned()) } else { Ok(text.into()) }
}

/// Where the audit log goes.
pub(crate) fn audit_sink(text: &str) -> Result<AuditSink, String> {
    match text {
        "-" => Ok(AuditSink::Stdout),
        path => Ok(AuditSink::File(file(path)?)),
    }
}

/// What a failing audit log does.
pub(crate) fn audit_failure(text: &str) -> Result<AuditFailure, String> {
    match text.to_ascii_lowercase().as_str() {
        "continue" => Ok(AuditFailure::Continue),
        "exit" => Ok(AuditFailure::Exit),
        _ => Err("must be continue or exit".to_owned()),
    }
}

/// A lease that a client can keep.
pub(crate) fn lease(text: &str) -> Result<Lease, String> {
    let lease = Lease::try_from(positive_duration(text)?).map_err(|error| format!("the {error}"))?;
    if lease.as_millis() < MIN_LEASE_MS {
        return Err(format!("must be at least {MIN_LEASE_MS}ms to be kept"));
    }
    Ok(lease)
}

/// A switch, as a variable says it.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

/// The name of a lock.
pub(crate) fn lock_name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|error| match error {
        LockNameError::Empty => "must not be empty".to_owned(),
        LockNameError::TooLong { .. } | LockNameError::NotUtf8 { .. } => {
            format!("must have at most {MAX_NAME_BYTES} bytes")
        }
    })
}

/// Where a server is to be met: `host:port` or `[v6]:port`, as the client takes it.
/// What a name begins with that ends in the 15 digits of a number.
pub(crate) fn name_prefix(text: &str) -> Result<String, String> {
    const MOST: usize = MAX_NAME_BYTES - 15;
    if text.len() > MOST { Err(format!("must be at most {MOST} bytes long")) } else { Ok(text.to_owned()) }
}

pub(crate) fn server_address(text: &str) -> Result<String, String> {
    match listen_address(text) {
        Ok(ListenAddress { host: Some(_), port: 1.. }) => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err("must be host:port or [v6]:port, such as 127.0.0.1:7070".to_owned()),
    }
}

/// A pattern of locks' names. A server takes no longer one.
pub(crate) fn glob(text: &str) -> Result<String, String> {
    const MAX_BYTES: usize = 1024;
    if text.len() > MAX_BYTES { Err(format!("must have at most {MAX_BYTES} bytes")) } else { Ok(text.to_owned()) }
}

/// A fencing token.
pub(crate) fn token(text: &str) -> Result<u64, String> {
    let token = text.parse().ok().and_then(Token::new);
    token.map(Token::get).ok_or_else(|| "must be a token, a whole number from 1 up".to_owned())
}

/// When colours are used.
pub(crate) fn color(text: &str) -> Result<ColorChoice, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(ColorChoice::Auto),
        "always" => Ok(ColorChoice::Always),
        "never" => Ok(ColorChoice::Never),
        _ => Err("must be auto, always or never".to_owned()),
    }
}

/// A shell.
pub(crate) fn shell(text: &str) -> Result<Shell, String> {
    text.parse().map_err(|_| "must be bash, elvish, fish, powershell or zsh".to_owned())
}

/// How much is logged.
pub(crate) fn log_level(text: &str) -> Result<LevelFilter, String> {
    match text.to_ascii_lowercase().as_str() {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("must be error, warn, info, debug or trace".to_owned()),
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How the log is written.
pub(crate) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text.to_ascii_lowercase().as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("must be text or json".to_owned()),
    }
}

/// Where to listen: a host, or every address of the machine, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    /// `None` is every address, IPv6 and IPv4.
    pub(crate) host: Option<String>,
    /// Zero takes any free port.
    pub(crate) port: u16,
}

/// `host:port`, `[v6]:port` or `:port`.
pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, String> {
    let wanted = || "must be host:port, [v6]:port or :port, such as 0.0.0.0:7070".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let port = port.parse().map_err(|_| "must end in a port from 0 to 65535, such as 0.0.0.0:7070".to_owned())?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match (bare, host) {
        (None, "") => Ok(ListenAddress { host: None, port }),
        (None, host) if host.contains([':', '[', ']']) || host.contains(char::is_whitespace) => Err(wanted()),
        (Some(bare), _) if !bare.contains(':') => Err(wanted()),
        (Some(host), _) | (None, host) => Ok(ListenAddress { host: Some(host.to_owned()), port }),
    }
}

impl ListenAddress {
    /// The socket addresses that it means.
    ///
    /// # Errors
    /// The name cannot be looked up.
    pub(crate) async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let Self { host, port } = self;
        match host {
            Some(host) => Ok(lookup_host((host.as_str(), *port)).await?.collect()),
            // The first means both families where the machine has both.
            None => Ok(vec![(Ipv6Addr::UNSPECIFIED, *port).into(), (Ipv4Addr::UNSPECIFIED, *port).into()]),
        }
    }

    /// The first socket address that it means, for the flag that it stands in.
    ///
    /// # Errors
    /// The name has no address.
    pub(crate) async fn first(&self, flag: &str) -> Result<SocketAddr, Failure> {
        let failure = |error: io::Error| Failure::new(FAILED, format_args!("{flag} {self}: {error}"));
        let addresses = self.resolve().await.map_err(failure)?;
        let nothing = || failure(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        addresses.first().copied().ok_or_else(nothing)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.as_deref() {
            None => write!(f, ":{port}"),
            Some(host) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(host) => write!(f, "{host}:{port}"),
        }
    }
}
