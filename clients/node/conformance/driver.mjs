// The client under test of the conformance suite: JSON objects, one a line, operations on stdin and events on stdout
// (docs/writing-a-client.md). Written over the public API alone.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

import { Client, MonolockError, lossOf } from 'monolock';

const { version } = createRequire(import.meta.url)('../package.json');

const clients = new Map();
/** Claims by the id of the operation that made them. */
const claims = new Map();

function tell(event) {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

const operations = {
  async acquire(op) {
    const { id } = op;
    const claim = { cancel: new AbortController() };
    claims.set(id, claim);
    try {
      const options = { ...optionsOf(op), signal: claim.cancel.signal };
      const acquire = { wait: 'acquire', try: 'tryAcquire', retry: 'acquireRetry' }[op.mode ?? 'wait'];
      const lock = await clientOf(op)[acquire](op.name, options);
      claim.lock = lock;
      tell({ event: 'acquired', id, token: String(lock.token) });
      lock.onLost(({ reason, code }) => tell({ event: 'lost', id, reason, code: code ?? null }));
    } catch (error) {
      tell({ event: 'error', id, ...described(error) });
    }
  },

  async release({ id }) {
    await claims.get(id)?.lock?.release();
    tell({ event: 'released', id });
  },

  is_held({ id }) {
    tell({ event: 'is_held', id, held: claims.get(id)?.lock?.isHeld() ?? false });
  },

  cancel({ id }) {
    claims.get(id)?.cancel.abort();
  },

  async do(op) {
    const { id } = op;
    const claim = { cancel: new AbortController() };
    claims.set(id, claim);
    const finished = new Promise((resolve) => {
      claim.finish = resolve;
    });
    let workFailed = false;
    try {
      const options = { ...optionsOf(op), signal: claim.cancel.signal };
      const run = { wait: 'do', try: 'tryDo', retry: 'doRetry' }[op.mode ?? 'wait'];
      await clientOf(op)[run](op.name, options, async ({ token, signal }) => {
        tell({ event: 'started', id, token: String(token) });
        const stopRequested = () => tell({ event: 'stop_requested', id });
        if (signal.aborted) stopRequested();
        else signal.addEventListener('abort', stopRequested, { once: true });
        if ((await finished) === 'fail') {
          workFailed = true;
          throw new Error('the work failed, as it was told to');
        }
      });
      tell({ event: 'done', id, outcome: 'ok' });
    } catch (error) {
      const lost = lossOf(error);
      const { kind, code } = described(error);
      tell({
        event: 'done',
        id,
        outcome: 'error',
        kind,
        work_failed: workFailed,
        lost: lost?.reason ?? null,
        code: code ?? lost?.code ?? null,
      });
    }
  },

  finish({ id, result }) {
    claims.get(id)?.finish?.(result);
  },

  block({ ms }) {
    const until = process.hrtime.bigint() + BigInt(Math.round(ms * 1e6));
    while (process.hrtime.bigint() < until);
    tell({ event: 'unblocked' });
  },

  exit,
};

function clientOf(op) {
  const make = () =>
    new Client({
      addresses: op.addresses,
      tls: op.tls ? tlsOf(op.tls) : undefined,
      connectTimeoutMs: op.connect_timeout_ms ?? undefined,
      maxHoldMs: op.max_hold_ms ?? undefined,
    });
  if (op.client === undefined || op.client === null) return make();
  if (!clients.has(op.client)) clients.set(op.client, make());
  return clients.get(op.client);
}

function tlsOf({ ca, cert, key, server_name: servername }) {
  return {
    ca: readFileSync(ca),
    ...(cert ? { cert: readFileSync(cert), key: readFileSync(key) } : {}),
    ...(servername ? { servername } : {}),
  };
}

function optionsOf({ lease_ms: lease, wait_ms: waitMs }) {
  return { leaseMs: typeof lease === 'string' ? Number(lease) : lease, waitMs: waitMs ?? undefined };
}

function described(error) {
  if (error instanceof MonolockError) return { kind: error.kind, code: error.code ?? null };
  process.stderr.write(`${error?.stack ?? error}\n`);
  return { kind: null, code: null };
}

async function exit() {
  for (const { cancel, finish } of claims.values()) {
    cancel.abort();
    finish?.('ok');
  }
  await Promise.all([...claims.values()].map(({ lock }) => lock?.release()));
  // What was told has to be out before the process goes.
  process.stdout.write('', () => process.exit(0));
}

tell({ event: 'ready', client: 'monolock-node', version });
createInterface({ input: process.stdin })
  .on('line', (line) => {
    if (line.trim() === '') return;
    const op = JSON.parse(line);
    const operation = operations[op.op];
    if (operation === undefined) process.stderr.write(`unknown operation: ${line}\n`);
    else operation(op);
  })
  .on('close', exit);
