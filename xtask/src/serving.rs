//! A server that runs for as long as something is tried with it.

use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

/// What the server says when it opens the door for locks, and that for questions about itself.
const DOORS: [&str; 2] = ["listening", "serving the ops endpoints"];

/// It, on free ports of this machine.
#[derive(Debug)]
pub(crate) struct Serving {
    process: Option<Child>,
    /// Where locks are.
    pub(crate) address: String,
    /// Where it tells of itself.
    pub(crate) operations: String,
}

impl Serving {
    /// Starts the program, and waits until it serves.
    ///
    /// # Errors
    /// It does not start, or ends instead.
    pub(crate) fn start(mut program: Command) -> Result<Self, String> {
        program.args(["serve", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--log-format", "json"]);
        program.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = program.spawn().map_err(|error| format!("cannot start {program:?}: {error}"))?;
        let mut lines = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut serving = Self { process: Some(process), address: String::new(), operations: String::new() };
        [serving.address, serving.operations] = addresses(&mut lines)?;
        // What it says later is read as well, so that it never waits for a reader.
        thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Ok(serving)
    }

    /// Tells it to stop, and sees it do so.
    ///
    /// # Errors
    /// It ends in another way.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let id = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a child has a process");
        kill_process(id, Signal::TERM).map_err(|error| format!("cannot stop the server: {error}"))?;
        let status = process.wait().map_err(|error| format!("cannot wait for the server: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Something else has failed, and is told.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Where the server says it can be reached.
fn addresses(lines: &mut impl BufRead) -> Result<[String; 2], String> {
    let mut said = String::new();
    let mut found = DOORS.map(|_| None);
    while found.iter().any(Option::is_none) {
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Err(format!("the server ended without saying where it listens: {said}")),
        }
        said.push_str(&line);
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let at = DOORS.iter().position(|door| told["message"] == *door);
        if let (Some(at), Some(address)) = (at, told["address"].as_str()) {
            found[at] = Some(address.to_owned());
        }
    }
    Ok(found.map(Option::unwrap_or_default))
}
