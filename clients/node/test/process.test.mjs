// What the client is to the process that it runs in: it keeps it alive while it has a claim and no longer, and leaves nothing behind.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { Client } from 'monolock';
import { WAITING, acquired, realServer, scriptedServer } from './support/server.mjs';

function program(t, name, ...args) {
  const path = fileURLToPath(new URL(`programs/${name}`, import.meta.url));
  const child = spawn(process.execPath, [path, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  t.after(() => child.kill('SIGKILL'));
  const complaints = [];
  child.stderr.on('data', (bytes) => complaints.push(bytes));
  const ended = once(child, 'close').then(([status, signal]) => ({
    status,
    signal,
    stderr: Buffer.concat(complaints).toString(),
  }));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, ended, line: async () => (await lines.next()).value };
}

test('a program ends by itself when it has let go of its locks', async (t) => {
  const { address } = await realServer(t);
  const { ended, line } = program(t, 'finishing.mjs', address);
  assert.equal(await line(), 'finished');
  const finished = performance.now();
  assert.deepEqual(await ended, { status: 0, signal: null, stderr: '' });
  assert.ok(performance.now() - finished < 5_000, 'no timer was waited for');
});

test('a lock that is held keeps its program alive, and its loss lets it end', async (t) => {
  const server = await realServer(t);
  const { child, ended, line } = program(t, 'holding.mjs', server.address);
  assert.match(await line(), /^held \d+$/);
  // Longer than the lease: it beats.
  await new Promise((resolve) => setTimeout(resolve, 1_800));
  assert.equal(child.exitCode, null);
  await server.stop();
  assert.equal(await line(), 'lost server_error');
  assert.deepEqual(await ended, { status: 0, signal: null, stderr: '' });
});

test('b05 an event loop that was blocked for 0.9 leases: the loss comes first', async (t) => {
  const { address } = await realServer(t);
  for (let round = 0; round < 2; round++) {
    const { ended, line } = program(t, 'blocking.mjs', address);
    assert.equal(await line(), 'unblocked, lost timeout, not held');
    assert.deepEqual(await ended, { status: 0, signal: null, stderr: '' });
  }
});

test('b05 a caller that never looks at the lock sees no unhandled rejection', async (t) => {
  const server = await scriptedServer(t, async ({ frame, socket }) => {
    await frame();
    socket.end(acquired(41));
  });
  const lock = await new Client({ address: server.address }).acquire('jobs', { leaseMs: 1_000 });
  while (lock.isHeld()) await turn();
  // `node:test` fails the test on an unhandled rejection.
  await turn();
});

const ROUNDS = 1_000;
const TOGETHER = 200;

/** Where a call is when it is cancelled. Each gives what a client needs, and when the call has come so far. */
const stages = {
  'while its name is looked up': async () => ({
    config: { address: 'locks.example:7070', lookup: () => {} },
    arrived: turn,
  }),
  'while it connects': async (t) => ({
    config: { address: (await scriptedServer(t)).address },
    // A few microtasks: the connection has begun, and the event loop has not turned.
    async arrived() {
      for (let hop = 0; hop < 50; hop++) await undefined;
    },
  }),
  'in the TLS handshake': async (t) => {
    const server = await stageServer(t, ({ socket }, arrive) => socket.once('data', arrive));
    return { config: { address: server.address, tls: {} }, arrived: server.arrived, server };
  },
  'before a mute server': async (t) => {
    const server = await stageServer(t, ({ frame }, arrive) => frame().then(arrive));
    return { config: { address: server.address }, arrived: server.arrived, server };
  },
  'in the queue': async (t) => {
    const server = await stageServer(t, async ({ frame, write }, arrive) => {
      await frame();
      write(WAITING);
      // Its heartbeat shows that it knows.
      await frame();
      arrive();
    });
    return { config: { address: server.address }, arrived: server.arrived, server };
  },
  'while it holds the lock': async (t) => {
    const server = await stageServer(t, ({ frame, answer }, arrive) => {
      frame().then(arrive);
      answer(acquired(41));
    });
    return { config: { address: server.address }, arrived: server.arrived, server };
  },
};

/** A server whose connections say when the call has come where it is to be cancelled. */
async function stageServer(t, serve) {
  let arrivals = 0;
  let wake;
  const server = await scriptedServer(t, (connection) =>
    serve(connection, () => {
      arrivals += 1;
      wake?.();
    }),
  );
  const arrived = async () => {
    while (arrivals < TOGETHER) await new Promise((resolve) => (wake = resolve));
    arrivals = 0;
  };
  return { ...server, arrived };
}

for (const [stage, prepare] of Object.entries(stages)) {
  test(`b50 ${ROUNDS} calls cancelled ${stage} leave nothing behind`, async (t) => {
    const cleanUps = [];
    const { config, arrived } = await prepare({ after: (cleanUp) => cleanUps.push(cleanUp) });
    const before = resources();
    const client = new Client(config);
    const took = [];
    for (let round = 0; round < ROUNDS / TOGETHER; round++) {
      const cancels = Array.from({ length: TOGETHER }, () => new AbortController());
      const calls = cancels.map(async ({ signal }) => {
        const options = { leaseMs: 1_200, waitMs: 3_600_000, signal };
        const stopped = (context) => (context.signal.aborted ? undefined : once(context.signal, 'abort'));
        await client.do('jobs', options, stopped).catch((error) => assert.equal(error.kind, 'cancelled'));
      });
      await arrived();
      const cancelled = performance.now();
      for (const cancel of cancels) cancel.abort();
      await Promise.race(calls);
      took.push(performance.now() - cancelled);
      await Promise.all(calls);
    }
    assert.equal(client.claims('jobs'), 0);
    for (const cleanUp of cleanUps) await cleanUp();
    // Handles that were closed go with the next turns of the event loop.
    const patience = performance.now() + 10_000;
    while (!isWithin(resources(), before) && performance.now() < patience) await turn();
    const left = resources();
    assert.ok(isWithin(left, before), `before: ${JSON.stringify(before)}, left: ${JSON.stringify(left)}`);
    // 100 ms on a machine that has time; what a call could wrongly wait for takes longer than this.
    assert.ok(Math.min(...took) < 500, `the first call came back after ${took.join(', ')} ms`);
  });
}

/** How many of each kind of resource keep the event loop going. */
function resources() {
  const counts = {};
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1;
  // Those of waiting here.
  delete counts.Immediate;
  return counts;
}

function isWithin(counts, before) {
  return Object.entries(counts).every(([kind, count]) => count <= (before[kind] ?? 0));
}
