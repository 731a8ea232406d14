//! The `monolock` command: the server, and what goes with it.
//!
//! A thin shell over monolock-net and monolock-client. Whatever goes wrong comes back here as a [`Failure`] and is told
//! once, in one sentence on stderr; nothing below prints an error or ends the process.

#![forbid(unsafe_code)]

mod acl;
mod activation;
mod admin;
mod allocator;
mod api;
mod argv;
mod bench;
mod cli;
mod demo;
mod demo_worker;
mod exec;
mod failure;
mod follow;
mod generate;
mod healthcheck;
mod http;
mod inspect;
mod intervene;
mod job;
mod logging;
mod operations;
mod own;
mod run;
mod secured;
mod serve;
mod service_manager;
mod sse;
mod terminal;
mod text;
mod top;
mod value;
mod watch;

use std::env;
use std::process::ExitCode;

use crate::acl::AclCommand;
use crate::cli::{Command, Request};
use crate::failure::Failure;

fn main() -> ExitCode {
    match dispatch() {
        Ok(exit) => exit,
        Err(failure) => failure.tell(),
    }
}

fn dispatch() -> Result<ExitCode, Failure> {
    match cli::parse(env::args_os())? {
        Request::Text(text) => {
            // Whoever closes the pipe has read enough.
            let _ = text.print();
            Ok(ExitCode::SUCCESS)
        }
        Request::Run(Command::Serve(args)) => serve::serve(&args),
        Request::Run(Command::Run(args)) => run::run(&args),
        Request::Run(Command::Info(args)) => inspect::info(&args),
        Request::Run(Command::Locks(args)) => inspect::locks(&args),
        Request::Run(Command::Lock(args)) => inspect::lock(&args),
        Request::Run(Command::Release(args)) => intervene::release(&args),
        Request::Run(Command::Kick(args)) => intervene::kick(&args),
        Request::Run(Command::Watch(args)) => watch::watch(&args),
        Request::Run(Command::Top(args)) => top::top(&args),
        Request::Run(Command::Healthcheck(args)) => healthcheck::healthcheck(&args),
        Request::Run(Command::Completions(args)) => generate::completions(&args),
        Request::Run(Command::Man(args)) => generate::man(&args),
        Request::Run(Command::Acl(AclCommand::Check(args))) => acl::check(&args),
        Request::Run(Command::Exec(args)) => exec::exec(&args),
        Request::Run(Command::Bench(args)) => bench::bench(&args),
        Request::Run(Command::Demo(args)) => demo::demo(&args),
        Request::Run(Command::DemoWorker(args)) => demo_worker::work(args),
    }
}
