//! `monolock healthcheck`: whether a server is ready, as an exit status, for containers that have no curl.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use crate::admin::block_on;
use crate::failure::{FAILED, Failure, USAGE};
use crate::http::{Answer, Endpoint, HttpClient};
use crate::text::{print_raw, safe};
use crate::value::{Checked, ListenAddress, listen_address, server_address};

/// Who supervises a container waits no longer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) const HEALTHCHECK_HELP: &str = "\
Exit status
\x20   0  the server is ready
\x20   1  it is not, or does not answer within 5s
\x20   2  the command line or a variable is wrong, or it is not known where to ask";

/// Settings of `healthcheck`.
#[derive(Args, Debug)]
pub(crate) struct HealthcheckArgs {
    /// Where the server serves /readyz, host:port
    #[arg(long, env = "MONOLOCK_OPS_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(value_parser = Checked(server_address))]
    ops: Option<String>,

    /// The same as the server has it, from which the address follows on the same machine
    #[arg(long, env = "MONOLOCK_OPS_LISTEN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(value_parser = Checked(listen_address))]
    ops_listen: Option<ListenAddress>,
}

/// Asks whether the server is ready.
///
/// # Errors
/// It is not, or it is not known where it would say so.
pub(crate) fn healthcheck(args: &HealthcheckArgs) -> Result<ExitCode, Failure> {
    let address = address(args)?;
    let failure = |why: String| Failure::new(FAILED, format_args!("not ready: {address}: {why}"));
    block_on(async {
        let http = HttpClient::new(Endpoint::Tcp(address.clone()), None);
        let answer = timeout(PATIENCE, http.ask(Method::GET, "/readyz")).await;
        let answer = answer.map_err(|_| failure(format!("no answer within {}s", PATIENCE.as_secs())))?;
        let Answer { status, body, .. } = answer.map_err(|error| failure(error.to_string()))?;
        if status != StatusCode::OK {
            let said: String = String::from_utf8_lossy(&body).trim().chars().take(100).collect();
            return Err(failure(format!("{status}: {}", safe(&said))));
        }
        // The status says it too.
        let _ = print_raw(b"ready\n");
        Ok(ExitCode::SUCCESS)
    })
}

/// Where to ask.
fn address(args: &HealthcheckArgs) -> Result<String, Failure> {
    let HealthcheckArgs { ops, ops_listen } = args;
    match (ops, ops_listen) {
        (Some(ops), _) => Ok(ops.clone()),
        (None, Some(ListenAddress { port: 0, .. })) => Err(Failure::new(
            USAGE,
            "the server's --ops-listen takes any free port, which its log alone knows: say it with --ops",
        )),
        (None, Some(listen)) => Ok(reached(listen)),
        (None, None) => {
            Err(Failure::new(USAGE, "healthcheck needs the address of the server's --ops-listen: say it with --ops"))
        }
    }
}

/// Where a server that listens so is met from the same machine.
fn reached(listen: &ListenAddress) -> String {
    let ListenAddress { host, port } = listen;
    let host = match host.as_deref() {
        // Every address is also that of the loopback; one of IPv6 takes IPv4 in.
        None | Some("0.0.0.0" | "::") => "127.0.0.1".to_owned(),
        Some(host) => host.to_owned(),
    };
    ListenAddress { host: Some(host), port: *port }.to_string()
}
