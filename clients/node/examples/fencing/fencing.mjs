// A stale holder of a lock, refused by the row that the lock guards.
//
//     node examples/fencing/fencing.mjs 127.0.0.1:7070
//
// A holds the lock and stands still, as in a long garbage collection or a suspended machine. Its lease runs out and the lock goes to B,
// which writes. Then A goes on where it stood, without a look at the lock, and writes too: its token is below the largest that the row
// has seen, so the row does not change.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Client } from 'monolock';
// SQLite as WebAssembly, so that the sample runs on any Node.js; the statements are those that any driver would take.
import sqlite from 'node-sqlite3-wasm';

// Valid on PostgreSQL as well. The check and the write are one statement: nothing comes between them.
const WRITE = 'UPDATE accounts SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2';

/** Writes the balance, and says whether the row took it. */
function write(database, balance, token) {
  return database.run(WRITE, { $1: balance, $2: token, $3: 1 }).changes === 1;
}

/** Two processes have it open: each waits for its turn at the file. */
function open(path) {
  const database = new sqlite.Database(path);
  database.exec('PRAGMA busy_timeout = 30000');
  return database;
}

function read(database) {
  return database.get('SELECT balance, fence FROM accounts WHERE id = 1');
}

const outcome = (isAccepted) => (isAccepted ? 'accepted' : 'refused');

async function holderA(address, path) {
  const database = open(path);
  // B waits until this lease has run out.
  const lock = await new Client({ address }).acquireRetry('account-1', { leaseMs: 2_000 });
  console.log(`A holds the lock with token ${lock.token}, and stands still`);
  process.send('held');
  await new Promise(setImmediate);
  // Not one callback of this process runs until B has written.
  while (BigInt(read(database).fence) <= lock.token) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  const isAccepted = write(database, 100, lock.token);
  console.log(`A wakes up and writes 100, without a look at the lock: ${outcome(isAccepted)}`);
  database.close();
  await lock.release();
  process.disconnect();
}

async function main(address) {
  const directory = mkdtempSync(join(tmpdir(), 'fencing-'));
  const path = join(directory, 'accounts.sqlite');
  const database = open(path);
  database.exec('CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL)');
  database.exec('INSERT INTO accounts (id, balance, fence) VALUES (1, 0, 0)');

  const a = fork(fileURLToPath(import.meta.url), ['A', address, path]);
  const ended = once(a, 'close');
  await once(a, 'message');
  await new Client({ address }).doRetry('account-1', { leaseMs: 30_000 }, async ({ token }) => {
    console.log(`B holds the lock with token ${token}`);
    console.log(`B writes 200: ${outcome(write(database, 200, token))}`);
  });
  await ended;
  console.log(`the balance is ${read(database).balance}`);
  database.close();
  rmSync(directory, { recursive: true });
}

const [first, ...rest] = process.argv.slice(2);
if (first === 'A') await holderA(...rest);
else await main(first ?? '127.0.0.1:7070');
