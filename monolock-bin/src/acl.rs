//! `monolock acl check`: what an access-control list says of an identity and a lock, without a server.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use monolock_core::LockName;
use monolock_net::Acl;

use crate::failure::{FAILED, Failure, USAGE};
use crate::value::{Checked, file, lock_name};

/// What is to be done with a list.
#[derive(Debug, Subcommand)]
pub(crate) enum AclCommand {
    /// Say which rule lets an identity claim a lock, or that none does
    ///
    /// The exit status is 0 if a rule does, 1 if none does, and 2 if the list cannot be used.
    Check(AclCheckArgs),
}

// Settings of `acl check`.
#[derive(Args, Debug)]
pub(crate) struct AclCheckArgs {
    /// The access-control list
    #[arg(long, env = "MONOLOCK_ACL_FILE", hide_env_values = true, value_name = "FILE", value_parser = Checked(file))]
    acl_file: PathBuf,

    /// Who claims, as the client's certificate names it
    identity: String,

    /// What is claimed
    #[arg(value_parser = Checked(lock_name))]
    lock: LockName,
}

/// Looks the list up.
///
/// # Errors
/// The list cannot be used.
pub(crate) fn check(args: &AclCheckArgs) -> Result<ExitCode, Failure> {
    let AclCheckArgs { acl_file, identity, lock } = args;
    let unusable =
        |error: &dyn std::fmt::Display| Failure::new(USAGE, format_args!("--acl-file {}: {error}", acl_file.display()));
    let text = fs::read_to_string(acl_file).map_err(|error| unusable(&error))?;
    let acl = Acl::parse(&text).map_err(|error| unusable(&error))?;
    let (verdict, status) = match acl.allowing_rule(identity, lock.as_name_ref()) {
        Some(rule) => (format!("allowed by {rule}"), ExitCode::SUCCESS),
        None => (format!("denied: none of the {} rules allows it", acl.rules().len()), ExitCode::from(FAILED)),
    };
    // The status says it too, so a closed standard output is no reason to fail.
    let _ = writeln!(std::io::stdout(), "{verdict}");
    Ok(status)
}
