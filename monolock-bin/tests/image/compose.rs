//! `deploy/compose.yaml`, run by podman-compose.

use std::process::Command;

use crate::engine::{Engine, outcome, until};
use crate::support::{Ended, Session};

#[test]
fn the_composition_comes_up_healthy_and_goes_down() {
    let engine = Engine::with_image();
    let compose = |words: &str| {
        let mut command = Command::new("podman-compose");
        engine.at_home(&mut command);
        command.args(["--file", "deploy/compose.yaml"]).args(words.split_whitespace());
        let Ended { status, stdout, stderr } = outcome(&mut command);
        assert_eq!(status, 0, "{words}: {stdout}{stderr}");
        stdout
    };
    compose("up --detach");
    let name = engine.say(["ps", "--format", "{{.Names}}"]);
    let is_healthy = || outcome(&mut engine.podman(["healthcheck", "run", &name])).status == 0;
    until(is_healthy, || format!("{name} is not healthy: {:?}", outcome(&mut engine.podman(["logs", &name]))));
    let about = engine.inspect(&name);
    let host = &about["HostConfig"];
    assert_eq!((&host["ReadonlyRootfs"], &host["RestartPolicy"]["Name"]), (&true.into(), &"unless-stopped".into()));
    assert_eq!(about["BoundingCaps"].as_array().map_or(0, Vec::len), 0, "{about}");
    Session::connect(([127, 0, 0, 1], 7070).into()).acquire("jobs", 1000);
    compose("down");
    assert_eq!(engine.say(["ps", "--all", "--quiet"]), "");
}
