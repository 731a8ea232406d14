//! How long the program takes until it listens, what it weighs at rest, and how large it is.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Context;
use crate::generator::without_own_variables;
use crate::process::{Kept, resident};
use crate::sheet::{Goal, Sheet};
use crate::statistics::{median, real};

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn start(context: &Context, sheet: &mut Sheet) -> io::Result<()> {
    let of = "monolock";
    for _ in 0..context.rounds {
        let starts = (0..context.many(10)).map(|_| start_one(context)).collect::<io::Result<Vec<_>>>()?;
        let (times, memory): (Vec<_>, Vec<_>) = starts.into_iter().unzip();
        sheet.push("start to listening", "ms", of, median(&times));
        sheet.push("memory at rest", "MiB", of, median(&memory));
    }
    sheet.push("stripped program", "MiB", of, stripped_size(context)? / 1_048_576.0);
    sheet.judge_figure("start to listening", of, Goal::AtMost(30.0));
    sheet.judge_figure("memory at rest", of, Goal::AtMost(8.0));
    sheet.judge_figure("stripped program", of, Goal::AtMost(8.0));
    Ok(())
}

/// Milliseconds, and mebibytes.
fn start_one(context: &Context) -> io::Result<(f64, f64)> {
    let address: SocketAddr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut command = Command::new(&context.programs.monolock);
    without_own_variables(&mut command);
    command.args(["--listen", &address.to_string()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let process = Kept(command.spawn()?);
    while TcpStream::connect(address).is_err() {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other("the server does not listen"));
        }
        thread::sleep(Duration::from_micros(100));
    }
    let time = start.elapsed().as_secs_f64() * 1e3;
    // Its threads have come up by then.
    thread::sleep(Duration::from_millis(100));
    Ok((time, real(resident(process.0.id())?) / 1_048_576.0))
}

fn stripped_size(context: &Context) -> io::Result<f64> {
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join("monolock");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(&context.programs.monolock).status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(io::Error::other(format!("strip ended with {status}"))),
        Err(error) => return Err(io::Error::other(format!("strip: {error}; `apt-get install binutils` installs it"))),
    }
    let bytes = usize::try_from(fs::metadata(&stripped)?.len()).map_err(io::Error::other)?;
    Ok(real(bytes))
}
