// Servers to test against: the real one, and one that does what a test tells it to.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import net from 'node:net';
import { createInterface } from 'node:readline';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';

const ROOT = new URL('../../../../', import.meta.url);

/** Starts `monolock` on a free port. It ends with the test. */
export async function realServer(t) {
  const binary = process.env.MONOLOCK_BIN ?? fileURLToPath(new URL('target/debug/monolock', ROOT));
  if (!existsSync(binary)) {
    throw new Error(`${binary} is not there: run \`cargo build --bin monolock\`, or set MONOLOCK_BIN`);
  }
  const child = spawn(binary, ['--listen', '127.0.0.1:0', '--log-format', 'json'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const stop = async (signal = 'SIGTERM') => {
    child.kill(signal);
    await ended;
  };
  t.after(() => stop('SIGKILL'));
  const address = await new Promise((resolve, reject) => {
    child.once('exit', () => reject(new Error('the server ended before it listened')));
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (line.includes('listening')) resolve(addressIn(JSON.parse(line)));
    });
  });
  return { address, stop };
}

/** The field `address`, however deep the log puts it. */
function addressIn(entry) {
  if (typeof entry !== 'object' || entry === null) return undefined;
  return entry.address ?? Object.values(entry).map(addressIn).find((found) => found !== undefined);
}

export const WAITING = Buffer.of(0x11);

export function acquired(token) {
  const frame = Buffer.alloc(9);
  frame.writeUInt8(0x12, 0);
  frame.writeBigUInt64BE(BigInt(token), 1);
  return frame;
}

export function error(code, reason = '') {
  const text = Buffer.from(reason);
  return Buffer.concat([Buffer.of(0x13, code, text.length), text]);
}

/**
 * A server that calls `serve(connection, number)` for each connection, counted from 0. A connection is its `socket` and the queue of
 * the `frames` that came: `await frame()` takes the next, `'acquire'` or `'heartbeat'`, or `undefined` when the client is gone.
 */
export async function scriptedServer(t, serve, tlsOptions) {
  const sockets = new Set();
  const take = (socket) => {
    const number = sockets.size;
    sockets.add(socket);
    socket.on('error', () => {});
    serve?.(connection(socket), number);
  };
  const server = tlsOptions === undefined ? net.createServer(take) : tls.createServer(tlsOptions, take);
  server.on('tlsClientError', () => {});
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
  t.after(close);
  return { address: `127.0.0.1:${server.address().port}`, port: server.address().port, sockets, close };
}

function connection(socket) {
  const frames = [];
  const waiting = [];
  let undecoded = Buffer.alloc(0);
  let isOver = false;
  const give = () => {
    while (waiting.length > 0 && (frames.length > 0 || isOver)) waiting.shift()(frames.shift());
  };
  socket.on('data', (bytes) => {
    undecoded = Buffer.concat([undecoded, bytes]);
    while (undecoded.length > 0) {
      const size = undecoded[0] === 0x02 ? 1 : undecoded.length < 8 ? Infinity : 8 + undecoded.readUInt16BE(6);
      if (undecoded.length < size) break;
      frames.push(size === 1 ? 'heartbeat' : 'acquire');
      undecoded = undecoded.subarray(size);
    }
    give();
  });
  const end = () => {
    isOver = true;
    give();
  };
  socket.on('end', end);
  socket.on('close', end);
  const frame = () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      give();
    });
  return {
    socket,
    frame,
    write: (...bytes) => socket.write(Buffer.concat(bytes)),
    /** Answers everything with the same. */
    async answer(bytes) {
      while ((await frame()) !== undefined) socket.write(bytes);
    },
  };
}
