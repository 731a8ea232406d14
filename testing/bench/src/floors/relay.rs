//! The floor: a FIFO lock over TCP and nothing else.
//!
//! No leases, no limits, no error frames, one lock for all. The task that sees the holder's end writes into the next
//! waiter's socket itself.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use monolock_core::Token;
use monolock_core::wire::ServerFrame;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

type Queue = Arc<Mutex<VecDeque<Arc<OwnedWriteHalf>>>>;

static TOKENS: AtomicU64 = AtomicU64::new(1);

/// Relays one lock down the queue of all connections.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let queue = Queue::default();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let queue = Arc::clone(&queue);
        tokio::spawn(async move {
            // A connection that fails has ended, however it did.
            let _ = relay(stream, &queue).await;
        });
    }
}

async fn relay(stream: TcpStream, queue: &Queue) -> io::Result<()> {
    let (mut reader, writer) = stream.into_split();
    read_acquire(&mut reader).await?;
    let writer = Arc::new(writer);
    let is_first = {
        let mut queue = queue.lock();
        queue.push_back(Arc::clone(&writer));
        queue.len() == 1
    };
    let answer = if is_first { acquired() } else { waiting() };
    writer.ready(Interest::WRITABLE).await?;
    writer.try_write(&answer)?;
    let mut byte = [0];
    while reader.read(&mut byte).await.is_ok_and(|bytes| bytes > 0) {}
    let next = {
        let mut queue = queue.lock();
        if queue.front().is_some_and(|first| Arc::ptr_eq(first, &writer)) {
            queue.pop_front();
            queue.front().cloned()
        } else {
            queue.retain(|other| !Arc::ptr_eq(other, &writer));
            None
        }
    };
    if let Some(next) = next {
        next.try_write(&acquired())?;
    }
    Ok(())
}

async fn read_acquire(reader: &mut OwnedReadHalf) -> io::Result<()> {
    let mut header = [0; 8];
    reader.read_exact(&mut header).await?;
    let mut name = vec![0; usize::from(u16::from_be_bytes([header[6], header[7]]))];
    reader.read_exact(&mut name).await?;
    Ok(())
}

fn waiting() -> Vec<u8> {
    let mut frame = Vec::new();
    ServerFrame::Waiting.encode(&mut frame);
    frame
}

fn acquired() -> Vec<u8> {
    let token = Token::new(TOKENS.fetch_add(1, Ordering::Relaxed)).expect("the count begins with 1");
    let mut frame = Vec::new();
    ServerFrame::Acquired { token }.encode(&mut frame);
    frame
}
