//! The log: on stderr, in UTC, one event a line.
//!
//! A log that nobody reads any more must not stop the server, so failures to write it are dropped.

use std::env;
use std::io::{self, IsTerminal as _};

use crate::cli::LogArgs;
use crate::value::LogFormat;

/// Sets the log up for the whole process; once.
pub(crate) fn init(args: &LogArgs) {
    let LogArgs { log_level, log_format } = *args;
    let builder =
        tracing_subscriber::fmt().with_max_level(log_level).with_writer(io::stderr).log_internal_errors(false);
    match log_format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_target(false).with_ansi(wants_colour()).init(),
    }
}

/// Colours are for terminals, and for none that was told otherwise (<https://no-color.org>).
fn wants_colour() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
