//! The samples of the README, word for word, against the real server.

use std::io;
use std::time::Duration;

use monolock_client::{Client, Error, ErrorKind, LockGuard, Token, WithLockError};
#[cfg(feature = "tls")]
use rustls::{ClientConfig, RootCertStore};

use crate::real::RealServer;
use crate::server::PATIENCE;

async fn hold(client: &Client) -> Result<(), WithLockError<io::Error>> {
    client
        .with_lock("nightly-import", Duration::from_secs(10), |held| async move {
            // Only one process across your fleet runs this at a time.
            import(held.token()).await
        })
        .await
}

async fn take_if_free(client: &Client) -> Result<Option<LockGuard>, Error> {
    match client.try_acquire("nightly-import", Duration::from_secs(10)).await {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::Contended => Ok(None),
        Err(error) => Err(error),
    }
}

async fn wait_a_while(client: &Client) -> Result<Option<LockGuard>, Error> {
    match client.acquire_within("nightly-import", Duration::from_secs(10), Duration::from_secs(10)).await {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind() == ErrorKind::WaitTimeout => Ok(None),
        Err(error) => Err(error),
    }
}

fn write_fenced(database: &rusqlite::Connection, token: Token, balance: i64) -> rusqlite::Result<bool> {
    // The same statement serves PostgreSQL.
    let update = "UPDATE account SET balance = $1, fence = $2 WHERE id = 1 AND fence <= $2";
    let token = i64::try_from(token.get()).expect("tokens stay below 2^53");
    Ok(database.execute(update, rusqlite::params![balance, token])? == 1)
}

#[cfg(feature = "tls")]
fn build(authorities: RootCertStore) -> Result<Client, Error> {
    let tls = ClientConfig::builder().with_root_certificates(authorities).with_no_client_auth();
    Client::builder("locks-1.example.org:7070")
        .address("locks-2.example.org:7070")
        .tls(tls)
        .connect_timeout(Duration::from_secs(5))
        .build()
}

/// What the README's reader has: here, work that fails without a token.
async fn import(token: Token) -> io::Result<()> {
    tokio::task::yield_now().await;
    if token.get() > 0 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[test]
fn the_samples_are_those_of_the_readme() {
    let mut blocks = include_str!("../../README.md").split("```rust\n").skip(1).peekable();
    assert!(blocks.peek().is_some());
    for block in blocks {
        let (sample, _) = block.split_once("```").unwrap();
        assert!(include_str!("readme.rs").contains(sample), "{sample}");
    }
}

#[tokio::test]
async fn hold_try_and_wait() {
    let server = RealServer::start();
    let client = Client::builder(server.address()).connect_timeout(PATIENCE).build().unwrap();
    hold(&client).await.unwrap();
    server.await_free().await;
    let guard = take_if_free(&client).await.unwrap().expect("the lock is free");
    assert!(take_if_free(&client).await.unwrap().is_none());
    assert!(wait_a_while(&client).await.unwrap().is_none());
    guard.release().await;
    server.await_free().await;
    assert!(wait_a_while(&client).await.unwrap().is_some());
}

#[tokio::test]
async fn fenced_write() {
    let server = RealServer::start();
    let client = Client::builder(server.address()).connect_timeout(PATIENCE).build().unwrap();
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database
        .execute_batch(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
             INSERT INTO account (id, balance) VALUES (1, 100);",
        )
        .unwrap();
    let stale = take_if_free(&client).await.unwrap().unwrap();
    let token = stale.token();
    assert!(write_fenced(&database, token, 110).unwrap());
    stale.release().await;
    server.await_free().await;
    let next = take_if_free(&client).await.unwrap().unwrap();
    assert!(write_fenced(&database, next.token(), 120).unwrap());
    assert!(write_fenced(&database, next.token(), 130).unwrap(), "a holder may write more than once");
    assert!(!write_fenced(&database, token, 140).unwrap());
    let balance: i64 = database.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap();
    assert_eq!(balance, 130);
}

#[cfg(feature = "tls")]
#[test]
fn a_client_over_tls() {
    build(RootCertStore::empty()).unwrap();
}
