//! The page on TLS: its commands, run in their order with the real openssl.

use std::fs;

use crate::stage::{Block, Stage, blocks, root};

#[test]
fn the_commands_of_the_page_make_certificates_serve_and_rotate() {
    let page = fs::read_to_string(root().join("docs/tls.md")).unwrap();
    let blocks = blocks(&page);
    let commands: Vec<&Block> = blocks.iter().filter(|block| block.language == "sh").collect();
    let [authority, server, client, serve, rotate] = &commands[..] else { panic!("{commands:?}") };
    let stage = Stage::start();
    for block in [authority, server, client] {
        // What openssl says on the way is no complaint.
        assert_eq!(stage.run(&block.text).status, 0, "{}", block.text);
    }
    stage.expect_success("docs/tls.md", serve);
    for file in ["server.key", "server.pem"] {
        fs::copy(stage.path(file), stage.path(&format!("{file}.new"))).unwrap();
    }
    stage.expect_success("docs/tls.md", rotate);
    stage.server.process.stderr_line("reloaded");
}
