// The client over sockets, against servers that do what the test tells them to.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';

import * as monolock from 'monolock';
import { LEASE, patientClient } from './support/client.mjs';
import { WAITING, acquired, error, scriptedServer } from './support/server.mjs';

const { Client, MonolockError, lossOf } = monolock;

/** Addresses where nobody listens: so many that one before them has 200 ms of the 20 s, and one behind them has the rest. */
const NOBODY = Array(98).fill('127.0.0.1:1');
const SHARED = { connectTimeoutMs: 20_000 };

/** A server that grants everything to everybody. */
const granting = (t, token = 41n) => scriptedServer(t, ({ answer }) => answer(acquired(token)));

async function lockOf(t, serve, options = LEASE, config = {}) {
  const server = await scriptedServer(t, serve);
  const lock = await patientClient({ address: server.address, ...config }).acquire('jobs', options);
  t.after(() => lock.release());
  return lock;
}

describe('the package', () => {
  test('import and require give the same', () => {
    const required = createRequire(import.meta.url)('monolock');
    assert.deepEqual(Object.keys(monolock).sort(), Object.keys(required).sort());
    for (const [name, value] of Object.entries(required)) assert.equal(monolock[name], value, name);
  });

  test('Symbol.asyncDispose is there, and a lock has it', () => {
    assert.equal(typeof Symbol.asyncDispose, 'symbol');
    assert.equal(typeof monolock.Lock.prototype[Symbol.asyncDispose], 'function');
  });
});

describe('what is wrong is said before dialling', () => {
  const invalid = { kind: 'invalid', name: 'MonolockError' };

  test('b30 leases', async (t) => {
    const server = await granting(t);
    const client = patientClient({ address: server.address });
    const wrong = [0, 0.4, -1, NaN, Infinity, 2 ** 32, 1.5, undefined, null, '2000', 2000n, 1, 2, 19];
    for (const leaseMs of wrong) {
      await assert.rejects(client.acquire('jobs', { leaseMs }), invalid, `${leaseMs}`);
    }
    await assert.rejects(client.acquire('jobs'), invalid);
    await assert.rejects(client.do('jobs', undefined, () => {}), invalid);
    assert.equal(server.sockets.size, 0);
  });

  test('b29 b30 the shortest and the longest are exact', async (t) => {
    for (const leaseMs of [20, 50, 100, 399, 400, 401, 2 ** 32 - 1]) {
      let asked;
      const server = await scriptedServer(t, ({ socket, answer }) => {
        socket.once('data', (bytes) => (asked = bytes.readUInt32BE(2)));
        answer(acquired(1));
      });
      const client = patientClient({ address: server.address, clock: () => 0 });
      await (await client.acquire('jobs', { leaseMs })).release();
      assert.equal(asked, leaseMs);
    }
  });

  test('names', async (t) => {
    const server = await granting(t);
    const client = patientClient({ address: server.address });
    for (const name of ['', 'x'.repeat(256), '€'.repeat(86), 'a\ud800', undefined, 7, Buffer.from('jobs')]) {
      await assert.rejects(client.acquire(name, LEASE), invalid, String(name));
    }
    assert.equal(server.sockets.size, 0);
    for (const name of ['x'.repeat(255), '\0\n/*', ' jobs ']) await (await client.acquire(name, LEASE)).release();
  });

  test('the rest', async () => {
    const configs = [
      undefined,
      {},
      { addresses: [] },
      { addresses: 'one:1' },
      { address: 'one:1', addresses: ['two:2'] },
      { address: 'one' },
      { address: 'one:0' },
      { address: 'one:65536' },
      { address: ':7070' },
      { address: 'one:1', connectTimeoutMs: 0 },
      { address: 'one:1', connectTimeoutMs: NaN },
      { address: 'one:1', maxHoldMs: -1 },
      { address: 'one:1', tls: true },
    ];
    for (const config of configs) assert.throws(() => new Client(config), invalid, JSON.stringify(config));
    const client = new Client({ address: '127.0.0.1:1' });
    await assert.rejects(client.acquire('jobs', { ...LEASE, waitMs: -1 }), invalid);
    await assert.rejects(client.acquire('jobs', { ...LEASE, waitMs: NaN }), invalid);
    await assert.rejects(client.acquire('jobs', { ...LEASE, signal: {} }), invalid);
    await assert.rejects(client.do('jobs', LEASE), invalid);
  });
});

describe('b49 errors by kind', () => {
  const failing = async (t, serve, { call = 'acquire', options = LEASE, config = {} } = {}) => {
    const server = await scriptedServer(t, serve);
    const client = patientClient({ address: server.address, ...config });
    const failure = await client[call]('jobs', options).then(() => assert.fail('it was acquired'), (error) => error);
    assert.ok(failure instanceof MonolockError && failure instanceof Error, failure.stack);
    assert.equal(client.claims('jobs'), 0);
    const { kind, code, retryable } = failure;
    return { kind, code, retryable };
  };
  const saying = (...frames) => async (connection) => {
    await connection.frame();
    connection.write(...frames);
    connection.socket.end();
  };

  test('cancelled', async (t) => {
    const signal = AbortSignal.abort(new Error('not now'));
    const client = new Client({ address: '127.0.0.1:1' });
    await assert.rejects(client.acquire('jobs', { ...LEASE, signal }), { kind: 'cancelled', cause: signal.reason });
    const cancel = new AbortController();
    const queued = ({ answer, frame, write }) => {
      frame().then(() => {
        write(WAITING);
        cancel.abort();
        answer(WAITING);
      });
    };
    assert.deepEqual(await failing(t, queued, { options: { ...LEASE, signal: cancel.signal } }), {
      kind: 'cancelled',
      code: undefined,
      retryable: false,
    });
  });

  test('b12 wait_timeout, and the work never runs', async (t) => {
    const server = await scriptedServer(t, ({ answer }) => answer(WAITING));
    const client = patientClient({ address: server.address });
    const work = () => assert.fail('it must not run');
    for (const run of ['do', 'doRetry']) {
      await assert.rejects(client[run]('jobs', { ...LEASE, waitMs: 50 }, work), { kind: 'wait_timeout', retryable: true });
    }
    const mute = await scriptedServer(t);
    await assert.rejects(patientClient({ address: mute.address }).acquire('jobs', { ...LEASE, waitMs: 50 }), {
      kind: 'wait_timeout',
    });
  });

  test('contended', async (t) => {
    assert.deepEqual(await failing(t, ({ answer }) => answer(WAITING), { call: 'tryAcquire' }), {
      kind: 'contended',
      code: undefined,
      retryable: true,
    });
  });

  test('denied, and other client errors', async (t) => {
    for (const call of ['acquire', 'tryAcquire', 'acquireRetry']) {
      const denied = { kind: 'denied', code: 0x18, retryable: false };
      assert.deepEqual(await failing(t, saying(error(0x18, 'no\n')), { call }), denied);
    }
    for (const code of [0x10, 0x17, 0x7e, 0xff]) {
      assert.deepEqual(await failing(t, saying(error(code))), { kind: 'invalid', code, retryable: false });
    }
  });

  test('unreachable', async (t) => {
    for (const code of [0x00, 0x01, 0x02, 0x0f]) {
      assert.deepEqual(await failing(t, saying(error(code))), { kind: 'unreachable', code, retryable: true });
    }
    const unreachable = { kind: 'unreachable', code: undefined, retryable: true };
    assert.deepEqual(await failing(t, ({ socket }) => socket.destroy()), unreachable);
    assert.deepEqual(await failing(t, ({ socket }) => socket.resetAndDestroy()), unreachable);
    assert.deepEqual(await failing(t, saying(Buffer.of(0x7f))), unreachable);
    assert.deepEqual(await failing(t, undefined, { config: { connectTimeoutMs: 50 } }), unreachable);
    // 0.8 of the lease are over before the connect timeout.
    assert.deepEqual(await failing(t, undefined, { options: { leaseMs: 50 } }), unreachable);
  });

  test('lost, once queued', async (t) => {
    const lost = { kind: 'lost', code: undefined, retryable: true };
    assert.deepEqual(await failing(t, saying(WAITING)), lost);
    assert.deepEqual(await failing(t, saying(WAITING, error(0x02))), { ...lost, code: 0x02 });
    assert.deepEqual(await failing(t, saying(WAITING, error(0x13))), { ...lost, code: 0x13, retryable: false });
    const leaseMs = 200;
    let now = 0;
    const mute = async ({ frame, write }) => {
      await frame();
      // A quarter of the lease late: the heartbeat that is due at once shows that the client is queued.
      now = leaseMs / 4;
      write(WAITING);
      await frame();
      now = leaseMs;
    };
    assert.deepEqual(await failing(t, mute, { options: { leaseMs }, config: { clock: () => now } }), lost);
  });
});

describe('b46 addresses', () => {
  test('every one is tried, also behind one that accepts and stays mute, and one that is no TLS', async (t) => {
    const [mute, living] = [await scriptedServer(t), await granting(t)];
    const client = new Client({ addresses: ['127.0.0.1:1', mute.address, ...NOBODY, living.address], ...SHARED });
    await (await client.acquire('jobs', LEASE)).release();
    assert.equal(mute.sockets.size, 1);
  });

  test('one that fails after connecting moves on as well', async (t) => {
    const stopping = await scriptedServer(t, async (connection) => {
      await connection.frame();
      connection.socket.end(error(0x01));
    });
    const living = await granting(t);
    const client = patientClient({ addresses: [stopping.address, living.address] });
    await (await client.acquire('jobs', LEASE)).release();
  });

  test('names are looked up at every attempt, and all that they resolve to is tried', async (t) => {
    const living = await granting(t);
    let asked = 0;
    const lookup = (host, options, callback) => {
      assert.equal(host, 'locks.example');
      asked += 1;
      setImmediate(callback, null, [{ address: '::1', family: 6 }, { address: '127.0.0.1', family: 4 }]);
    };
    const client = patientClient({ address: `locks.example:${living.port}`, lookup });
    for (let attempt = 1; attempt <= 2; attempt++) {
      await (await client.acquire('jobs', LEASE)).release();
      assert.equal(asked, attempt);
    }
  });

  test('a look-up that hangs is waited for once, and not longer than its share', async (t) => {
    const living = await granting(t);
    let asked = 0;
    const lookup = () => {
      asked += 1;
    };
    const client = new Client({ addresses: ['locks.example:1', ...NOBODY, living.address], lookup, ...SHARED });
    const locks = await Promise.all(['one', 'two', 'three'].map((name) => client.acquire(name, LEASE)));
    assert.equal(asked, 1);
    await Promise.all(locks.map((lock) => lock.release()));
  });

  test('a look-up that throws or finds nothing is a failed one', async () => {
    for (const lookup of [
      () => {
        throw new Error('no resolver');
      },
      (host, options, callback) => callback(null, []),
      (host, options, callback) => callback(new Error('no such name')),
    ]) {
      const client = patientClient({ address: 'locks.example:1', lookup });
      for (let attempt = 1; attempt <= 2; attempt++) {
        await assert.rejects(client.acquire('jobs', LEASE), { kind: 'unreachable' });
      }
    }
  });
});

describe('b08 the loss', () => {
  /** A lock, and the server's end of its connection. */
  const held = async (t) => {
    let connection;
    const lock = await lockOf(t, (accepted) => {
      connection = accepted;
      accepted.answer(acquired(41));
    });
    return { lock, connection };
  };

  test('is told before, during and after, once each, with its reason', async (t) => {
    const { lock, connection } = await held(t);
    const told = [];
    lock.onLost((loss) => told.push(['first', loss]));
    lock.onLost(() => told.push('taken back'))();
    lock.signal.addEventListener('abort', () => {
      told.push('aborted');
      lock.onLost((loss) => told.push(['during', loss]));
    });
    connection.write(error(0x02, 'go'));
    const loss = await lock.lost;
    lock.onLost((after) => told.push(['after', after]));
    assert.deepEqual(told, ['aborted', ['during', loss], ['first', loss], ['after', loss]]);
    assert.deepEqual({ ...loss }, { reason: 'server_error', code: 0x02, message: 'the server said 0x02: go' });
    assert.equal(lock.loss, loss);
    assert.equal(lock.signal.reason.kind, 'lost');
    assert.equal(lossOf(lock.signal.reason), loss);
    assert.equal(lock.isHeld(), false);
  });

  const reasons = {
    closed: ({ socket }) => socket.end(),
    server_error: ({ write }) => write(error(0x0f)),
    protocol_violation: ({ write }) => write(WAITING),
  };
  for (const [reason, end] of Object.entries(reasons)) {
    test(reason, async (t) => {
      const { lock, connection } = await held(t);
      end(connection);
      assert.equal((await lock.lost).reason, reason);
    });
  }

  test('timeout', async (t) => {
    const leaseMs = 200;
    let now = 0;
    const lock = await lockOf(t, ({ answer }) => answer(acquired(41)), { leaseMs }, { clock: () => now });
    now = 0.8 * leaseMs;
    assert.equal((await lock.lost).reason, 'timeout');
  });

  test('a reset is a connection that closed', async (t) => {
    const { lock, connection } = await held(t);
    connection.socket.resetAndDestroy();
    const { reason, cause } = await lock.lost;
    assert.deepEqual([reason, cause.code], ['closed', 'ECONNRESET']);
  });

  test('b15 max_hold', async (t) => {
    const lock = await lockOf(t, ({ answer }) => answer(acquired(41)), LEASE, { maxHoldMs: 50 });
    assert.equal((await lock.lost).reason, 'max_hold');
  });

  test('b04 the clock alone finds it out, and says so before it says no', async (t) => {
    let slept = 0;
    const clock = () => performance.now() + slept;
    const lock = await lockOf(t, ({ answer }) => answer(acquired(41)), LEASE, { clock });
    const told = [];
    lock.onLost(({ reason }) => told.push(reason));
    assert.equal(lock.isHeld(), true);
    slept = 600_000;
    assert.equal(lock.isHeld(), false);
    assert.deepEqual(told, ['timeout']);
    slept = 0;
    assert.equal(lock.isHeld(), false, 'once no, always no');
  });

  test('a callback that throws hurts nobody else, and surfaces', async (t) => {
    const { lock, connection } = await held(t);
    const listeners = process.rawListeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    const surfaced = once(process, 'uncaughtException');
    const told = [];
    lock.onLost(() => {
      throw new Error('by the callback');
    });
    lock.onLost(() => told.push('the other'));
    connection.socket.end();
    const [uncaught] = await surfaced;
    for (const listener of listeners) process.on('uncaughtException', listener);
    assert.equal(uncaught.message, 'by the callback');
    assert.deepEqual(told, ['the other']);
  });

  test('a release is no loss', async (t) => {
    const lock = await lockOf(t, ({ answer }) => answer(acquired(41)));
    lock.onLost(() => assert.fail('it was released'));
    lock.lost.then(() => assert.fail('it was released'));
    await lock.release();
    lock.onLost(() => assert.fail('it was released'));
    await turn();
    assert.deepEqual([lock.isHeld(), lock.loss, lock.signal.aborted], [false, undefined, false]);
  });
});

describe('holding', () => {
  test('b09 released twice: harmless; the connection closes at once', async (t) => {
    const server = await granting(t);
    const client = patientClient({ address: server.address });
    const lock = await client.acquire('jobs', LEASE);
    await Promise.all([lock.release(), lock.release()]);
    await lock.release();
    const [socket] = server.sockets;
    if (!socket.closed) await once(socket, 'close');
  });

  test('b59 tokens are exact', async (t) => {
    for (const token of [1n, 2n ** 53n + 1n, 2n ** 64n - 1n]) {
      const lock = await lockOf(t, ({ answer }) => answer(acquired(token)));
      assert.equal(lock.token, token);
    }
  });

  test('b38 frames in single bytes', async (t) => {
    const lock = await lockOf(t, async ({ socket, frame }) => {
      socket.setNoDelay(true);
      await frame();
      for (const byte of Buffer.concat([WAITING, acquired(41)])) {
        socket.write(Buffer.of(byte));
        await turn();
      }
    });
    assert.equal(lock.token, 41n);
  });

  test('b27 claims are counted', async (t) => {
    const server = await scriptedServer(t, ({ answer }, number) => answer(number === 0 ? acquired(41) : WAITING));
    const client = patientClient({ address: server.address });
    assert.equal(client.claims('jobs'), 0);
    const lock = await client.acquire('jobs', LEASE);
    const cancel = new AbortController();
    const second = client.acquire('jobs', { ...LEASE, signal: cancel.signal });
    assert.deepEqual([client.claims('jobs'), client.claims('other')], [2, 0]);
    cancel.abort();
    await assert.rejects(second, { kind: 'cancelled' });
    assert.equal(client.claims('jobs'), 1);
    await lock.release();
    assert.equal(client.claims('jobs'), 0);
  });

  test('an abort after acquire() leaves the lock alone', async (t) => {
    const cancel = new AbortController();
    const lock = await lockOf(t, ({ answer }) => answer(acquired(41)), { ...LEASE, signal: cancel.signal });
    cancel.abort();
    assert.equal(lock.isHeld(), true);
  });
});

describe('work under a lock', () => {
  const running = async (t, serve, config = {}) => {
    const server = await scriptedServer(t, serve);
    return { server, client: patientClient({ address: server.address, ...config }) };
  };
  const forever = ({ answer }) => answer(acquired(41));
  const lostBy = (reason) => (error) => error.kind === 'lost' && error.loss.reason === reason;
  const untilAborted = (signal) => (signal.aborted ? undefined : once(signal, 'abort'));

  test('its value is the call’s, and the lock is released', async (t) => {
    const { server, client } = await running(t, forever);
    const value = await client.do('jobs', LEASE, ({ token, isHeld, name }) => [name, token, isHeld()]);
    assert.deepEqual(value, ['jobs', 41n, true]);
    const [socket] = server.sockets;
    if (!socket.closed) await once(socket, 'close');
  });

  test('its error is the call’s, thrown at once or later, and the lock is released', async (t) => {
    const { client } = await running(t, forever);
    const failure = new Error('by the work');
    const throwing = () => {
      throw failure;
    };
    for (const work of [throwing, async () => throwing()]) {
      await assert.rejects(client.do('jobs', LEASE, work), (error) => error === failure);
      assert.equal(client.claims('jobs'), 0);
      assert.equal(lossOf(failure), undefined);
    }
    await assert.rejects(client.do('jobs', LEASE, async () => Promise.reject(undefined)), (error) => error === undefined);
  });

  test('b10 an abort asks it to stop, and keeps the lock until it has ended', async (t) => {
    const leaseMs = 100;
    let now = 0;
    let connection;
    const serve = async (accepted) => {
      connection = accepted;
      await accepted.frame();
      accepted.write(acquired(41));
    };
    const { client } = await running(t, serve, { clock: () => now });
    const cancel = new AbortController();
    const value = await client.do('jobs', { leaseMs, signal: cancel.signal }, async ({ signal, isHeld }) => {
      cancel.abort('that will do');
      assert.equal(signal.reason, 'that will do');
      // Three leases to wind up, with a heartbeat each quarter.
      for (let beat = 0; beat < 12; beat++) {
        now += leaseMs / 4;
        assert.equal(await connection.frame(), 'heartbeat');
        connection.write(acquired(41));
        assert.equal(isHeld(), true);
      }
      return 'wound up';
    });
    assert.equal(value, 'wound up');
    while ((await connection.frame()) !== undefined);
  });

  test('a loss aborts it; when it ends well all the same, the call says lost', async (t) => {
    const { client } = await running(t, async ({ frame, socket }) => {
      await frame();
      socket.end(acquired(41));
    });
    const work = async ({ signal, lost, onLost, isHeld }) => {
      await untilAborted(signal);
      onLost(({ reason }) => assert.equal(reason, 'closed'));
      assert.deepEqual([signal.reason.kind, (await lost).reason, isHeld()], ['lost', 'closed', false]);
    };
    await assert.rejects(client.do('jobs', LEASE, work), lostBy('closed'));
    await assert.rejects(
      client.do('jobs', LEASE, async ({ signal }) => {
        await untilAborted(signal);
        signal.throwIfAborted();
      }),
      { kind: 'lost' },
    );
  });

  test('b11 its own error stands, and the loss is joined to it', async (t) => {
    const { client } = await running(t, async ({ frame, socket }) => {
      await frame();
      socket.end(acquired(41));
    });
    const failure = Object.freeze(new Error('by the work'));
    const work = async ({ signal }) => {
      await untilAborted(signal);
      throw failure;
    };
    await assert.rejects(client.do('jobs', LEASE, work), (error) => error === failure);
    assert.equal(lossOf(failure).reason, 'closed');
    assert.equal(lossOf(undefined), undefined);
  });

  test('a loss that nobody had looked for is found by the clock when it ends', async (t) => {
    let slept = 0;
    const { client } = await running(t, forever, { clock: () => performance.now() + slept });
    const work = () => {
      slept = 600_000;
    };
    await assert.rejects(client.do('jobs', LEASE, work), lostBy('timeout'));
  });

  test('tryDo does not wait', async (t) => {
    const { client } = await running(t, ({ answer }) => answer(WAITING));
    await assert.rejects(client.tryDo('jobs', LEASE, () => assert.fail('it must not run')), { kind: 'contended' });
  });
});

describe('trying again', () => {
  test('b14 b47 b48 until it is obtained; the work runs once', async (t) => {
    const attempts = [
      async ({ frame, socket }) => (await frame(), socket.end(error(0x01))),
      async ({ socket }) => socket.destroy(),
      async ({ frame, socket }) => (await frame(), socket.end(Buffer.concat([WAITING, error(0x02)]))),
      async ({ answer }) => answer(acquired(44)),
    ];
    const server = await scriptedServer(t, (connection, number) => attempts[number](connection));
    const client = patientClient({ address: server.address });
    let runs = 0;
    const token = await client.doRetry('jobs', LEASE, (context) => {
      runs += 1;
      return context.token;
    });
    assert.deepEqual([token, runs, server.sockets.size], [44n, 1, 4]);
  });

  test('not after a client error, nor once the work has run', async (t) => {
    const server = await scriptedServer(t, async ({ frame, socket }, number) => {
      await frame();
      socket.end(number === 0 ? error(0x18) : acquired(41));
    });
    const client = patientClient({ address: server.address });
    await assert.rejects(client.doRetry('jobs', LEASE, () => assert.fail('it must not run')), { kind: 'denied' });
    let runs = 0;
    const work = ({ lost }) => {
      runs += 1;
      return lost;
    };
    await assert.rejects(client.doRetry('jobs', LEASE, work), { kind: 'lost' });
    assert.deepEqual([runs, server.sockets.size], [1, 2]);
  });

  test('a cancel or the wait limit ends a pause between attempts', async () => {
    const client = new Client({ address: '127.0.0.1:1' });
    await assert.rejects(client.acquireRetry('jobs', { ...LEASE, waitMs: 300 }), { kind: 'wait_timeout' });
    const cancel = new AbortController();
    const acquiring = client.acquireRetry('jobs', { ...LEASE, signal: cancel.signal });
    setTimeout(() => cancel.abort(), 300);
    await assert.rejects(acquiring, { kind: 'cancelled' });
  });
});

describe('TLS', () => {
  const pem = (name) => readFileSync(new URL(`certs/${name}`, import.meta.url));
  const server = { key: pem('server.key'), cert: pem('server.pem'), ca: pem('ca.pem') };
  const ca = pem('ca.pem');
  const secured = (t, options) => scriptedServer(t, ({ answer }) => answer(acquired(41)), { ...server, ...options });
  const acquire = async (address, tls) => (await patientClient({ address, tls }).acquire('jobs', LEASE)).release();

  test('with an authority, by address and by name', async (t) => {
    const { address, port } = await secured(t);
    await acquire(address, { ca });
    await acquire(`localhost:${port}`, { ca });
    await acquire(address, { ca, servername: 'localhost' });
  });

  test('the name of the configuration is the one asked for', async (t) => {
    let asked;
    const { port } = await secured(t, { SNICallback: (name, done) => ((asked = name), done(null)) });
    await acquire(`localhost:${port}`, { ca });
    assert.equal(asked, 'localhost');
  });

  test('an unknown authority, and another name, are unreachable', async (t) => {
    const { address } = await secured(t);
    await assert.rejects(acquire(address, {}), { kind: 'unreachable' });
    await assert.rejects(acquire(address, { ca, servername: 'elsewhere' }), { kind: 'unreachable' });
    await assert.rejects(acquire(address, { ca: 'no PEM', cert: 'nor this' }), { kind: 'unreachable' });
  });

  test('mutual', async (t) => {
    const { address } = await secured(t, { requestCert: true, rejectUnauthorized: true });
    await acquire(address, { ca, cert: pem('client.pem'), key: pem('client.key') });
    await assert.rejects(acquire(address, { ca }), { kind: 'unreachable' });
  });

  test('b46 a server that is no TLS leaves the turn to the next', async (t) => {
    const [mute, plain, living] = [await scriptedServer(t), await granting(t), await secured(t)];
    const addresses = [mute.address, ...NOBODY, plain.address, living.address];
    const client = new Client({ addresses, tls: { ca }, ...SHARED });
    await (await client.acquire('jobs', LEASE)).release();
  });
});
