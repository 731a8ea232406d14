//! The server's settings beyond where it listens, from flags to the library's values.
//!
//! Each group of flags becomes one value of `monolock-net`; what two flags may not say together is said here, in one
//! sentence.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use monolock_core::Lease;
use monolock_net::{
    AdminAccess, AdminListen, AdminSettings, AuditFailure, AuditLog, AuditSink, Limits, ServerBuilder, StartError,
    TlsFiles,
};

use crate::failure::{FAILED, Failure, USAGE};
use crate::value::{
    Checked, ListenAddress, audit_failure, audit_sink, count, duration, file, listen_address, longest_lease, switch,
};

// Settings of TLS and access control.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS and access control")]
pub(crate) struct SecurityArgs {
    /// Serve over TLS with this certificate: PEM, the server's own first, then its chain
    #[arg(long, env = "MONOLOCK_TLS_CERT", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The certificate's private key: PEM, PKCS#8, SEC1 or PKCS#1
    #[arg(long, env = "MONOLOCK_TLS_KEY", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) tls_key: Option<PathBuf>,

    /// Ask clients for a certificate that one of these signed: mutual TLS
    #[arg(long, env = "MONOLOCK_TLS_CLIENT_CA", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Let identities claim only what this list allows: JSON, see docs/access-control.md; needs --tls-client-ca
    #[arg(long, env = "MONOLOCK_ACL_FILE", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) acl_file: Option<PathBuf>,
}

// Settings of what an operator sees.
#[derive(Args, Debug)]
#[command(next_help_heading = "Audit, administration and metrics")]
pub(crate) struct OversightArgs {
    /// Write grants and their ends here, one JSON object a line; - is standard output
    #[arg(long, env = "MONOLOCK_AUDIT_LOG", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(audit_sink))]
    pub(crate) audit_log: Option<AuditSink>,

    /// What an audit log that cannot be written does: continue (events are dropped and counted) or exit
    #[arg(long, env = "MONOLOCK_AUDIT_FAILURE", hide_env_values = true, value_name = "POLICY")]
    #[arg(default_value = "continue", value_parser = Checked(audit_failure))]
    pub(crate) audit_failure: AuditFailure,

    /// Serve the admin API here: host:port or unix:PATH
    #[arg(long, env = "MONOLOCK_ADMIN_LISTEN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(value_parser = Checked(admin_address))]
    pub(crate) admin_listen: Option<AdminAddress>,

    /// Ask for the bearer token in this file at the admin API
    #[arg(long, env = "MONOLOCK_ADMIN_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// Serve the admin API without a token to whoever reaches its address
    #[arg(long, env = "MONOLOCK_ADMIN_INSECURE", hide_env_values = true, value_parser = Checked(switch))]
    pub(crate) admin_insecure: bool,

    /// Serve /healthz, /readyz and /metrics here
    #[arg(long, env = "MONOLOCK_OPS_LISTEN_ADDRESS", hide_env_values = true, value_name = "ADDRESS")]
    #[arg(value_parser = Checked(listen_address))]
    pub(crate) ops_listen: Option<ListenAddress>,
}

// Settings of limits and of restarts.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits and restarts")]
pub(crate) struct LimitArgs {
    /// How many sessions there may be at a time
    #[arg(long, env = "MONOLOCK_MAX_SESSIONS", hide_env_values = true, value_name = "COUNT")]
    #[arg(value_parser = Checked(count))]
    pub(crate) max_sessions: Option<NonZeroUsize>,

    /// How many sessions one client may have, by its identity, else by its IP address
    #[arg(long, env = "MONOLOCK_MAX_SESSIONS_PER_CLIENT", hide_env_values = true, value_name = "COUNT")]
    #[arg(value_parser = Checked(count))]
    pub(crate) max_sessions_per_client: Option<NonZeroUsize>,

    /// The longest lease that a client may choose
    #[arg(long, env = "MONOLOCK_MAX_LEASE", hide_env_values = true, value_name = "DURATION")]
    #[arg(value_parser = Checked(longest_lease))]
    pub(crate) max_lease: Option<Lease>,

    /// For so long after the start only queue claims, so that holders of before have given up; at least the longest
    /// lease
    #[arg(long, env = "MONOLOCK_START_GRACE", hide_env_values = true, value_name = "DURATION")]
    #[arg(default_value = "0s", value_parser = Checked(duration))]
    pub(crate) start_grace: Duration,

    /// Keep a mark of the tokens here, so that they rise across restarts whatever the wall clock does
    #[arg(long, env = "MONOLOCK_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    pub(crate) token_file: Option<PathBuf>,
}

/// Where the admin API is to be met, as it was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    Tcp(ListenAddress),
    Unix(PathBuf),
}

/// `host:port` or `unix:PATH`.
pub(crate) fn admin_address(text: &str) -> Result<AdminAddress, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("must name a path after unix:, such as unix:/run/monolock/admin.sock".to_owned()),
        Some(path) => Ok(AdminAddress::Unix(path.into())),
        None => listen_address(text)
            .map(AdminAddress::Tcp)
            .map_err(|_| "must be host:port or unix:PATH, such as 127.0.0.1:7071".to_owned()),
    }
}

impl SecurityArgs {
    /// Applies them.
    ///
    /// # Errors
    /// Two of them do not go together.
    pub(crate) fn apply(&self, mut builder: ServerBuilder) -> Result<ServerBuilder, Failure> {
        let Self { tls_cert, tls_key, tls_client_ca, acl_file } = self;
        let usage = |sentence: &str| Err(Failure::new(USAGE, sentence));
        match (tls_cert, tls_key) {
            (Some(certificate), Some(key)) => {
                let (certificate, key, client_ca) = (certificate.clone(), key.clone(), tls_client_ca.clone());
                builder = builder.tls(TlsFiles { certificate, key, client_ca });
            }
            (Some(_), None) => return usage("--tls-cert needs --tls-key: give both or neither"),
            (None, Some(_)) => return usage("--tls-key needs --tls-cert: give both or neither"),
            (None, None) if tls_client_ca.is_some() => {
                return usage(
                    "--tls-client-ca needs --tls-cert and --tls-key: clients are asked for certificates over TLS alone",
                );
            }
            (None, None) => {}
        }
        match acl_file {
            Some(_) if tls_client_ca.is_none() => {
                usage("--acl-file needs --tls-client-ca: identities come from client certificates")
            }
            Some(file) => Ok(builder.acl_file(file.clone())),
            None => Ok(builder),
        }
    }
}

impl OversightArgs {
    /// Applies them.
    ///
    /// # Errors
    /// Two of them do not go together, or a name has no address.
    pub(crate) async fn apply(&self, mut builder: ServerBuilder) -> Result<ServerBuilder, Failure> {
        let Self { audit_log, audit_failure, admin_listen, ops_listen, .. } = self;
        if let Some(sink) = audit_log {
            builder = builder.audit_log(AuditLog { sink: sink.clone(), on_failure: *audit_failure });
        }
        let access = self.access()?;
        if let Some(address) = admin_listen {
            let listen = match address {
                AdminAddress::Tcp(address) => AdminListen::Tcp(address.first("--admin-listen").await?),
                AdminAddress::Unix(path) => AdminListen::Unix(path.clone()),
            };
            builder = builder.admin(AdminSettings { listen, access });
        }
        if let Some(address) = ops_listen {
            builder = builder.ops(address.first("--ops-listen").await?);
        }
        Ok(builder)
    }

    /// Who may use the admin API.
    ///
    /// # Errors
    /// Two answers to that.
    pub(crate) fn access(&self) -> Result<AdminAccess, Failure> {
        match (&self.admin_token_file, self.admin_insecure) {
            (Some(_), true) => {
                let sentence = "--admin-token-file and --admin-insecure exclude each other: give one of them";
                Err(Failure::new(USAGE, sentence))
            }
            (Some(file), false) => Ok(AdminAccess::Token(file.clone())),
            (None, true) => Ok(AdminAccess::Insecure),
            (None, false) => Ok(AdminAccess::Local),
        }
    }
}

impl LimitArgs {
    /// Applies them.
    pub(crate) fn apply(&self, mut builder: ServerBuilder) -> ServerBuilder {
        let Self { max_sessions, max_sessions_per_client, max_lease, start_grace, token_file } = self;
        let mut limits = Limits::default();
        limits.max_sessions = *max_sessions;
        limits.max_sessions_per_client = *max_sessions_per_client;
        limits.max_lease = *max_lease;
        builder = builder.limits(limits).start_grace(*start_grace);
        match token_file {
            Some(file) => builder.token_file(file.clone()),
            None => builder,
        }
    }
}

/// The sentence for a server that could not be started: which flag it is about, and what to do.
pub(crate) fn not_started(error: &StartError, listen: &ListenAddress) -> Failure {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the errors are open-ended; the others name their file themselves"
    )]
    match error {
        StartError::Listen(_, error) => Failure::new(
            FAILED,
            format_args!(
                "cannot listen on {listen}: {error}; choose another address with --listen or MONOLOCK_LISTEN_ADDRESS"
            ),
        ),
        StartError::Admin(address, error) => Failure::new(
            FAILED,
            format_args!(
                "cannot serve the admin API on {address}: {error}; choose another address with --admin-listen"
            ),
        ),
        StartError::OpenAdmin(address) => Failure::new(
            USAGE,
            format_args!(
                "--admin-listen {address} would let anybody who reaches it end claims: add --admin-token-file, or say --admin-insecure"
            ),
        ),
        StartError::AdminToken(file, error) => {
            Failure::new(FAILED, format_args!("--admin-token-file {}: {error}", file.display()))
        }
        StartError::Ops(address, error) => Failure::new(
            FAILED,
            format_args!(
                "cannot serve the ops endpoints on {address}: {error}; choose another address with --ops-listen"
            ),
        ),
        StartError::Passed(purpose, error) => {
            Failure::new(USAGE, format_args!("the service manager's socket for {purpose} is of no use: {error}"))
        }
        StartError::TokenFile(error) => Failure::new(FAILED, format_args!("--token-file {error}")),
        error => Failure::new(FAILED, error),
    }
}
