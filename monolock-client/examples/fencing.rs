//! A row that is fenced: a holder that lost its lock and does not know it is refused by the database.
//!
//! `cargo run -p monolock-client --example fencing` runs it against a server of its own; `MONOLOCK_ADDRESS` names
//! another.
//!
//! The database here is `SQLite`. The statements are those of `PostgreSQL` as well.

use std::error::Error;
use std::thread;
use std::time::Duration;

use monolock_client::Token;
use monolock_client::blocking::Client;
use rusqlite::{Connection, params};

type Failure = Box<dyn Error + Send + Sync>;

/// How long a holder may be silent.
const LEASE: Duration = Duration::from_secs(10);

const TABLE: &str = "
    CREATE TABLE account (
        id      INTEGER PRIMARY KEY,
        balance BIGINT NOT NULL,
        fence   BIGINT NOT NULL DEFAULT 0
    );
    INSERT INTO account (id, balance) VALUES (1, 100);
";

/// The one statement that makes the lock more than advice: the row keeps the largest token that it saw, and a smaller
/// one changes nothing.
const FENCED_UPDATE: &str = "UPDATE account SET balance = $1, fence = $2 WHERE id = 1 AND fence <= $2";

/// The story.
pub(crate) fn main() -> Result<(), Failure> {
    let address = std::env::var("MONOLOCK_ADDRESS").map_or_else(|_| serve(), Ok)?;
    let database = Connection::open_in_memory()?;
    database.execute_batch(TABLE)?;

    // The first holder believes in its lock for half a second only: it stands for one whose process was stopped, or
    // whose network went.
    let first = Client::builder(&address).max_hold(Duration::from_millis(500)).build()?.acquire("account-1", LEASE)?;
    println!("first:  holds the lock with token {}", first.token());
    assert!(write(&database, first.token(), 110)?);
    println!("first:  balance = 110");
    let stale = first.token();
    if let Some(loss) = first.wait_lost(LEASE) {
        println!("first:  lost the lock ({loss}), and goes on as if it had not heard");
    }
    drop(first);

    let second = Client::builder(&address).build()?.acquire("account-1", LEASE)?;
    println!("second: holds the lock with token {}", second.token());
    assert!(second.token() > stale);
    assert!(write(&database, second.token(), 150)?);
    println!("second: balance = 150");

    assert!(!write(&database, stale, 120)?, "a stale write got through");
    println!("first:  balance = 120 is refused: token {stale} is below {}", second.token());

    let balance: i64 = database.query_row("SELECT balance FROM account WHERE id = 1", [], |row| row.get(0))?;
    assert_eq!(balance, 150);
    println!("the balance is {balance}");
    Ok(())
}

/// Writes as the holder with this token. `false`: a later holder has written before, and nothing was changed.
fn write(database: &Connection, token: Token, balance: i64) -> Result<bool, Failure> {
    let token = i64::try_from(token.get())?;
    Ok(database.execute(FENCED_UPDATE, params![balance, token])? == 1)
}

/// Starts a server within this process, and says where.
fn serve() -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server =
        runtime.block_on(async { monolock_net::Server::builder().listen(([127, 0, 0, 1], 0).into()).bind() })?;
    let address = server.local_addr().to_string();
    thread::spawn(move || runtime.block_on(server.run()));
    Ok(address)
}
