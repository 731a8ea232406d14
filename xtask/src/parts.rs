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
    probe: Probe,
    /// What a person types to get it.
    pub(crate) install: &'static str,
}

/// How it is found out whether a tool is there.
#[derive(Debug)]
enum Probe {
    /// Cargo is asked for it.
    Cargo(&'static [&'static str]),
    /// It is a program, in a directory of the search path or where Debian has programs for root.
    Program(&'static str),
}

const RUSTFMT: Need =
    Need { tool: "rustfmt", probe: Probe::Cargo(&["fmt", "--version"]), install: "rustup component add rustfmt" };
const CLIPPY: Need =
    Need { tool: "clippy", probe: Probe::Cargo(&["clippy", "--version"]), install: "rustup component add clippy" };
const OPENSSL: Need = Need { tool: "openssl", probe: Probe::Program("openssl"), install: "apt-get install openssl" };
const PROMETHEUS: Need =
    Need { tool: "prometheus", probe: Probe::Program("prometheus"), install: "apt-get install prometheus" };
const PROMTOOL: Need =
    Need { tool: "promtool", probe: Probe::Program("promtool"), install: "apt-get install prometheus" };
const LOGROTATE: Need =
    Need { tool: "logrotate", probe: Probe::Program("logrotate"), install: "apt-get install logrotate" };
const FAKETIME: Need =
    Need { tool: "faketime", probe: Probe::Program("faketime"), install: "apt-get install faketime" };

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
        arguments: &["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"],
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
        name: "operations",
        about: "the server among the tools of those who run it",
        needs: &[OPENSSL, PROMETHEUS, PROMTOOL, LOGROTATE, FAKETIME],
        arguments: &[
            "test",
            "--workspace",
            "--features",
            "monolock-bin/outside-tools",
            "--test",
            "operations",
            "--locked",
        ],
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
        match self.probe {
            Probe::Cargo(arguments) => {
                let mut probe = Command::new(cargo());
                probe.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
                probe.status().is_ok_and(|status| status.success())
            }
            Probe::Program(name) => {
                let path = env::var_os("PATH").unwrap_or_default();
                env::split_paths(&path).chain(["/usr/sbin".into()]).any(|directory| directory.join(name).is_file())
            }
        }
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
