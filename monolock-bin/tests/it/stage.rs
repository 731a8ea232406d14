//! The fenced blocks of a page, and a stage on which its shell commands run as a reader would run them: a folder of
//! its own, a server of its own with a lock that is held and waited for, and the addresses of the page standing for
//! that server's.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{Ended, Server, Session, logged_address, monolock, outcome, words};

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// The line of its first fence, from 1.
    pub(crate) line: usize,
    /// The first word behind the fence; empty for none.
    pub(crate) language: String,
    /// What a comment in the line before says.
    pub(crate) marker: Option<Marker>,
    pub(crate) text: String,
}

/// Why a block is not run with the others.
#[derive(Debug)]
pub(crate) enum Marker {
    /// `<!-- not run: REASON -->`
    NotRun(String),
    /// `<!-- run by: TEST -->`
    RunBy(String),
}

/// All blocks of a page, in their order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    let mut before = "";
    while let Some((line, fence)) = lines.next() {
        let Some(info) = fence.trim_start().strip_prefix("```") else {
            before = fence;
            continue;
        };
        let indent = fence.len() - fence.trim_start().len();
        let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let text = inside.map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect();
        let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
        blocks.push(Block { line, language, marker: marker(before), text });
        before = "";
    }
    blocks
}

fn marker(line: &str) -> Option<Marker> {
    let comment = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let reason = comment.strip_prefix("not run:").map(|reason| Marker::NotRun(reason.trim().to_owned()));
    reason.or_else(|| Some(Marker::RunBy(comment.strip_prefix("run by:")?.trim().to_owned())))
}

/// Whether a file's name ends so.
pub(crate) fn has_extension(path: impl AsRef<Path>, extension: &str) -> bool {
    path.as_ref().extension().is_some_and(|found| found == extension)
}

/// The folder that everything is in.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All pages with blocks that a reader may want to run, by their paths from the root.
pub(crate) fn pages() -> BTreeMap<String, String> {
    let root = root();
    let mut paths = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).to_vec();
    paths.extend(["bin", "client", "core", "net"].map(|package| format!("monolock-{package}/README.md")));
    for (folder, is_of_folders) in [("docs", false), ("clients", true), ("testing", true), ("deploy", true)] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            paths.push(if is_of_folders { format!("{folder}/{name}/README.md") } else { format!("{folder}/{name}") });
        }
    }
    let pages = paths.into_iter().filter(|path| has_extension(path, "md"));
    pages.filter_map(|path| Some((path.clone(), fs::read_to_string(root.join(path)).ok()?))).collect()
}

/// Makes a script that can be run.
///
/// A process of its own writes it: what this one has open for writing, a process that another test starts in this very
/// moment has open too, and nobody may run a file that somebody writes.
pub(crate) fn put_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-euc", "cat >\"$0\"; chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

/// In the place of the program: a server takes free ports, and is stopped in order once it serves.
const WRAPPER: &str = r#"#!/bin/sh
case ${1-} in
-h | --help | -V | --version) exec "$REAL_MONOLOCK" "$@" ;;
'' | -* | serve) ;;
*) exec "$REAL_MONOLOCK" "$@" ;;
esac
flag=
for argument in "$@"; do
    shift
    case $flag:$argument in
    --*listen:unix:* | --*listen:0.0.0.0:7071) ;;
    --*listen:*) argument=127.0.0.1:0 ;;
    esac
    flag=$argument
    set -- "$@" "$argument"
done
log=$(mktemp -u "$STAGE/log.XXXXXX")
mkfifo "$log"
"$REAL_MONOLOCK" "$@" --listen 127.0.0.1:0 2>"$log" &
server=$!
said=
while read -r line; do
    said="$said$line
"
    case $line in *listening*) kill -TERM "$server" ;; esac
done <"$log"
rm "$log"
wait "$server"
status=$?
[ "$status" = 0 ] || printf %s "$said" >&2
exit "$status"
"#;

pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) server: Server,
    admin: SocketAddr,
    ops: SocketAddr,
    _claims: [Session; 2],
}

impl Stage {
    pub(crate) fn start() -> Self {
        let flags = "--listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
        let server = Server::start_with(monolock(words(flags)));
        let admin = logged_address(&server.process.stderr_line("serving the admin API"));
        let ops = logged_address(&server.process.stderr_line("serving the ops endpoints"));
        let claims = [server.hold("nightly/import"), server.queue("nightly/import")];
        let stage = Self { folder: tempfile::tempdir().unwrap(), server, admin, ops, _claims: claims };
        for folder in ["bin", "lib", "log", "run"] {
            fs::create_dir(stage.path(folder)).unwrap();
        }
        stage.put_program("bin/monolock", WRAPPER);
        // Whoever looks for a server by name finds this one and no other of the machine.
        stage.put_program("bin/pidof", "#!/bin/sh\necho \"$STAGED_SERVER\"\n");
        stage.put_program(
            "import.sh",
            "#!/bin/sh\ntest \"$MONOLOCK_LOCK\" = nightly-import && test \"$MONOLOCK_TOKEN\" -gt 0\n",
        );
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn put_program(&self, name: &str, text: &str) {
        put_program(&self.path(name), text);
    }

    /// Runs commands as they stand on a page.
    pub(crate) fn run(&self, commands: &str) -> Ended {
        let folder = self.folder.path().display();
        let mut commands = commands.to_owned();
        for (address, port) in [(self.server.address, 7070), (self.admin, 7071), (self.ops, 7072)] {
            for host in ["127.0.0.1", "localhost"] {
                commands = commands.replace(&format!("{host}:{port}"), &address.to_string());
            }
        }
        for (of_the_system, own) in
            [("/var/lib/monolock", "lib"), ("/var/log/monolock", "log"), ("/run/monolock", "run")]
        {
            commands = commands.replace(of_the_system, &format!("{folder}/{own}"));
        }
        let program = monolock(words(""));
        let mut shell = Command::new("sh");
        for (variable, _) in program.get_envs() {
            shell.env_remove(variable);
        }
        let own_path = env::var_os("PATH").unwrap();
        let path = env::join_paths([self.path("bin")].into_iter().chain(env::split_paths(&own_path))).unwrap();
        shell.env("PATH", path).env("REAL_MONOLOCK", program.get_program()).env("STAGE", self.folder.path());
        shell.env("STAGED_SERVER", self.server.process.pid.to_string());
        for (variable, address) in
            [("SERVER", self.server.address), ("ADMIN_ADDRESS", self.admin), ("OPS_ADDRESS", self.ops)]
        {
            shell.env(format!("MONOLOCK_{variable}"), address.to_string());
        }
        outcome(shell.args(["-euc", &commands]).current_dir(self.folder.path()))
    }

    /// Runs a block, which has to succeed and to have nothing to complain about.
    #[track_caller]
    pub(crate) fn expect_success(&self, page: &str, block: &Block) -> String {
        let Ended { status, stdout, stderr } = self.run(&block.text);
        assert_eq!((status, stderr.as_str()), (0, ""), "{page}:{}:\n{}{stdout}", block.line, block.text);
        stdout
    }
}
