// What the client is to the process that it runs in: it keeps it alive while it has a claim and no longer, and leaves nothing behind.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { LEASE, patientClient } from './support/client.mjs';
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
  assert.ok(performance.now() - finished < 60_000, 'no timer was waited for: the shortest is an hour');
});

test('a lock that is held keeps its program alive, and its loss lets it end', async (t) => {
  const server = await realServer(t);
  const { child, ended, line } = program(t, 'holding.mjs', server.address);
  assert.match(await line(), /^held \d+$/);
  // Long enough for a program that nothing keeps alive to end.
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(child.exitCode, null);
  await server.stop();
  assert.equal(await line(), 'lost server_error');
  assert.deepEqual(await ended, { status: 0, signal: null, stderr: '' });
});

test('b05 an event loop that was blocked for 0.9 leases: the loss comes first', async (t) => {
  const { address } = await realServer(t);
  // After the longer one the client's timer is due as well as the answer, after the shorter one the answer alone.
  for (const blockMs of [1_100, 100]) {
    const { ended, line } = program(t, 'blocking.mjs', address, blockMs);
    assert.equal(await line(), 'unblocked, lost timeout, not held');
    assert.deepEqual(await ended, { status: 0, signal: null, stderr: '' });
  }
});

test('b05 a caller that never looks at the lock sees no unhandled rejection', async (t) => {
  const server = await scriptedServer(t, async ({ frame, socket }) => {
    await frame();
    socket.end(acquired(41));
  });
  const lock = await patientClient({ address: server.address }).acquire('jobs', LEASE);
  while (lock.isHeld()) await turn();
  // `node:test` fails the test on an unhandled rejection.
  await turn();
});

const ROUNDS = 1_000;
const TOGETHER = 200;

/**
 * Where a call is when it is cancelled. Each gives what a client needs, when all calls have come so far, and how many are to hold the
 * lock by then.
 */
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
    const { address, arrived } = await stageServer(t, ({ socket }, arrive) => socket.once('data', arrive));
    return { config: { address, tls: {} }, arrived };
  },
  'before a mute server': async (t) => {
    const { address, arrived } = await stageServer(t, ({ frame }, arrive) => frame().then(arrive));
    return { config: { address }, arrived };
  },
  'in the queue': (t) => answeredWith(t, WAITING),
  'while it holds the lock': async (t) => ({ ...(await answeredWith(t, acquired(41))), holding: TOGETHER }),
};

/** A server whose connections say when the call has come where it is to be cancelled. */
async function stageServer(t, serve) {
  let arrivals = 0;
  let wake;
  const { address } = await scriptedServer(t, (connection) =>
    serve(connection, () => {
      arrivals += 1;
      wake?.();
    }),
  );
  const arrived = async () => {
    while (arrivals < TOGETHER) await new Promise((resolve) => (wake = resolve));
    arrivals = 0;
  };
  return { address, arrived };
}

/** Calls that have read their answer. It comes a quarter of the lease late, so the heartbeat that is due at once shows it. */
async function answeredWith(t, answer) {
  let now = 0;
  let asking = [];
  const { address, arrived } = await stageServer(t, async ({ frame, write }, arrive) => {
    await frame();
    asking.push(write);
    if (asking.length === TOGETHER) {
      now += LEASE.leaseMs / 4;
      for (const write of asking) write(answer);
      asking = [];
    }
    await frame();
    arrive();
  });
  return { config: { address, clock: () => now }, arrived };
}

for (const [stage, prepare] of Object.entries(stages)) {
  test(`b50 ${ROUNDS} calls cancelled ${stage} leave nothing behind`, async (t) => {
    const cleanUps = [];
    const { config, arrived, holding = 0 } = await prepare({ after: (cleanUp) => cleanUps.push(cleanUp) });
    const before = resources();
    const client = patientClient(config);
    for (let round = 0; round < ROUNDS / TOGETHER; round++) {
      let working = 0;
      const work = (context) => {
        working += 1;
        return context.signal.aborted ? undefined : once(context.signal, 'abort');
      };
      const cancels = Array.from({ length: TOGETHER }, () => new AbortController());
      const calls = cancels.map(async ({ signal }) => {
        const options = { ...LEASE, waitMs: 3_600_000, signal };
        await client.do('jobs', options, work).catch((error) => assert.equal(error.kind, 'cancelled'));
      });
      await arrived();
      assert.equal(working, holding);
      for (const cancel of cancels) cancel.abort();
      const back = Promise.all(calls).then(() => 'back');
      assert.equal(await Promise.race([back, manyTurns().then(() => 'waiting')]), 'back');
    }
    assert.equal(client.claims('jobs'), 0);
    for (const cleanUp of cleanUps) await cleanUp();
    // Handles that were closed go with the next turns of the event loop.
    await manyTurns();
    const left = resources();
    assert.ok(isWithin(left, before), `before: ${JSON.stringify(before)}, left: ${JSON.stringify(left)}`);
  });
}

/** Turns of the event loop: what is not over by then waits for something. A busy machine needs no more of them. */
async function manyTurns() {
  for (let turns = 0; turns < 100; turns++) await turn();
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
