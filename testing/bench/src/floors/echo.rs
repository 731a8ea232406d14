//! A bare echo: each read is answered by one write.
//!
//! The first read is taken for an `ACQUIRE` and every later byte for a heartbeat; the answers are `ACQUIRED`, as long
//! as monolock's are. So one server is the floor of the heartbeat (echo), of the cycle (accept, answer, close) and of
//! the storm (accept and answer).

use std::io;

use monolock_core::Token;
use monolock_core::wire::ServerFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// As many heartbeats as one read takes.
const MOST: usize = 64;

/// Answers whoever comes.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // A connection that fails has ended, however it did.
            let _ = answer(stream).await;
        });
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let token = Token::new(1).expect("1 is not 0");
    let mut answers = Vec::new();
    (0..MOST).for_each(|_| ServerFrame::Acquired { token }.encode(&mut answers));
    let one = answers.len() / MOST;
    let mut bytes = [0; MOST];
    if stream.read(&mut bytes).await? > 0 {
        stream.write_all(&answers[..one]).await?;
    }
    loop {
        match stream.read(&mut bytes).await? {
            0 => return Ok(()),
            read => stream.write_all(&answers[..one * read]).await?,
        }
    }
}
