// The five scenarios of "writing a client" against the real server, and what the README and the sample show.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

import { LEASE, patientClient } from './support/client.mjs';
import { realServer } from './support/server.mjs';

const HERE = fileURLToPath(new URL('..', import.meta.url));

test('two clients and a push', async (t) => {
  const { address } = await realServer(t);
  const network = await networkTo(t, address);
  const [one, other] = [patientClient({ address }), patientClient({ address: network.address })];
  const first = await one.acquire('jobs', LEASE);
  await assert.rejects(other.tryAcquire('jobs', LEASE), { kind: 'contended' });
  const pushed = other.acquire('jobs', LEASE);
  while (network.answered() < 2) await turn();
  await first.release();
  const second = await pushed;
  assert.ok(second.token > first.token);
  await second.release();
  const again = await one.acquire('jobs', LEASE);
  assert.ok(again.token > second.token, 'b09 acquired again on the same client: a larger token');
  await again.release();
});

describe('until a lease runs out', { concurrency: true }, () => {
  // Long enough to be kept by a process that stands still for seconds.
  const leaseMs = 10_000;

  test('a hold and a wait that last longer', async (t) => {
    const { address } = await realServer(t);
    const client = patientClient({ address });
    const lock = await client.acquire('jobs', { leaseMs });
    lock.onLost(({ message }) => assert.fail(message));
    const waiting = client.acquire('jobs', { leaseMs });
    await new Promise((resolve) => setTimeout(resolve, 1.05 * leaseMs));
    assert.equal(lock.isHeld(), true);
    await lock.release();
    await (await waiting).release();
  });

  test('b01 the network stops under a holder: it has lost before the next has the lock', async (t) => {
    const { address } = await realServer(t);
    const network = await networkTo(t, address);
    const holder = await patientClient({ address: network.address }).acquire('jobs', { leaseMs });
    const waiting = patientClient({ address }).acquire('jobs', LEASE);
    network.stop();
    const next = await waiting;
    assert.deepEqual([holder.isHeld(), holder.loss?.reason], [false, 'timeout']);
    await next.release();
  });

  test('the sample of fencing shows a stale holder refused', async (t) => {
    const { address } = await realServer(t);
    const { status, stdout, stderr } = await run(['examples/fencing/fencing.mjs', address]);
    assert.equal(stderr, '');
    assert.equal(status, 0);
    const lines = withoutTokens(stdout).trimEnd().split('\n');
    assert.equal(lines.pop(), 'the balance is 200');
    // Each in its own order: A may see what B has written before B says so.
    const by = (holder) => lines.filter((line) => line.startsWith(holder));
    assert.deepEqual(by('A'), [
      'A holds the lock with token N, and stands still',
      'A wakes up and writes 100, without a look at the lock: refused',
    ]);
    assert.deepEqual(by('B'), ['B holds the lock with token N', 'B writes 200: accepted']);
    assert.equal(lines.length, 4);
  });
});

test('the server is restarted under a waiter: it asks again and is served', async (t) => {
  const first = await realServer(t);
  const network = await networkTo(t, first.address);
  const client = patientClient({ address: network.address });
  const lock = await client.acquire('jobs', LEASE);
  const dropped = assert.rejects(client.acquire('jobs', LEASE), { kind: 'lost', code: 0x01, retryable: true });
  const persistent = client.acquireRetry('jobs', LEASE);
  while (network.answered() < 3) await turn();
  await first.stop();
  const { reason, code } = await lock.lost;
  assert.deepEqual([reason, code], ['server_error', 0x01]);
  await dropped;
  const restarted = await realServer(t);
  network.leadTo(restarted.address);
  const second = await persistent;
  await second.release();
});

test('a name of 300 bytes is refused, here and by the server', async (t) => {
  const { address } = await realServer(t);
  const name = 'x'.repeat(300);
  await assert.rejects(patientClient({ address }).acquire(name, LEASE), { kind: 'invalid' });
  const [host, port] = address.split(':');
  const socket = net.connect({ host, port });
  socket.write(Buffer.concat([Buffer.from('0101000007d0012c', 'hex'), Buffer.from(name)]));
  const [answer] = await once(socket, 'data');
  assert.deepEqual([...answer.subarray(0, 2)], [0x13, 0x15]);
  socket.destroy();
});

test('the samples of the README do what it says', async (t) => {
  const readme = readFileSync(`${HERE}README.md`, 'utf8');
  const samples = [...readme.matchAll(/```js\n(.*?)```\n\n+(?:It prints|Prints):\n\n```text\n(.*?)```/gs)];
  assert.equal(samples.length, 4, 'hold, try, wait limit, fenced write');
  for (const [, sample, output] of samples) {
    // Each has a server of its own: what one let go of with its last breath may still be held when the next looks.
    const { address } = await realServer(t);
    const code = patientSample(sample, address);
    const { status, stdout, stderr } = await run(['--input-type=module', '--eval', code]);
    assert.equal(stderr, '', code);
    assert.equal(status, 0, code);
    assert.equal(withoutTokens(stdout), withoutTokens(output), code);
  }
});

test('the program of the quick start hands over when it is killed', async (t) => {
  const { address } = await realServer(t);
  const page = readFileSync(`${HERE}../../docs/quick-start.md`, 'utf8');
  const programs = [...page.matchAll(/```js\n(.*?)```/gs)].map(([, sample]) => patientSample(sample, address));
  assert.equal(programs.length, 1);
  const start = () => {
    const child = spawn(process.execPath, ['--input-type=module', '--eval', programs[0]], {
      cwd: HERE,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => child.kill('SIGKILL'));
    return child;
  };
  const token = async (child) => {
    const [line] = await once(child.stdout, 'data');
    return BigInt(/^working under token (\d+)\n$/.exec(line)[1]);
  };
  const first = start();
  const before = await token(first);
  const second = start();
  first.kill('SIGKILL');
  assert.ok((await token(second)) > before);
});

/** A sample of a page, on this server and with the patience of these tests. */
function patientSample(code, address) {
  return code
    .replaceAll("{ address: '127.0.0.1:7070' }", `{ address: '${address}', connectTimeoutMs: 60_000 }`)
    .replaceAll(/leaseMs: \d+/g, `leaseMs: ${LEASE.leaseMs}`);
}

function withoutTokens(text) {
  return text.replaceAll(/\d{13,}/g, 'N');
}

async function run(args) {
  const child = spawn(process.execPath, args, { cwd: HERE, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr']) child[stream].on('data', (bytes) => (said[stream] += bytes));
  const [status] = await once(child, 'close');
  return { status, ...said };
}

/**
 * A way to the server. It counts the connections that were answered, it can be led to another server, and everything on it can be made
 * to vanish, with the connections left open.
 */
async function networkTo(t, address) {
  const sockets = [];
  let upstream = address;
  let answered = 0;
  let isStopped = false;
  const pass = (from, to) => {
    sockets.push(from);
    from.on('error', () => isStopped || to.destroy());
    from.on('data', (bytes) => isStopped || to.write(bytes));
    from.on('end', () => isStopped || to.end());
  };
  const server = net.createServer({ allowHalfOpen: true }, (near) => {
    const [host, port] = upstream.split(':');
    const far = net.connect({ host, port, allowHalfOpen: true });
    pass(near, far);
    pass(far, near);
    far.once('data', () => (answered += 1));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return {
    address: `127.0.0.1:${server.address().port}`,
    answered: () => answered,
    leadTo: (other) => (upstream = other),
    stop: () => (isStopped = true),
  };
}
