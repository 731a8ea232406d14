"""A row that refuses a stale holder: fencing with SQLite.

The guarded row remembers the largest fencing token that wrote it. A write carries its holder's token and takes effect only where no larger one
has been there; so a holder that lost its lock without noticing (a suspended machine, a long pause) cannot undo the work of its successor.

The statement is the same for PostgreSQL, where the placeholder is ``%s`` and the columns are ``bigint``.

Run it against a server: ``python fencing.py 127.0.0.1:7070``.
"""

from __future__ import annotations

import sqlite3
import sys
from datetime import timedelta

import monolock

LEASE = timedelta(seconds=2)

# `<=` and not `<`: the holder itself writes as often as it likes with its one token. A larger one has been there: no row matches.
FENCED_WRITE = "UPDATE account SET balance = ?, token = ? WHERE id = ? AND token <= ?"


class StaleHolderError(Exception):
    """The row has seen a larger token: this holder's lock is another's by now."""


def create_table(database: sqlite3.Connection) -> None:
    database.execute("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL)")
    database.execute("INSERT INTO account (id, balance, token) VALUES (1, 100, 0)")
    database.commit()


def write_balance(database: sqlite3.Connection, balance: int, token: int) -> None:
    """Check and write are one statement: between two of them another holder could come."""
    with database:
        written = database.execute(FENCED_WRITE, (balance, token, 1, token)).rowcount
    if written == 0:
        raise StaleHolderError(f"refused: token {token} is older than the row's")


def balance(database: sqlite3.Connection) -> int:
    value: int = database.execute("SELECT balance FROM account WHERE id = 1").fetchone()[0]
    return value


def main(address: str) -> None:
    client = monolock.Client(address)
    database = sqlite3.connect(":memory:")
    create_table(database)

    stale = client.acquire("account-1", LEASE)
    write_balance(database, 110, stale.token)
    write_balance(database, 120, stale.token)
    print(f"first holder, token {stale.token}: wrote twice, the balance is {balance(database)}")

    # What a long pause of the first holder comes to: the lock is its successor's, and it does not know.
    stale.release()
    with client.lock("account-1", LEASE) as successor:
        write_balance(database, 200, successor.token)
        print(f"second holder, token {successor.token}: wrote, the balance is {balance(database)}")
        try:
            write_balance(database, 130, stale.token)
        except StaleHolderError as error:
            print(f"first holder wakes up and writes: {error}, the balance is still {balance(database)}")

    database.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7070")
