//! What is made from the command line's own description: completions for shells, and manual pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::builder::StyledStr;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli;
use crate::failure::{FAILED, Failure};
use crate::text::print_raw;
use crate::value::{Checked, file, shell};

/// Settings of `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell: bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL", value_parser = Checked(shell))]
    shell: Shell,
}

/// Settings of `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Where the pages go, which is made if it is not there
    #[arg(value_name = "DIRECTORY", value_parser = Checked(file))]
    directory: PathBuf,
}

/// Prints the completions of a shell.
///
/// # Errors
/// They cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut shown(), "monolock", &mut text);
    print_raw(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for the program and one for each command.
///
/// # Errors
/// They cannot be written.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode, Failure> {
    let ManArgs { directory } = args;
    let written = fs::create_dir_all(directory).and_then(|()| write_pages(directory));
    written.map_err(|error| Failure::new(FAILED, format_args!("{}: {error}", directory.display())))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(shown(), directory)
}

/// The command line without the commands that are not for people, which generators would show.
fn shown() -> Command {
    let whole = cli::command();
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let text = |text: Option<&StyledStr>| text.cloned().unwrap_or_default();
    Command::new("monolock")
        .version(env!("CARGO_PKG_VERSION"))
        .about(text(whole.get_about()))
        .after_help(text(whole.get_after_help()))
        .args(whole.get_arguments().cloned())
        .subcommands(shown)
}
