//! `cargo xtask packages`: what goes to the registries of each language, made and looked at, and handed to nobody.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};
use clap::Args;
use serde_json::Value;

use crate::parts::{self, output, run};
use crate::serving::Serving;

/// The crates, in the order in which they need each other.
const CRATES: [&str; 4] = ["monolock-core", "monolock-net", "monolock-client", "monolock-bin"];

const CARGO_DENY: &str = "0.20.2";

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// The most keywords and categories that a registry takes.
const MOST_WORDS: usize = 5;

/// Makes what goes to registries.
#[derive(Args, Debug)]
pub(crate) struct Packages {
    /// Builds each crate from its package too, which takes minutes.
    #[arg(long)]
    verify: bool,
    /// Asks cargo-deny for licences, sources and duplicates, and builds it where it is not there, which takes minutes.
    #[arg(long)]
    deny: bool,
    /// Asks cargo-deny for vulnerabilities, whose database it fetches from GitHub.
    #[arg(long)]
    advisories: bool,
    /// Whether this tag is the version's, and everything says so: of a release, before it is published.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

impl Packages {
    /// Makes and looks at all packages.
    ///
    /// # Errors
    /// The first thing that is not as it has to be.
    pub(crate) fn run(&self) -> Result<(), String> {
        let Self { verify, deny, advisories, tag } = self;
        let metadata = MetadataCommand::new().cargo_path(parts::cargo()).other_options(["--locked".to_owned()]).exec();
        let metadata = metadata.map_err(|error| error.to_string())?;
        let folder = parts::target().join("packages");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;

        versions(&metadata)?;
        crates(&metadata, *verify)?;
        go(&folder.join("go"))?;
        let mut program = Command::new(parts::target().join("debug/monolock"));
        program.env_clear();
        let serving = Serving::start(program)?;
        node(&folder.join("node"), &serving)?;
        python(&folder.join("python"), &serving)?;
        serving.stop()?;
        if *deny {
            cargo_deny(&["bans", "licenses", "sources"])?;
        }
        if *advisories {
            cargo_deny(&["advisories"])?;
        }
        tag.as_deref().map_or(Ok(()), tagged)
    }
}

fn read(path: impl AsRef<Path>) -> Result<String, String> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// One version everywhere, and the same licences.
fn versions(metadata: &Metadata) -> Result<(), String> {
    let version = env!("CARGO_PKG_VERSION");
    for package in metadata.workspace_packages() {
        if package.version.to_string() != version {
            return Err(format!("{} has the version {}, and others {version}", package.name, package.version));
        }
    }
    let node: Value = serde_json::from_str(&read("clients/node/package.json")?).map_err(|error| error.to_string())?;
    let python: toml::Table =
        toml::from_str(&read("clients/python/pyproject.toml")?).map_err(|error| error.to_string())?;
    let of_python = python.get("project").and_then(|project| project.get("version")).and_then(toml::Value::as_str);
    for (what, its) in [("Node.js", node["version"].as_str()), ("Python", of_python)] {
        if its != Some(version) {
            return Err(format!("the client for {what} has the version {its:?}, and the crates {version}"));
        }
    }
    for folder in ["clients/go", "clients/node", "clients/python"] {
        for licence in LICENCES {
            let path = Path::new(folder).join(licence);
            if read(&path)? != read(licence)? {
                return Err(format!("{} is not the same as {licence}", path.display()));
            }
        }
    }
    Ok(())
}

/// Whether a registry would take the crates, and what would be in them.
fn crates(metadata: &Metadata, verify: bool) -> Result<(), String> {
    let of_registry = |package: &&Package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    let packages: Vec<&Package> = metadata.workspace_packages().into_iter().filter(of_registry).collect();
    let names: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    if names != BTreeSet::from(CRATES) {
        return Err(format!("{names:?} would be published, and are to be {CRATES:?}: publish = false says so"));
    }
    for package in packages {
        described(package)?;
        let called = |kind, name: &str| kind != DependencyKind::Development && name.starts_with("monolock-");
        let unpublished = package
            .dependencies
            .iter()
            .find(|dependency| called(dependency.kind, &dependency.name) && !names.contains(dependency.name.as_str()));
        if let Some(dependency) = unpublished {
            return Err(format!("{} needs {}, which is not published", package.name, dependency.name));
        }
        packed(package)?;
    }
    let mut call = Command::new(parts::cargo());
    call.args(["package", "--locked", "--allow-dirty", "--quiet"]).args(CRATES.map(|name| format!("--package={name}")));
    if !verify {
        call.arg("--no-verify");
    }
    // It says of each test that it stays in the repository.
    let (_, said) = output(&mut call)?;
    let warnings = said.lines().filter(|line| line.starts_with("warning: ") && !line.contains(": ignoring test "));
    let warnings: Vec<&str> = warnings.collect();
    if warnings.is_empty() { Ok(()) } else { Err(format!("cargo package: {}", warnings.join("; "))) }
}

/// A crate says all that a registry shows.
fn described(package: &Package) -> Result<(), String> {
    let missing = [
        ("description", package.description.is_none()),
        ("license", package.license.is_none()),
        ("repository", package.repository.is_none()),
        ("readme", package.readme.is_none()),
        ("rust-version", package.rust_version.is_none()),
        ("keywords", package.keywords.is_empty() || package.keywords.len() > MOST_WORDS),
        ("categories", package.categories.is_empty() || package.categories.len() > MOST_WORDS),
    ];
    let missing: Vec<&str> = missing.into_iter().filter_map(|(what, is_missing)| is_missing.then_some(what)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{} lacks {}", package.name, missing.join(", "))) }
}

/// A crate brings its sources, its licences and its readme, and no tests.
fn packed(package: &Package) -> Result<(), String> {
    let mut call = Command::new(parts::cargo());
    call.args(["package", "--list", "--locked", "--allow-dirty", "--quiet", "--package", package.name.as_str()]);
    let (listed, _) = output(&mut call)?;
    let listed: BTreeSet<&str> = listed.lines().collect();
    let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
    let (sources, _) = output(Command::new("git").args(["ls-files", "src"]).current_dir(folder))?;
    let wanted = sources.lines().chain(LICENCES).chain(["README.md", "Cargo.toml"]);
    let missing: Vec<&str> = wanted.filter(|file| !listed.contains(file)).collect();
    if !missing.is_empty() {
        return Err(format!("the package of {} lacks {}", package.name, missing.join(", ")));
    }
    match listed.iter().find(|file| file.starts_with("tests/")) {
        Some(file) => Err(format!("{file} is in the package of {}", package.name)),
        None => Ok(()),
    }
}

/// The Go module as the repository of its own has it, which is what others fetch.
fn go(folder: &Path) -> Result<(), String> {
    copy_of_git("clients/go", folder)?;
    let (module, _) = output(Command::new("go").args(["list", "-m"]).current_dir(folder))?;
    if module.trim() != "github.com/monolock-dev/monolock-go" {
        return Err(format!("the Go module calls itself {module}"));
    }
    if read(folder.join("go.mod"))?.contains("require") {
        return Err("the Go module needs others".to_owned());
    }
    run(Command::new("go").args(["vet", "./..."]).current_dir(folder))
}

/// What git knows of a folder.
fn copy_of_git(from: &str, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
    let copying =
        "git ls-files -z | tar --create --null --files-from=- --file=- | tar --extract --file=- --directory \"$0\"";
    run(Command::new("sh").arg("-c").arg(copying).arg(to).current_dir(from).stdin(Stdio::null()))
}

/// The package for Node.js: what is in it, and that it works where there is nothing else.
fn node(folder: &Path, serving: &Serving) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut pack = Command::new("npm");
    pack.args(["pack", "--json", "--loglevel=error", "--pack-destination"]).arg(folder).current_dir("clients/node");
    let (said, _) = output(&mut pack)?;
    let said: Value = serde_json::from_str(&said).map_err(|error| format!("npm pack said {said:?}: {error}"))?;
    let files = said[0]["files"].as_array().ok_or("npm pack does not say what it packed")?;
    let packed: BTreeSet<&str> = files.iter().filter_map(|file| file["path"].as_str()).collect();
    let (of_git, _) = output(Command::new("git").args(["ls-files"]).current_dir("clients/node"))?;
    let is_ours = |file: &&str| {
        file.starts_with("lib/") || file.starts_with("index.") || file.starts_with("LICENSE-") || *file == "README.md"
    };
    let wanted: BTreeSet<&str> = of_git.lines().filter(is_ours).chain(["package.json"]).collect();
    differ("the package for Node.js", &packed, &wanted)?;

    let archive = said[0]["filename"].as_str().ok_or("npm pack does not say what it made")?;
    let user = folder.join("user");
    fs::create_dir_all(&user).map_err(|error| format!("{}: {error}", user.display()))?;
    for (file, text) in [("package.json", "{}"), ("use.mjs", &read("testing/packages/use.mjs")?)] {
        fs::write(user.join(file), text).map_err(|error| format!("{file}: {error}"))?;
    }
    let install = ["install", "--offline", "--no-audit", "--no-fund", "--silent"];
    run(Command::new("npm").args(install).arg(folder.join(archive)).current_dir(&user))?;
    run(Command::new("node").args(["use.mjs", &serving.address]).current_dir(&user))
}

/// The packages for Python: the sources, the wheel made of them, and that it works where there is nothing else.
fn python(folder: &Path, serving: &Serving) -> Result<(), String> {
    let tools = folder.join("tools/bin/python");
    run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("tools")))?;
    run(Command::new(&tools).args(["-m", "pip", "install", "--quiet", "build>=1.2,<2", "twine>=6.1,<7"]))?;
    let made = folder.join("made");
    output(Command::new(&tools).args(["-m", "build", "--outdir"]).arg(&made).arg("clients/python"))?;
    let name = format!("monolock-{}", env!("CARGO_PKG_VERSION"));
    let (sources, wheel) = (made.join(format!("{name}.tar.gz")), made.join(format!("{name}-py3-none-any.whl")));
    run(Command::new(&tools)
        .args(["-m", "twine", "check", "--strict"])
        .args([&sources, &wheel])
        .stdout(Stdio::null()))?;

    let (of_git, _) = output(Command::new("git").arg("ls-files").current_dir("clients/python"))?;
    let (listed, _) = output(Command::new("tar").arg("--list").arg("--file").arg(&sources))?;
    let listed: BTreeSet<&str> = listed.lines().filter_map(|line| line.strip_prefix(&format!("{name}/"))).collect();
    let wanted: BTreeSet<&str> = of_git.lines().chain(["PKG-INFO"]).collect();
    differ("the sources for Python", &listed, &wanted)?;

    let (listed, _) = output(Command::new(&tools).args(["-m", "zipfile", "--list"]).arg(&wheel))?;
    let listed: BTreeSet<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let about = ["METADATA", "WHEEL", "RECORD", "licenses/LICENSE-MIT", "licenses/LICENSE-APACHE"];
    let about = about.map(|file| format!("{name}.dist-info/{file}"));
    let modules = of_git.lines().filter_map(|file| file.strip_prefix("src/"));
    let wanted: BTreeSet<&str> = modules.chain(about.iter().map(String::as_str)).collect();
    differ("the wheel for Python", &listed, &wanted)?;

    let user = folder.join("user/bin/python");
    run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("user")))?;
    run(Command::new(&user).args(["-m", "pip", "install", "--quiet", "--no-index"]).arg(&wheel))?;
    run(Command::new(&user).arg("-I").arg("testing/packages/use.py").arg(&serving.address))
}

fn differ(what: &str, is: &BTreeSet<&str>, wanted: &BTreeSet<&str>) -> Result<(), String> {
    let missing: Vec<_> = wanted.difference(is).collect();
    let more: Vec<_> = is.difference(wanted).collect();
    if missing.is_empty() && more.is_empty() {
        return Ok(());
    }
    Err(format!("{what} lacks {missing:?}, and has {more:?} that do not belong there"))
}

/// What `deny.toml` holds dependencies to.
fn cargo_deny(checks: &[&str]) -> Result<(), String> {
    let program = parts::tool("cargo-deny", CARGO_DENY)?;
    run(Command::new(program).args(["--workspace", "--locked", "check"]).args(checks))
}

/// A release's tag is its version's, and the changelog has a date for it.
fn tagged(tag: &str) -> Result<(), String> {
    let version = env!("CARGO_PKG_VERSION");
    if tag != format!("v{version}") {
        return Err(format!("the tag is {tag}, and the version {version}"));
    }
    let changelog = read("CHANGELOG.md")?;
    let heading = format!("## {version} - ");
    if changelog.lines().any(|line| line.starts_with(&heading)) {
        return Ok(());
    }
    Err(format!("CHANGELOG.md has no line that begins with {heading:?} and a date"))
}
