//! The command as its users meet it: the real executable, real signals, real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails where it cannot go on")]

mod access_list;
mod audit;
mod bench;
mod blocks;
mod certificates;
mod command_line;
mod demo;
mod docs;
mod limits;
mod manual;
mod operator;
mod packages;
mod restart;
mod run;
mod serve;
#[cfg(target_os = "linux")]
mod service_manager;
mod stage;
mod support;
mod terminal;
mod walk_through;
mod watch;
