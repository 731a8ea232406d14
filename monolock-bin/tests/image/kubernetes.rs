//! The pod of Kubernetes, played by podman: the settings and the rights that a cluster would give it.

use std::fs;

use crate::engine::{Engine, IMAGE, outcome, root, until};
use crate::support::Ended;

#[test]
fn podman_plays_the_pod_of_kubernetes() {
    let engine = Engine::with_image();
    let manifest = root().join("testing/kubernetes/pod.yaml");
    let text = fs::read_to_string(&manifest).unwrap();
    let image = text.lines().find_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("image: ")).unwrap();
    // The manifest has the name by which a registry knows it.
    engine.say(["tag", IMAGE, image]);
    engine.say(["kube", "play", manifest.to_str().unwrap()]);

    let container = "monolock-monolock";
    let exec = |command: &[&str]| {
        outcome(&mut engine.podman(["exec", container, "/monolock"].into_iter().chain(command.iter().copied())))
    };
    until(|| exec(&["healthcheck"]).status == 0, || engine.say(["logs", container]));
    // The longest lease is that of the manifest.
    let Ended { status, stderr, .. } =
        exec(&["run", "--try", "--lease", "30001ms", "jobs", "--", "/monolock", "--version"]);
    assert!(status == 122 && stderr.contains("lease too long"), "{status}: {stderr}");

    let state = engine.inspect(container);
    assert_eq!(state["HostConfig"]["ReadonlyRootfs"], true);
    let status = fs::read_to_string(format!("/proc/{}/status", state["State"]["Pid"])).unwrap();
    let is = |name: &str, value: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t")).unwrap();
        assert_eq!(line.split('\t').next(), Some(value), "{name}");
    };
    is("Uid", "65532");
    is("Gid", "65532");
    is("CapEff", "0000000000000000");
    is("CapBnd", "0000000000000000");
    is("NoNewPrivs", "1");
    is("Seccomp", "2");
    engine.say(["kube", "down", manifest.to_str().unwrap()]);
}
