//! The page on deployment: the commands of its section on containers, run in their order.

use std::fs;
use std::process::Command;

use crate::engine::{Engine, IMAGE, build_command, outcome, root};
use crate::support::Ended;

#[test]
fn the_commands_of_the_page_run() {
    let engine = Engine::with_image();
    let page = fs::read_to_string(root().join("docs/deployment.md")).unwrap();
    let (_, section) = page.split_once("\n## Container\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 3, "{blocks:?}");
    assert!(blocks[0].starts_with("cargo xtask image\n"), "{blocks:?}");
    for block in blocks {
        // The binary was made before, and takes minutes where it was not.
        let block = block.replace("cargo xtask image\n", &format!("{}\n", build_command(IMAGE)));
        let mut shell = Command::new("sh");
        engine.at_home(&mut shell);
        let Ended { status, stdout, stderr } = outcome(shell.args(["-euc", &block]));
        assert_eq!(status, 0, "{block}\n{stdout}{stderr}");
    }
}
