// The golden vectors that all clients share, and text from strangers.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import wire from '../lib/wire.js';
import { printable, quoted } from './support/internals.mjs';

const vectors = JSON.parse(readFileSync(new URL('../../../testing/conformance/vectors.json', import.meta.url)));

for (const { name, frame, hex } of vectors.client) {
  test(`client frame: ${name}`, () => {
    const bytes =
      frame.type === 'acquire'
        ? wire.encodeAcquire({ leaseMs: frame.lease_ms, name: frame.name })
        : wire.encodeHeartbeat();
    assert.equal(bytes.toString('hex'), hex);
  });
}

/** A decoded frame as the vectors write it. */
function written({ type, token, code, reason }) {
  if (type === 'acquired') return { type, token: String(token) };
  return type === 'error' ? { type, code, reason } : { type };
}

function decodeAll(bytes) {
  const frames = [];
  let rest = bytes;
  for (let frame; (frame = wire.decodeServer(rest)) !== undefined; rest = rest.subarray(frame.size)) {
    frames.push(written(frame));
    if (frame.type === 'unknown') break;
  }
  return { frames, rest };
}

for (const { name, frame, hex } of vectors.server) {
  test(`server frame: ${name}`, () => {
    const bytes = Buffer.from(hex, 'hex');
    assert.deepEqual(decodeAll(bytes), { frames: [frame], rest: Buffer.alloc(0) });
    for (let cut = 0; cut < bytes.length; cut++) {
      assert.equal(wire.decodeServer(bytes.subarray(0, cut)), undefined, `cut after ${cut} bytes it is no frame yet`);
    }
  });
}

for (const { name, frames, hex } of vectors.server_streams) {
  test(`server stream: ${name}`, () => {
    assert.deepEqual(decodeAll(Buffer.from(hex, 'hex')).frames, frames);
  });
}

for (const { name, hex } of vectors.server_invalid) {
  test(`no server frame: ${name}`, () => {
    assert.equal(wire.decodeServer(Buffer.from(hex, 'hex')).type, 'unknown');
  });
}

for (const { code, class: expected } of vectors.classes) {
  test(`code ${wire.hex(code)} is a ${expected}`, () => {
    assert.equal(wire.isClientError(code) ? 'client_error' : 'server_condition', expected);
  });
}

test('b52 nothing raw reaches a terminal', () => {
  assert.equal(printable('plain äö 漢 🔒'), 'plain äö 漢 🔒');
  assert.equal(printable('a\n\u001b[31m\u0000\u202e\u0085\ud800'), 'a\\u{a}\\u{1b}[31m\\u{0}\\u{202e}\\u{85}\\u{d800}');
  assert.equal(quoted('a"b\\c'), '"a\\"b\\\\c"');
});
