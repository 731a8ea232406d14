// The five scenarios of "writing a client" against the real server, and what the README and the sample show.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Client } from 'monolock';
import { realServer } from './support/server.mjs';

const HERE = fileURLToPath(new URL('..', import.meta.url));

test('two clients and a push', async (t) => {
  const { address } = await realServer(t);
  const [one, other] = [new Client({ address }), new Client({ address })];
  const first = await one.acquire('jobs', { leaseMs: 10_000 });
  await assert.rejects(other.tryAcquire('jobs', { leaseMs: 10_000 }), { kind: 'contended' });
  const pushed = other.acquire('jobs', { leaseMs: 10_000 });
  while (other.claims('jobs') === 0) await new Promise(setImmediate);
  await first.release();
  const second = await pushed;
  assert.ok(second.token > first.token);
  await second.release();
  const again = await one.acquire('jobs', { leaseMs: 10_000 });
  assert.ok(again.token > second.token, 'b09 acquired again on the same client: a larger token');
  await again.release();
});

test('a hold and a wait over many heartbeats', async (t) => {
  const { address } = await realServer(t);
  const client = new Client({ address });
  const lock = await client.acquire('jobs', { leaseMs: 1_000 });
  lock.onLost(({ message }) => assert.fail(message));
  const waiting = client.acquire('jobs', { leaseMs: 1_000 });
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  assert.equal(lock.isHeld(), true);
  await lock.release();
  await (await waiting).release();
});

test('b01 the network stops under a holder: it has lost before the next has the lock', async (t) => {
  const { address } = await realServer(t);
  const network = await stoppable(t, address);
  const holder = await new Client({ address: network.address }).acquire('jobs', { leaseMs: 1_000 });
  const waiting = new Client({ address }).acquire('jobs', { leaseMs: 1_000 });
  const order = [];
  holder.onLost(({ reason }) => order.push(`lost ${reason}`));
  network.stop();
  const next = await waiting;
  order.push('granted');
  assert.deepEqual(order, ['lost timeout', 'granted']);
  await next.release();
});

test('the server is restarted under a waiter: it asks again and is served', async (t) => {
  const first = await realServer(t);
  const client = new Client({ address: first.address });
  const lock = await client.acquire('jobs', { leaseMs: 2_000 });
  const dropped = assert.rejects(client.acquire('jobs', { leaseMs: 2_000 }), { code: 0x01, retryable: true });
  const persistent = client.acquireRetry('jobs', { leaseMs: 2_000 });
  // Both queue once a third that does not wait is told so after them.
  await assert.rejects(client.tryAcquire('jobs', { leaseMs: 2_000 }), { kind: 'contended' });
  await first.stop();
  const { reason, code } = await lock.lost;
  assert.deepEqual([reason, code], ['server_error', 0x01]);
  await dropped;
  await realServer(t, '--listen', first.address);
  const second = await persistent;
  await second.release();
});

test('a name of 300 bytes is refused, here and by the server', async (t) => {
  const { address } = await realServer(t);
  const name = 'x'.repeat(300);
  await assert.rejects(new Client({ address }).acquire(name, { leaseMs: 2_000 }), { kind: 'invalid' });
  const [host, port] = address.split(':');
  const socket = net.connect({ host, port });
  socket.write(Buffer.concat([Buffer.from('0101000007d0012c', 'hex'), Buffer.from(name)]));
  const [answer] = await once(socket, 'data');
  assert.deepEqual([...answer.subarray(0, 2)], [0x13, 0x15]);
  socket.destroy();
});

test('the samples of the README do what it says', async (t) => {
  const { address } = await realServer(t);
  const readme = readFileSync(`${HERE}README.md`, 'utf8');
  const samples = [...readme.matchAll(/```js\n(.*?)```\n\n+(?:It prints|Prints):\n\n```text\n(.*?)```/gs)];
  assert.equal(samples.length, 4, 'hold, try, wait limit, fenced write');
  for (const [, code, output] of samples) {
    const { status, stdout, stderr } = await run(['--input-type=module', '--eval', code.replaceAll('127.0.0.1:7070', address)]);
    assert.equal(stderr, '', code);
    assert.equal(status, 0, code);
    assert.equal(withoutTokens(stdout), withoutTokens(output), code);
  }
});

test('the program of the quick start hands over when it is killed', async (t) => {
  const { address } = await realServer(t);
  const page = readFileSync(`${HERE}../../docs/quick-start.md`, 'utf8');
  const programs = [...page.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code.replaceAll('127.0.0.1:7070', address));
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

test('the sample of fencing shows a stale holder refused', async (t) => {
  const { address } = await realServer(t);
  const { status, stdout, stderr } = await run(['examples/fencing/fencing.mjs', address]);
  assert.equal(stderr, '');
  assert.equal(status, 0);
  assert.deepEqual(withoutTokens(stdout).trimEnd().split('\n'), [
    'A holds the lock with token N, and stands still',
    'B holds the lock with token N',
    'B writes 200: accepted',
    'A wakes up and writes 100, without a look at the lock: refused',
    'the balance is 200',
  ]);
});

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

/** A way to the server on which everything can be made to vanish, with the connections left open. */
async function stoppable(t, address) {
  const [host, port] = address.split(':');
  const sockets = [];
  let isStopped = false;
  const pass = (from, to) => {
    sockets.push(from);
    from.on('error', () => {});
    from.on('data', (bytes) => isStopped || to.write(bytes));
    from.on('end', () => isStopped || to.end());
  };
  const server = net.createServer({ allowHalfOpen: true }, (near) => {
    const far = net.connect({ host, port, allowHalfOpen: true });
    pass(near, far);
    pass(far, near);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { address: `127.0.0.1:${server.address().port}`, stop: () => (isStopped = true) };
}
