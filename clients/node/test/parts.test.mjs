// The parts that decide without touching the world: backoff, dialling, clock and timers.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { backoff, clock, dial, errors, losses, timer } from './support/internals.mjs';

const lostBy = (code) => errors.lost('jobs', losses.serverError(code, ''));
const refusedBy = (code) => errors.refused('jobs', 'one:1', losses.serverError(code, ''));

describe('backoff', () => {
  const { Backoff } = backoff;

  test('b48 delays double from 100 ms to 5 s', () => {
    const delays = new Backoff();
    const longest = Array.from({ length: 8 }, () => delays.delayMs(lostBy(0x02), 0, 1));
    assert.deepEqual(longest, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
  });

  test('b47 the jitter is full, also before the first reconnect', () => {
    for (const code of [0x01, 0x02]) {
      assert.equal(new Backoff().delayMs(lostBy(code), 0, 0), 0);
      assert.equal(new Backoff().delayMs(lostBy(code), 0, 0.5), 50);
    }
  });

  test('b47 a shutdown is answered at once but only once', () => {
    const delays = new Backoff();
    const longest = Array.from({ length: 4 }, () => delays.delayMs(lostBy(0x01), 0, 1));
    assert.deepEqual(longest, [100, 100, 200, 400]);
  });

  test('an attempt that lasted begins anew', () => {
    const delays = new Backoff();
    for (let attempt = 0; attempt < 8; attempt++) delays.delayMs(lostBy(0x02), 0, 1);
    assert.equal(delays.delayMs(lostBy(0x02), 3 * 3_600_000, 1), 100);
  });

  test('b48 what is final is not tried again', () => {
    const finals = [
      refusedBy(0x10),
      refusedBy(0x18),
      lostBy(0x13),
      errors.cancelled('jobs'),
      errors.contended('jobs'),
      errors.waitTimeout('jobs', 1),
      errors.invalid('bad'),
      errors.lost('jobs', losses.maxHold()),
    ];
    for (const error of finals) assert.equal(new Backoff().delayMs(error, 0, 1), undefined, error.message);
  });
});

describe('dial', () => {
  const two = ['one:1', 'two:2'].map((text) => ({ text, host: text.slice(0, 3), port: Number(text.slice(4)) }));
  const dialling = () => new dial.Dial(0, { name: 'jobs', addresses: two, connectTimeoutMs: 8_000 });
  const refused = { message: 'refused' };

  test('b46 each candidate has an even share of what is left', () => {
    const steps = dialling();
    assert.equal(steps.nextStep(0).type, 'look_up');
    steps.found(['10.0.0.1', '10.0.0.2']);
    const first = steps.nextStep(0);
    assert.deepEqual([first.ip, first.budgetMs], ['10.0.0.1', 2_000]);
    steps.failed(first, refused);
    // It used less than its share: the next one has the rest.
    const second = steps.nextStep(1_000);
    assert.deepEqual([second.ip, second.budgetMs], ['10.0.0.2', 3_000]);
    steps.failed(second, refused);
    assert.equal(steps.nextStep(4_000).type, 'look_up');
    steps.found(['fe80::3']);
    const third = steps.nextStep(4_500);
    assert.deepEqual([third.ip, third.budgetMs], ['fe80::3', 3_500]);
    steps.failed(third, { ...refused, code: 0x01 });
    assert.throws(() => steps.nextStep(8_000), {
      kind: 'unreachable',
      code: 0x01,
      message: /10\.0\.0\.1:1: refused; 10\.0\.0\.2:1: refused; \[fe80::3\]:2: refused$/,
    });
  });

  test('b46 a name that is not found leaves the turn to the next', () => {
    const steps = dialling();
    steps.notFound(steps.nextStep(0).address, { message: 'the name has no address' });
    assert.equal(steps.nextStep(0).address.text, 'two:2');
    steps.found(['10.0.0.3']);
    assert.equal(steps.nextStep(0).budgetMs, 8_000);
  });

  test('a client error is the word of all', () => {
    for (const [code, kind] of [[0x10, 'invalid'], [0x18, 'denied'], [0xff, 'invalid']]) {
      const steps = dialling();
      steps.nextStep(0);
      steps.found(['10.0.0.1', '10.0.0.2']);
      assert.throws(() => steps.failed(steps.nextStep(0), losses.serverError(code, '')), { kind, code });
    }
  });
});

describe('clock', () => {
  /** A clock over two that the test sets; `up` has steps of 10 ms as /proc/uptime has. */
  const world = () => {
    const time = { awake: 5_000.25, up: 90_000 };
    const uptime = () => Math.floor(time.up / 10) * 10;
    const now = clock.countingSuspend(() => time.awake, uptime, 10);
    return {
      now,
      run(ms) {
        time.awake += ms;
        time.up += ms;
      },
      sleep(ms) {
        time.up += ms;
      },
    };
  };

  test('b04 it leaps over the machine’s sleep, within two steps', () => {
    const { now, run, sleep } = world();
    const before = now();
    run(1_234.5);
    sleep(600_000);
    run(1);
    const passed = now() - before;
    assert.ok(passed >= 601_235.5 && passed <= 601_256, `${passed}`);
    run(10);
    assert.ok(Math.abs(now() - before - passed - 10) < 1e-6, 'it leaps once');
    sleep(5_000);
    assert.ok(now() - before - passed >= 5_000, 'and again after a second sleep');
  });

  test('without sleep it is the monotonic clock, whatever the steps of the other', () => {
    const { now, run } = world();
    const before = now();
    let passed = 0;
    for (let step = 0; step < 10_000; step++) {
      run(0.7 + (step % 13));
      passed += 0.7 + (step % 13);
      assert.ok(Math.abs(now() - before - passed) < 1e-3);
    }
  });

  test('the system’s is monotonic', () => {
    let latest = clock.now();
    for (let look = 0; look < 1_000; look++) {
      const now = clock.now();
      assert.ok(now >= latest);
      latest = now;
    }
  });
});

describe('timers', () => {
  test('no single wait is longer than setTimeout can', () => {
    assert.ok(timer.LONGEST_MS <= 2 ** 31 - 1);
  });

  test('a delay beyond 2^31-1 ms is waited for in pieces', (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let now = 0;
    let rung = 0;
    const forty = 40 * 24 * 3_600_000;
    timer.after(forty, () => rung++, () => now);
    while (now < forty) {
      assert.equal(rung, 0, `it does not ring after ${now} ms`);
      const piece = Math.min(3_600_000, forty - now);
      now += piece;
      t.mock.timers.tick(timer.LONGEST_MS);
    }
    t.mock.timers.tick(timer.LONGEST_MS);
    assert.equal(rung, 1);
  });

  test('one that was called off does not ring, and `Infinity` never does', async () => {
    timer.after(1, () => assert.fail('it was called off'))();
    timer.after(Infinity, () => assert.fail('never'));
    await new Promise((resolve) => timer.after(20, resolve));
  });
});
