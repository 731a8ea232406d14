//! What is in the image, and what it says of itself.

use std::process::Command;

use serde_json::json;

use crate::engine::{Engine, IMAGE};
use crate::support::outcome;

#[test]
fn the_same_commit_makes_the_same_image() {
    let engine = Engine::with_image();
    let id = |engine: &Engine| engine.say(["image", "inspect", "--format", "{{.Id}}", IMAGE]);
    let first = id(&engine);
    engine.say(["rmi", "--force", IMAGE]);
    engine.build();
    assert_eq!(id(&engine), first);
}

#[test]
fn it_is_one_binary_and_says_what_it_is_and_how_it_is_run() {
    let engine = Engine::with_image();
    let image = engine.inspect(IMAGE);
    let config = &image["Config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/monolock"]));
    assert_eq!(config["Cmd"], json!(["serve"]));
    assert_eq!(config["StopSignal"], "SIGTERM");
    assert_eq!(config["ExposedPorts"], json!({ "7070/tcp": {}, "7071/tcp": {}, "9090/tcp": {} }));
    assert_eq!(image["Healthcheck"]["Test"], json!(["CMD", "/monolock", "healthcheck"]));
    let labels = config["Labels"].as_object().unwrap();
    let label = |name: &str| labels[&format!("org.opencontainers.image.{name}")].as_str().unwrap();
    assert_eq!(label("title"), "monolock");
    assert_eq!(label("licenses"), env!("CARGO_PKG_LICENSE"));
    assert_eq!(label("version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(label("source"), env!("CARGO_PKG_REPOSITORY"));
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        engine.at_home(&mut git);
        outcome(git.args(arguments)).stdout.trim().to_owned()
    };
    assert!(label("revision").starts_with(&git(&["rev-parse", "HEAD"])), "{labels:?}");
    let is_time = |time: &str| time.len() == "2026-01-01T00:00:00Z".len() && time.ends_with('Z');
    assert!(is_time(label("created")) && image["Created"] == label("created"), "{image}");
    assert!(labels.keys().all(|name| name.starts_with("org.opencontainers.image.")), "no other: {labels:?}");
    let bytes = image["Size"].as_u64().unwrap();
    assert!(bytes < 8 << 20, "{bytes}");

    let container = engine.say(["create", IMAGE]);
    let archive = format!("{}/image.tar", env!("CARGO_TARGET_TMPDIR"));
    engine.say(["export", "--output", &archive, &container]);
    let files =
        outcome(Command::new("tar").args(["--list", "--verbose", "--numeric-owner", "--file", &archive])).stdout;
    std::fs::remove_file(&archive).unwrap();
    let files: Vec<Vec<&str>> = files.lines().map(|line| line.split_whitespace().collect()).collect();
    let of = |path: &str| files.iter().find(|file| file.last() == Some(&path)).unwrap_or_else(|| panic!("{files:?}"));
    assert_eq!(of("monolock")[..2], ["-rwxr-xr-x", "0/0"]);
    assert_eq!(of("var/lib/")[..2], ["drwxr-xr-x", "0/0"]);
    assert_eq!(of("var/lib/monolock/")[..2], ["drwxr-xr-x", "65532/65532"]);
    let regular = files.iter().filter(|file| file[0].starts_with('-') && file[2] != "0");
    assert_eq!(regular.count(), 1, "{files:?}");
}

#[test]
fn every_command_of_the_program_is_there() {
    let engine = Engine::with_image();
    let version = engine.say(["run", "--rm", IMAGE, "--version"]);
    assert!(version.starts_with(concat!("monolock ", env!("CARGO_PKG_VERSION"))), "{version}");
    // It starts itself as its workers.
    assert!(engine.say(["run", "--rm", IMAGE, "demo", "--lease", "6s"]).contains("Four turns"));
}
