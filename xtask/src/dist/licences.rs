//! The licences of all that is in the binary, with the texts that have to go with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use cargo_metadata::Package;
use spdx::{Expression, ParseMode};
use walkdir::WalkDir;

use super::build::{Linked, System};

/// How the names of files begin in which crates have licences.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

const BEGINNING: &str = "monolock is licensed under MIT OR Apache-2.0. Its binary contains what is listed here, each under the licence that is named.
The texts follow the list.

The GNU C Library is linked statically. Its licence wants you to be able to put another version in its place: build
monolock's sources with that version installed.
";

/// A text, and what it belongs to.
type Texts = BTreeMap<String, Vec<String>>;

/// The list and the texts.
///
/// # Errors
/// A package whose licence is not known, or whose text is neither in it nor a standard one.
pub(super) fn licences(linked: &Linked) -> Result<String, String> {
    let mut list = String::new();
    let mut texts = Texts::new();
    for package in linked.others() {
        let what = format!("{} {}", package.name, package.version);
        let licence = expression(package)?;
        let source = package.repository.as_deref().unwrap_or_default();
        let _ = writeln!(list, "{what:<34} {licence:<46} {source}");
        let own = own_texts(package)?;
        let found = if own.is_empty() { standard_texts(&licence)? } else { own };
        for text in found {
            texts.entry(text).or_default().push(what.clone());
        }
    }
    for System { name, version, licence, website } in &linked.system {
        let what = format!("{name} {version}");
        let _ = writeln!(list, "{what:<34} {licence:<46} {website}");
        for text in standard_texts(licence)? {
            texts.entry(text).or_default().push(what.clone());
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    let line = "-".repeat(80);
    let mut all = format!("{BEGINNING}\n{list}");
    for (of, text) in texts {
        let _ = write!(all, "\n{line}\n{}\n{line}\n\n{text}\n", of.join(", "));
    }
    Ok(all)
}

/// A package's licence as an expression of SPDX.
///
/// # Errors
/// It names none, or one that nobody knows.
pub(super) fn expression(package: &Package) -> Result<String, String> {
    let what = || format!("{} {}", package.name, package.version);
    let said = package.license.as_deref().ok_or_else(|| format!("{} names no licence", what()))?;
    let wrong = |error| format!("the licence of {}, {said:?}: {error}", what());
    // Before there were expressions, a slash stood for OR.
    let said = said.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    let canonical = Expression::canonicalize(&said).map_err(wrong)?;
    Ok(canonical.unwrap_or(said))
}

/// What a package brings along, that of another's sources inside it too.
fn own_texts(package: &Package) -> Result<Vec<String>, String> {
    let folder = package.manifest_path.parent().expect("a manifest lies in a folder").as_std_path();
    let mut texts = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|error| error.to_string())?;
        if !entry.file_type().is_file() || !is_licence(entry.path()) {
            continue;
        }
        let text = fs::read_to_string(entry.path()).map_err(|error| format!("{}: {error}", entry.path().display()))?;
        let text = text.replace("\r\n", "\n").trim_end().to_owned();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    Ok(texts)
}

/// A file of Rust is none, whatever its name.
fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let is_source = path.extension().is_some_and(|extension| extension == "rs");
    !is_source && (name == "UNLICENSE" || NAMES.iter().any(|start| name.starts_with(start)))
}

/// The texts of the licences that an expression names.
fn standard_texts(licence: &str) -> Result<Vec<String>, String> {
    let expression = Expression::parse_mode(licence, ParseMode::STRICT).map_err(|error| error.to_string())?;
    let mut texts = Vec::new();
    for asked in expression.requirements() {
        let id = asked.req.license.id().ok_or_else(|| format!("{licence:?} names a licence without a known text"))?;
        texts.push(id.text().trim_end().to_owned());
        if let Some(addition) = asked.req.addition.as_ref().and_then(spdx::AdditionItem::id) {
            texts.push(addition.text().trim_end().to_owned());
        }
    }
    Ok(texts)
}
