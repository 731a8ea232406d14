//! Podman, by itself: its storage, its configuration and its networks are in a folder of the tests.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Ended, outcome_within, until_within};

/// Podman may be at work for longer than a server may; builds and starts of whole systems are among it.
const PATIENCE: Duration = Duration::from_mins(5);

/// Runs a process to its end, whether it is podman's work or none.
pub(crate) fn outcome(command: &mut Command) -> Ended {
    outcome_within(PATIENCE, command)
}

/// Waits until something is so; says how it is instead, if it never is.
#[track_caller]
pub(crate) fn until(is_so: impl FnMut() -> bool, or: impl Fn() -> String) {
    until_within(PATIENCE, is_so, or);
}

/// What the tests call the image.
pub(crate) const IMAGE: &str = "monolock";

/// Podman, for one test at a time: they share ports and networks.
pub(crate) struct Engine {
    pub(crate) folder: PathBuf,
    _turn: MutexGuard<'static, Turns>,
}

/// What is there already.
struct Turns {
    has_image: bool,
}

static TURNS: Mutex<Turns> = Mutex::new(Turns { has_image: false });

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The command that builds the image. `cargo xtask test image` is that program, and has made the binary.
pub(crate) fn build_command(tag: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_monolock")).parent().unwrap();
    let binary = programs.parent().unwrap().join("dist/monolock");
    format!("'{}' image --tag {tag} --binary '{}'", programs.join("xtask").display(), binary.display())
}

/// The first of these programs that is there.
fn first_of(programs: &[&'static str]) -> &'static str {
    let path = std::env::var_os("PATH").unwrap();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
    let is_there = |program: &&&str| directories.iter().any(|directory| directory.join(program).is_file());
    programs.iter().find(is_there).unwrap_or_else(|| panic!("none of {programs:?} is installed"))
}

impl Engine {
    /// With the image, which the first test builds.
    pub(crate) fn with_image() -> Self {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("podman");
        let has_image = turns.has_image;
        turns.has_image = true;
        let engine = Self { folder, _turn: turns };
        if has_image {
            // What a test that failed has left behind.
            engine.clear();
        } else {
            engine.set_up();
            engine.build();
        }
        engine
    }

    fn set_up(&self) {
        let Self { folder, .. } = self;
        if folder.exists() {
            fs::remove_dir_all(folder).unwrap();
        }
        fs::create_dir_all(folder.join("networks")).unwrap();
        let place = folder.display();
        // Limits that are not above the machine's, control groups without a systemd, locks in files and not in the
        // machine's shared memory.
        let containers = format!(
            "[containers]\ndefault_ulimits = []\nlog_driver = \"k8s-file\"\n\
             [engine]\nruntime = \"{}\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nlock_type = \"file\"\n\
             tmp_dir = \"{place}/run/libpod\"\n\
             [network]\nnetwork_backend = \"netavark\"\nnetwork_config_dir = \"{place}/networks\"\n",
            first_of(&["runc", "crun"])
        );
        let storage =
            format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{place}/storage\"\nrunroot = \"{place}/run\"\n");
        fs::write(folder.join("containers.conf"), containers).unwrap();
        fs::write(folder.join("storage.conf"), storage).unwrap();
    }

    /// Tells a command where this podman lives.
    pub(crate) fn at_home(&self, command: &mut Command) {
        command.env("CONTAINERS_CONF", self.folder.join("containers.conf"));
        command.env("CONTAINERS_STORAGE_CONF", self.folder.join("storage.conf"));
        let mut path = std::env::var_os("PATH").unwrap();
        path.push(":/usr/sbin:/sbin");
        command.env("PATH", path).current_dir(root());
    }

    pub(crate) fn podman<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new("podman");
        self.at_home(&mut command);
        command.args(arguments);
        command
    }

    /// What podman says, if it succeeds; without the line feed at its end.
    #[track_caller]
    pub(crate) fn say<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let mut command = self.podman(arguments);
        let Ended { status, stdout, stderr } = outcome(&mut command);
        assert_eq!(status, 0, "{command:?}: {stdout}{stderr}");
        stdout.trim_end().to_owned()
    }

    /// Builds the image as a person does.
    #[track_caller]
    pub(crate) fn build(&self) {
        let mut command = Command::new("sh");
        self.at_home(&mut command);
        let Ended { status, stdout, stderr } = outcome(command.args(["-c", &build_command(IMAGE)]));
        assert_eq!(status, 0, "{stdout}{stderr}");
    }

    /// Runs a container in the background.
    #[track_caller]
    pub(crate) fn run<'a>(&self, flags: impl IntoIterator<Item = &'a str>, command: &[&'a str]) -> Container<'_> {
        let mut arguments = vec!["run", "--detach"];
        arguments.extend(flags);
        arguments.push(IMAGE);
        arguments.extend(command);
        let id = self.say(arguments);
        let container = Container { engine: self, id };
        container.await_ready();
        container
    }

    pub(crate) fn inspect(&self, what: &str) -> Value {
        let said: Value = serde_json::from_str(&self.say(["inspect", what])).unwrap();
        said[0].clone()
    }

    /// Whether this machine lets podman limit memory.
    pub(crate) fn limits_memory(&self) -> bool {
        self.say(["info", "--format", "{{.Host.CgroupControllers}}"]).contains("memory")
    }

    pub(crate) fn clear(&self) {
        let _ = outcome(&mut self.podman(["rm", "--all", "--force", "--time", "0"]));
        let _ = outcome(&mut self.podman(["network", "prune", "--force"]));
        let _ = outcome(&mut self.podman(["volume", "prune", "--force"]));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A container that runs.
pub(crate) struct Container<'a> {
    engine: &'a Engine,
    pub(crate) id: String,
}

impl Container<'_> {
    #[track_caller]
    pub(crate) fn await_ready(&self) {
        let is_ready = || self.exec(&["/monolock", "healthcheck"]).status == 0;
        until(is_ready, || format!("the server is not ready:\n{}", self.log()));
    }

    pub(crate) fn exec(&self, command: &[&str]) -> Ended {
        let arguments = ["exec", &self.id].into_iter().chain(command.iter().copied());
        outcome(&mut self.engine.podman(arguments))
    }

    pub(crate) fn log(&self) -> String {
        let Ended { stdout, stderr, .. } = outcome(&mut self.engine.podman(["logs", &self.id]));
        stdout + &stderr
    }

    /// Where a port of the container is met.
    #[track_caller]
    pub(crate) fn published(&self, port: u16) -> SocketAddr {
        self.engine.say(["port", &self.id, &port.to_string()]).lines().next().unwrap().parse().unwrap()
    }

    pub(crate) fn inspect(&self) -> Value {
        self.engine.inspect(&self.id)
    }

    /// Its process, as this machine numbers it.
    pub(crate) fn pid(&self) -> u64 {
        self.inspect()["State"]["Pid"].as_u64().unwrap()
    }

    #[track_caller]
    pub(crate) fn kill(&self, signal: &str) {
        self.engine.say(["kill", "--signal", signal, &self.id]);
    }

    /// Waits for its end, and says its status.
    #[track_caller]
    pub(crate) fn wait(&self) -> String {
        self.engine.say(["wait", &self.id])
    }
}
