//! The page on TLS: its commands, run in their order with the real openssl.

use std::fs;

use crate::stage::{Block, Stage, blocks, root};
use crate::support::{Server, monolock};

#[test]
fn the_commands_of_the_page_make_certificates_serve_and_rotate() {
    let page = fs::read_to_string(root().join("docs/tls.md")).unwrap();
    let blocks = blocks(&page);
    let commands: Vec<&Block> = blocks.iter().filter(|block| block.language == "sh").collect();
    let [authority, server, client, serve, claim, rotate] = &commands[..] else { panic!("{commands:?}") };
    let stage = Stage::start();
    for block in [authority, server, client] {
        // What openssl says on the way is no complaint.
        assert_eq!(stage.run(&block.text).status, 0, "{}", block.text);
    }
    stage.expect_success("docs/tls.md", serve);
    let mut with_tls = monolock(["--listen", "127.0.0.1:0"]);
    for (flag, file) in [("--tls-cert", "server.pem"), ("--tls-key", "server.key"), ("--tls-client-ca", "ca.pem")] {
        with_tls.arg(flag).arg(stage.path(file));
    }
    let with_tls = Server::start_with(with_tls);
    let claimed = stage.run(&claim.text.replace("localhost:7070", &with_tls.address.to_string()));
    assert_eq!((claimed.status, claimed.stderr.as_str()), (0, ""), "{}", claim.text);
    for file in ["server.key", "server.pem"] {
        fs::copy(stage.path(file), stage.path(&format!("{file}.new"))).unwrap();
    }
    stage.expect_success("docs/tls.md", rotate);
    stage.server.process.stderr_line("reloaded");
}
