//! Where the admin API is met, and how what it says is shown: the settings that all commands of an operator share.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::ColorChoice;
use clap::Args;
use hyper::header::HeaderValue;
use tokio::runtime::Builder;

use crate::api::Api;
use crate::failure::{FAILED, Failure};
use crate::http::{Endpoint, HttpClient};
use crate::value::{Checked, color, file, server_address, switch};

// The admin API.
#[derive(Args, Debug)]
pub(crate) struct AdminArgs {
    /// The admin API of the server: host:port or unix:PATH
    #[arg(long, env = "MONOLOCK_ADMIN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(default_value = "127.0.0.1:7071", value_parser = Checked(admin_server))]
    admin: Endpoint,

    /// Show the admin API the bearer token in this file
    #[arg(long, env = "MONOLOCK_ADMIN_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    admin_token_file: Option<PathBuf>,
}

// How it is shown.
#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// Print JSON, as the admin API has it
    #[arg(long, env = "MONOLOCK_JSON", hide_env_values = true, value_parser = Checked(switch))]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) color: ColorArgs,
}

// Colours.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ColorArgs {
    /// When colours are used
    #[arg(help = "Use colours: auto (on a terminal, unless NO_COLOR is set), always or never")]
    #[arg(long, env = "MONOLOCK_COLOR", hide_env_values = true, value_name = "WHEN")]
    #[arg(default_value = "auto", value_parser = Checked(color))]
    pub(crate) color: ColorChoice,
}

/// Where an admin API is to be met: `host:port`, `[v6]:port` or `unix:PATH`.
fn admin_server(text: &str) -> Result<Endpoint, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("must name a path after unix:, such as unix:/run/monolock/admin.sock".to_owned()),
        Some(path) => Ok(Endpoint::Unix(path.into())),
        None => server_address(text)
            .map(Endpoint::Tcp)
            .map_err(|_| "must be host:port or unix:PATH, such as 127.0.0.1:7071".to_owned()),
    }
}

impl AdminArgs {
    /// The API behind them.
    ///
    /// # Errors
    /// The file has no token.
    pub(crate) fn api(&self) -> Result<Api, Failure> {
        let Self { admin, admin_token_file } = self;
        let token = admin_token_file.as_deref().map(bearer).transpose()?;
        Ok(Api::new(HttpClient::new(admin.clone(), token), admin_token_file.clone()))
    }
}

/// The header that shows the token in this file.
fn bearer(file: &Path) -> Result<HeaderValue, Failure> {
    let failure =
        |error: &dyn fmt::Display| Failure::new(FAILED, format_args!("--admin-token-file {}: {error}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failure(&error))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(failure(&"the file is empty"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(failure(&"a token is one word of visible ASCII characters"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|error| failure(&error))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Runs a command of an operator to its end.
///
/// # Errors
/// Those of the command.
pub(crate) fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(FAILED, format_args!("cannot start: {error}")))?;
    let ended = runtime.block_on(command);
    // A look-up of a name that hangs must not keep the process.
    runtime.shutdown_background();
    ended
}
