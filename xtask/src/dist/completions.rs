//! What the program says of itself: manual pages, and completions for shells.

use std::path::Path;
use std::process::Command;

use super::{make_folder, write as write_text};
use crate::parts::{output, run};

/// Shells, and where each looks for a completion by what name.
pub(super) const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "monolock.bash"),
    ("elvish", "monolock.elv"),
    ("fish", "monolock.fish"),
    ("powershell", "_monolock.ps1"),
    ("zsh", "_monolock"),
];

/// Has the program write them into `man` and `completions` below a folder.
pub(super) fn write(binary: &Path, folder: &Path) -> Result<(), String> {
    run(Command::new(binary).arg("man").arg(folder.join("man")))?;
    let completions = folder.join("completions");
    make_folder(&completions)?;
    for (shell, name) in COMPLETIONS {
        let (text, _) = output(Command::new(binary).args(["completions", shell]))?;
        write_text(&completions.join(name), &text)?;
    }
    Ok(())
}
