//! The parts of `cargo xtask test`, one row each, cheapest first.

use std::env;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// One check of the repository.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: &'static [Need],
    /// What cargo is called with.
    arguments: &'static [&'static str],
    /// Flags for rustdoc, where warnings have no flag of cargo's own.
    rustdoc: Option<&'static str>,
}

/// A tool that is not part of every Rust toolchain.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) tool: &'static str,
    /// How cargo is asked for it.
    probe: &'static [&'static str],
    /// What a person types to get it.
    pub(crate) install: &'static str,
}

const RUSTFMT: Need = Need { tool: "rustfmt", probe: &["fmt", "--version"], install: "rustup component add rustfmt" };
const CLIPPY: Need = Need { tool: "clippy", probe: &["clippy", "--version"], install: "rustup component add clippy" };

pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "fmt",
        about: "the sources are formatted",
        needs: &[RUSTFMT],
        arguments: &["fmt", "--all", "--check"],
        rustdoc: None,
    },
    Part {
        name: "clippy",
        about: "no lint complains, of any target",
        needs: &[CLIPPY],
        arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
        rustdoc: None,
    },
    Part {
        name: "tests",
        about: "unit and integration tests, examples",
        needs: &[],
        arguments: &["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--locked"],
        rustdoc: None,
    },
    Part {
        name: "doctests",
        about: "the examples in the documentation",
        needs: &[],
        arguments: &["test", "--workspace", "--doc", "--locked"],
        rustdoc: None,
    },
    Part {
        name: "docs",
        about: "the documentation builds without a warning",
        needs: &[],
        arguments: &["doc", "--workspace", "--no-deps", "--locked"],
        rustdoc: Some("-D warnings"),
    },
];

impl Part {
    /// Runs it, with its output shown.
    ///
    /// # Errors
    /// What was called and how it ended.
    pub(crate) fn run(&self) -> Result<(), String> {
        let mut command = Command::new(cargo());
        command.args(self.arguments);
        if let Some(flags) = self.rustdoc {
            command.env("RUSTDOCFLAGS", flags);
        }
        run(&mut command)
    }
}

impl Need {
    pub(crate) fn is_met(&self) -> bool {
        let mut probe = Command::new(cargo());
        probe.args(self.probe).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    }
}

/// The part of this name.
///
/// # Errors
/// Names the parts that there are.
pub(crate) fn find(name: &str) -> Result<&'static Part, String> {
    PARTS.iter().find(|part| part.name == name).ok_or_else(|| {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        format!("there are the parts {}", names.join(", "))
    })
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command, with its output shown.
///
/// # Errors
/// What was called and how it ended.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let called = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{called} ended with {status}")),
        Err(error) => Err(format!("cannot start {called}: {error}")),
    }
}
