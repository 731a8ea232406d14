//! The parts of `cargo xtask test`, one row each, cheapest first.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// One check of the repository.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: &'static [Need],
    /// What is called, one after the other.
    steps: &'static [Step],
}

/// One call of a program.
#[derive(Debug)]
struct Step {
    program: Program,
    arguments: &'static [&'static str],
    /// Where it is called, from the root of the repository.
    directory: &'static str,
    /// A variable that is set for it.
    variable: Option<(&'static str, &'static str)>,
}

/// What is called.
#[derive(Debug)]
enum Program {
    /// The cargo that runs this.
    Cargo,
    /// A program of the search path.
    Named(&'static str),
    /// A program that an earlier step has put into the folder `target`.
    Built(&'static str),
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
    /// This call of a program succeeds.
    Call(&'static str, &'static [&'static str]),
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
const SYSTEMD: Need =
    Need { tool: "systemd-analyze", probe: Probe::Program("systemd-analyze"), install: "apt-get install systemd" };

const HAPROXY: Need = Need { tool: "haproxy", probe: Probe::Program("haproxy"), install: "apt-get install haproxy" };
const KEEPALIVED: Need =
    Need { tool: "keepalived", probe: Probe::Program("keepalived"), install: "apt-get install keepalived" };

pub(crate) const GO: Need = Need { tool: "go", probe: Probe::Program("go"), install: "apt-get install golang" };
const PYTHON: Need = Need {
    tool: "python3",
    probe: Probe::Call("python3", &["-c", "import ensurepip, venv"]),
    install: "apt-get install python3 python3-venv",
};
pub(crate) const NODE: Need = Need { tool: "npm", probe: Probe::Program("npm"), install: "apt-get install nodejs npm" };

const IP: Need = Need { tool: "ip", probe: Probe::Program("ip"), install: "apt-get install iproute2" };
const PACKET_FILTER: Need = Need {
    tool: "nft or iptables",
    probe: Probe::Call("sh", &["-c", "PATH=$PATH:/usr/sbin; command -v nft || command -v iptables"]),
    install: "apt-get install nftables",
};
/// Root may make them, and others where users have namespaces.
const NAMESPACES: Need = Need {
    tool: "a namespace of one's own",
    probe: Probe::Call(
        "sh",
        &["-c", "run() { unshare \"$@\" --mount --net --pid --fork true; }; run || run --user --map-root-user"],
    ),
    install: "sudo -s",
};
/// Containers with ports and networks, as a server runs them.
const ROOT: Need = Need {
    tool: "a namespace of root's",
    probe: Probe::Call("unshare", &["--mount", "--net", "--pid", "--fork", "true"]),
    install: "sudo -s",
};
const DPKG: Need = Need { tool: "dpkg", probe: Probe::Program("dpkg"), install: "apt-get install dpkg" };
const VALGRIND: Need =
    Need { tool: "valgrind", probe: Probe::Program("valgrind"), install: "apt-get install valgrind" };
const PODMAN: Need = Need {
    tool: "podman with its networks, and podman-compose",
    probe: Probe::Call(
        "sh",
        &[
            "-euc",
            "PATH=$PATH:/usr/sbin; for tool in podman podman-compose catatonit iptables; do command -v $tool; done
             command -v runc || command -v crun; test -x /usr/lib/podman/netavark; test -x /usr/lib/podman/aardvark-dns",
        ],
    ),
    install: "apt-get install podman podman-compose catatonit runc netavark aardvark-dns iptables",
};

const CHROMIUM: Need = Need {
    tool: "chromium",
    probe: Probe::Call("sh", &["-c", "command -v chromium || command -v chromium-browser || command -v google-chrome"]),
    install: "apt-get install chromium fonts-dejavu-core",
};

/// The server that the clients' tests run against.
const BUILD_SERVER: Step = cargo_with(&["build", "--package", "monolock-bin", "--locked"]);
const BUILD_SUITE: Step = cargo_with(&["build", "--package", "monolock-conformance", "--bins", "--locked"]);

/// The suite against this driver, each case twice.
macro_rules! suite {
    ($($driver:literal),+) => {
        built("debug/monolock-conformance", &["--repeat", "2", "--jobs", "12", "--brief", "--", $($driver),+], ".")
    };
}

/// A folder for packages of the Python of the search path. What another one has left there goes.
macro_rules! venv {
    ($folder:literal) => {
        call(
            "sh",
            &[
                "-euc",
                "who='import sys; print(sys.base_prefix, sys.version)'
                 [ \"$(\"$0/bin/python\" -c \"$who\" 2>&1)\" = \"$(python3 -c \"$who\")\" ] || rm -rf \"$0\"
                 exec python3 -m venv \"$0\"",
                $folder,
            ],
            ".",
        )
    };
}

const GO_FOLDER: &str = "clients/go";
const PYTHON_FOLDER: &str = "clients/python";
const NODE_FOLDER: &str = "clients/node";
const BROWSER_FOLDER: &str = "testing/browser";
const RENDER_FOLDER: &str = "testing/kubernetes/render";

pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "fmt",
        about: "the sources are formatted",
        needs: &[RUSTFMT],
        steps: &[cargo_with(&["fmt", "--all", "--check"])],
    },
    Part {
        name: "clippy",
        about: "no lint complains, of any target",
        needs: &[CLIPPY],
        steps: &[cargo_with(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])],
    },
    Part {
        name: "tests",
        about: "unit and integration tests, examples",
        needs: &[],
        // The modules in the libraries of monolock-model and monolock-capacity have their unit tests in monolock-net.
        steps: &[
            cargo_with(&[
                "test",
                "--workspace",
                "--exclude",
                "monolock-model",
                "--exclude",
                "monolock-capacity",
                "--lib",
                "--bins",
                "--tests",
                "--examples",
                "--locked",
            ]),
            cargo_with(&["test", "--package", "monolock-capacity", "--test", "capacity", "--locked"]),
        ],
    },
    Part {
        name: "model",
        about: "the server's concurrency, in thousands of interleavings",
        needs: &[],
        steps: &[cargo_with(&["test", "--package", "monolock-model", "--test", "model", "--locked"])],
    },
    Part {
        name: "instructions",
        about: "no operation of the core takes more instructions than it did",
        needs: &[VALGRIND],
        steps: &[built("debug/xtask", &["instructions"], ".")],
    },
    Part {
        name: "operations",
        about: "the server among the tools of those who run it",
        needs: &[OPENSSL, PROMETHEUS, PROMTOOL, LOGROTATE, SYSTEMD, IP, HAPROXY, KEEPALIVED],
        steps: &[cargo_with(&[
            "test",
            "--workspace",
            "--features",
            "monolock-bin/outside-tools",
            "--test",
            "operations",
            "--locked",
        ])],
    },
    Part {
        name: "image",
        about: "the container image, built twice and run by podman",
        needs: &[PODMAN, ROOT, IP, OPENSSL],
        steps: &[
            built("debug/xtask", &["dist"], "."),
            cargo_with(&[
                "test",
                "--package",
                "monolock-bin",
                "--features",
                "outside-tools",
                "--test",
                "image",
                "--locked",
                "--no-run",
            ]),
            // Networks, mounts and processes that podman leaves behind go with the namespaces.
            call(
                "unshare",
                &[
                    "--mount",
                    "--net",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "--mount-proc",
                    "sh",
                    "-euc",
                    "PATH=$PATH:/usr/sbin:/sbin; ip link set lo up; mount -t tmpfs tmpfs /run
                     cargo test --package monolock-bin --features outside-tools --test image --locked --offline",
                ],
                ".",
            ),
        ],
    },
    Part {
        name: "mutants",
        about: "each planted bug of the catalogue fits the sources, and each finder is there",
        needs: &[],
        steps: &[cargo_with(&["run", "--quiet", "--package", "xtask", "--locked", "--", "mutants", "--check"])],
    },
    Part {
        name: "go",
        about: "the Go client, with the race detector",
        needs: &[GO],
        steps: &[
            BUILD_SERVER,
            call(
                "sh",
                &["-c", "unformatted=$(gofmt -l .) && echo \"$unformatted\" && test -z \"$unformatted\""],
                GO_FOLDER,
            ),
            call("go", &["vet", "./..."], GO_FOLDER),
            call("go", &["test", "-race", "./..."], GO_FOLDER),
            call("go", &["vet", "./..."], "clients/go/examples/quickstart"),
            call("go", &["vet", "./..."], "clients/go/examples/fencing"),
            call("go", &["test", "./..."], "clients/go/examples/fencing"),
        ],
    },
    Part {
        name: "python",
        about: "the Python client, and its types",
        needs: &[PYTHON],
        steps: &[
            BUILD_SERVER,
            venv!("target/python"),
            built("python/bin/python", &["-m", "pip", "install", "--quiet", "mypy>=1.8,<3", "pytest>=7,<10"], "."),
            built("python/bin/python", &["-m", "mypy"], PYTHON_FOLDER),
            built("python/bin/python", &["-m", "pytest", "--quiet"], PYTHON_FOLDER),
        ],
    },
    Part {
        name: "node",
        about: "the Node.js client, and its types",
        needs: &[NODE],
        steps: &[
            BUILD_SERVER,
            call("npm", &["ci", "--no-audit", "--no-fund"], NODE_FOLDER),
            call("npm", &["test"], NODE_FOLDER),
        ],
    },
    Part {
        name: "browser",
        about: "the page of the admin API in a real browser, against the real server",
        needs: &[NODE, CHROMIUM],
        steps: &[
            BUILD_SERVER,
            call("npm", &["ci", "--no-audit", "--no-fund"], BROWSER_FOLDER),
            call("npm", &["test"], BROWSER_FOLDER),
        ],
    },
    Part {
        name: "conformance",
        about: "the clients of all four languages pass the suite, twice in a row",
        needs: &[GO, PYTHON, NODE],
        steps: &[
            BUILD_SUITE,
            venv!("target/python"),
            call("go", &["build", "-o", "../../target/go-driver", "./cmd/conformance-driver"], GO_FOLDER),
            suite!("target/debug/rust-driver"),
            suite!("target/go-driver"),
            suite!("target/python/bin/python", "clients/python/conformance/driver.py"),
            suite!("target/python/bin/python", "clients/python/conformance/driver.py", "--async"),
            suite!("node", "clients/node/conformance/driver.mjs"),
        ],
    },
    Part {
        name: "simulation",
        about: "the engine and the client's machine in worlds full of faults: fixed seeds, then fresh ones",
        needs: &[],
        steps: &[
            cargo_with(&["build", "--package", "monolock-sim", "--release", "--locked"]),
            built("release/monolock-sim", &["--seeds", "30000"], "."),
            built("release/monolock-sim", &["--seeds", "10000", "--fresh"], "."),
        ],
    },
    Part {
        name: "dist",
        about: "the static binary and what is handed out with it",
        needs: &[NAMESPACES, PYTHON],
        steps: &[
            cargo_with(&["xtask", "dist", "--check"]),
            venv!("target/sbom"),
            built(
                "sbom/bin/python",
                &["-m", "pip", "install", "--quiet", "cyclonedx-python-lib[json-validation]>=11,<12"],
                ".",
            ),
            built("sbom/bin/python", &["testing/packages/sbom.py", "target/dist"], "."),
        ],
    },
    Part {
        name: "deb",
        about: "the Debian package: installed, used and removed",
        needs: &[ROOT, SYSTEMD, IP, DPKG],
        steps: &[cargo_with(&["xtask", "deb", "--check"])],
    },
    Part {
        name: "publish",
        about: "what goes to the registries of each language",
        needs: &[GO, PYTHON, NODE],
        steps: &[BUILD_SERVER, cargo_with(&["xtask", "packages"])],
    },
    Part {
        name: "chaos",
        about: "ninety seconds of faults on real processes",
        needs: &[NAMESPACES, IP, PACKET_FILTER, GO, PYTHON, NODE],
        steps: &[cargo_with(&["xtask", "chaos", "--minutes", "1.5"])],
    },
    Part {
        name: "failover",
        about: "an address moves between two real servers under real clients",
        needs: &[NAMESPACES, IP, PACKET_FILTER, GO, PYTHON, NODE],
        steps: &[cargo_with(&[
            "xtask",
            "chaos",
            "--minutes",
            "0.35",
            "--class",
            "failover-crash",
            "--class",
            "failover-cut",
        ])],
    },
    Part {
        name: "kubernetes",
        about: "the manifests and the Helm chart are valid, agree, and fit the server",
        needs: &[GO, PYTHON],
        steps: &[
            BUILD_SERVER,
            call("go", &["build", "-o", "../../../target/kubernetes-render", "."], RENDER_FOLDER),
            venv!("target/kubernetes"),
            built("kubernetes/bin/python", &["-m", "pip", "install", "--quiet", "kubernetes-validate==1.37.0"], "."),
            built("kubernetes/bin/python", &["-m", "unittest", "--quiet", "testing/kubernetes/test_manifests.py"], "."),
        ],
    },
    Part {
        name: "doctests",
        about: "the examples in the documentation",
        needs: &[],
        steps: &[cargo_with(&[
            "test",
            "--workspace",
            "--exclude",
            "monolock-model",
            "--exclude",
            "monolock-capacity",
            "--doc",
            "--locked",
        ])],
    },
    Part {
        name: "docs",
        about: "the documentation builds without a warning",
        needs: &[],
        steps: &[Step {
            variable: Some(("RUSTDOCFLAGS", "-D warnings")),
            ..cargo_with(&["doc", "--workspace", "--no-deps", "--locked"])
        }],
    },
];

const fn cargo_with(arguments: &'static [&'static str]) -> Step {
    Step { program: Program::Cargo, arguments, directory: ".", variable: None }
}

const fn call(name: &'static str, arguments: &'static [&'static str], directory: &'static str) -> Step {
    Step { program: Program::Named(name), arguments, directory, variable: None }
}

const fn built(path: &'static str, arguments: &'static [&'static str], directory: &'static str) -> Step {
    Step { program: Program::Built(path), arguments, directory, variable: None }
}

impl Part {
    /// Runs it, with its output shown.
    ///
    /// # Errors
    /// What was called and how it ended.
    pub(crate) fn run(&self) -> Result<(), String> {
        self.steps.iter().try_for_each(Step::run)
    }
}

impl Step {
    fn run(&self) -> Result<(), String> {
        let Self { program, arguments, directory, variable } = self;
        let mut command = match program {
            Program::Cargo => Command::new(cargo()),
            Program::Named(name) => Command::new(name),
            Program::Built(path) => Command::new(target().join(path)),
        };
        command.args(*arguments).current_dir(directory).envs(*variable);
        run(&mut command)
    }
}

impl Need {
    pub(crate) fn is_met(&self) -> bool {
        match self.probe {
            Probe::Cargo(arguments) => succeeds(Command::new(cargo()).args(arguments)),
            Probe::Call(program, arguments) => succeeds(Command::new(program).args(arguments)),
            Probe::Program(name) => {
                let path = env::var_os("PATH").unwrap_or_default();
                env::split_paths(&path).chain(["/usr/sbin".into()]).any(|directory| directory.join(name).is_file())
            }
        }
    }
}

/// Whether a call succeeds, whatever it says.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
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

/// Where cargo builds, and whatever else is made on the way lies.
pub(crate) fn target() -> PathBuf {
    let root = env::current_dir().unwrap_or_default();
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
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

/// Runs a command, and tells what it said on stdout and on stderr.
///
/// # Errors
/// What was called, how it ended, and what it said on stderr.
pub(crate) fn output(command: &mut Command) -> Result<(String, String), String> {
    let called = format!("{command:?}");
    let output = command.output().map_err(|error| format!("cannot start {called}: {error}"))?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
    if output.status.success() {
        Ok((stdout, stderr))
    } else {
        Err(format!("{called} ended with {}: {stderr}", output.status))
    }
}

/// A tool that cargo builds, in this version; it is built where it is not there.
///
/// # Errors
/// What was called and how it ended.
pub(crate) fn tool(name: &str, version: &str) -> Result<PathBuf, String> {
    let folder = target().join(format!("tools/{name}-{version}"));
    let program = folder.join("bin").join(name);
    if succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    // Without the optimiser it is there sooner.
    let mut install = Command::new(cargo());
    install.args(["install", name, "--version", version, "--locked", "--debug", "--quiet", "--root"]).arg(&folder);
    let built = target().join("tools/built");
    run(install.arg("--target-dir").arg(&built))?;
    // It is many times the size of the tool, and of no more use. What cannot be removed does no harm.
    let _ = fs::remove_dir_all(&built);
    Ok(program)
}
