//! What packages bring along says what the program does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::docs::settings;

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// Each setting of the server stands in Debian's file of settings, commented out, with its default.
#[test]
fn debians_file_of_settings_has_each_one_commented_with_its_default() {
    let text = file("deploy/debian/default");
    for line in text.lines().filter(|line| !line.is_empty()) {
        assert!(line.starts_with('#'), "not commented: {line}");
    }
    let lines = text.lines().filter_map(|line| line.strip_prefix("#MONOLOCK_")?.split_once('='));
    let written: BTreeMap<String, &str> = lines.map(|(name, value)| (format!("MONOLOCK_{name}"), value)).collect();
    let of_program = settings("serve").into_iter().filter(|setting| !setting.variable.is_empty());
    let mut real: BTreeMap<String, String> =
        of_program.map(|setting| (setting.variable, setting.default.unwrap_or_default())).collect();
    // A switch is off; the unit sets the file of the tokens.
    real.insert("MONOLOCK_ADMIN_INSECURE".to_owned(), "false".to_owned());
    real.insert("MONOLOCK_TOKEN_FILE".to_owned(), "/var/lib/monolock/tokens".to_owned());
    let real: BTreeMap<String, &str> = real.iter().map(|(name, value)| (name.clone(), value.as_str())).collect();
    assert_eq!(written, real);
}

#[test]
fn the_changelogs_begin_with_the_version_that_is_built() {
    let debian = file("deploy/debian/changelog");
    let version = env!("CARGO_PKG_VERSION");
    assert!(debian.starts_with(&format!("monolock ({version}-1) ")), "{debian}");
    let ours = file("CHANGELOG.md");
    let first = ours.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert!(first == "Unreleased" || first.starts_with(&format!("{version} - ")), "{first:?}");
}
