// The rules of a session, with a clock that the test sets.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { session as sessionModule } from './support/internals.mjs';
import { withSeeds } from './support/random.mjs';
import { WAITING, acquired, error } from './support/server.mjs';

const { Session } = sessionModule;

/** A session with its story: each step is told as one line. */
class Story {
  constructor({ leaseMs = 10_000, maxHoldMs, name = 'jobs' } = {}) {
    this.session = new Session(0, { name, leaseMs, maxHoldMs });
    this.sent = [];
  }

  /** What was sent by now, if anything. */
  transmit(now) {
    const bytes = this.session.transmit(now);
    if (bytes === undefined) return undefined;
    this.sent.push(now);
    return bytes[0] === 0x01 ? 'acquire' : 'heartbeat';
  }

  receive(now, ...frames) {
    return this.session.receive(now, Buffer.concat(frames)).map(line);
  }

  tick(now) {
    return this.session.tick(now).map(line);
  }

  /** Sends at `at`, and has the answer a moment later. */
  exchange(at, answer, rtt = 0) {
    this.tick(at);
    assert.notEqual(this.transmit(at), undefined, `something is sent at ${at}`);
    return this.receive(at + rtt, answer);
  }
}

function line({ type, token, loss }) {
  if (loss !== undefined) return loss.code === undefined ? `${type}: ${loss.reason}` : `${type}: ${loss.reason} ${loss.code}`;
  return token === undefined ? type : `${type} ${token}`;
}

describe('confirmation', () => {
  test('the give-up counts from the sending of the ACQUIRE, not from the receipt of the answer', () => {
    const story = new Story();
    story.transmit(100);
    assert.deepEqual(story.receive(2_100, acquired(41)), ['granted 41']);
    assert.equal(story.session.givesUpAt, 8_100);
    assert.deepEqual(story.tick(8_099.9), []);
    assert.deepEqual(story.tick(8_100), ['lost: timeout']);
  });

  test('b02 late replies move the give-up on from their frame’s sending', () => {
    const story = new Story();
    story.exchange(0, acquired(41));
    story.exchange(2_500, acquired(41), 3_000);
    assert.equal(story.session.givesUpAt, 10_500);
  });

  test('b02b the push confirms nothing', () => {
    const story = new Story();
    story.exchange(0, WAITING);
    story.tick(2_500);
    assert.equal(story.transmit(2_500), 'heartbeat');
    assert.deepEqual(story.receive(2_600, acquired(42)), ['granted 42']);
    assert.equal(story.session.givesUpAt, 8_000);
    assert.equal(story.session.nextDeadline, 8_000, 'the heartbeat is still unanswered');
    assert.deepEqual(story.tick(8_000), ['lost: timeout']);
  });

  test('the frame after the push confirms the heartbeat that was under way', () => {
    const story = new Story();
    story.exchange(0, WAITING);
    story.tick(2_500);
    story.transmit(2_500);
    story.receive(2_600, acquired(42), acquired(42));
    assert.equal(story.session.givesUpAt, 10_500);
  });

  test('the clock is looked at before what lies in the socket', () => {
    const story = new Story();
    story.exchange(0, acquired(41));
    story.tick(2_500);
    story.transmit(2_500);
    assert.deepEqual(story.receive(8_000, acquired(41)), ['lost: timeout']);
    assert.equal(story.session.givesUpAt, undefined);
    assert.deepEqual(story.receive(8_001, acquired(41)), []);
  });

  test('a server that says nothing at all is given up like any other', () => {
    const story = new Story();
    story.transmit(0);
    assert.deepEqual(story.tick(8_000), ['refused: timeout']);
  });

  test('b19 a waiter gives up as a holder does', () => {
    const story = new Story();
    story.exchange(0, WAITING);
    assert.deepEqual(story.tick(8_000), ['lost: timeout']);
  });

  test('time that steps back stands still', () => {
    const story = new Story();
    story.exchange(1_000, acquired(41));
    story.tick(900);
    assert.equal(story.session.givesUpAt, 9_000);
  });
});

describe('heartbeats', () => {
  /** When the next heartbeat goes out, counted from the sending of the ACQUIRE at 0. */
  const nextBeat = (leaseMs, rtt) => {
    const story = new Story({ leaseMs });
    story.exchange(0, acquired(41), rtt);
    return story.session.hasToTransmit ? rtt : story.session.nextDeadline;
  };

  test('a quarter of the lease, less two round trips, from send to send', () => {
    assert.equal(nextBeat(10_000, 0), 2_500);
    assert.equal(nextBeat(10_000, 200), 2_100);
  });

  test('not below the floor of 100 ms, or of a quarter of the lease', () => {
    assert.equal(nextBeat(1_000, 100), 100);
    assert.equal(nextBeat(400, 40), 100);
    assert.equal(nextBeat(200, 10), 50);
  });

  test('as soon as the answer is in, where two round trips are a quarter of the lease', () => {
    assert.equal(nextBeat(1_000, 125), 125);
    assert.equal(nextBeat(1_000, 300), 300);
  });

  test('b45 at least once a minute, however long the lease', () => {
    assert.equal(nextBeat(30 * 60_000, 10), 60_000);
    assert.equal(nextBeat(2 ** 32 - 1, 0), 60_000);
  });

  test('the round trip is smoothed', () => {
    const story = new Story();
    story.exchange(0, acquired(41), 100);
    story.exchange(2_300, acquired(41), 200);
    // 0.2 · 200 + 0.8 · 100 = 120
    assert.equal(story.session.nextDeadline, 2_300 + 2_500 - 240);
  });

  test('at most one is unanswered', () => {
    const story = new Story();
    story.exchange(0, acquired(41));
    story.tick(2_500);
    assert.equal(story.transmit(2_500), 'heartbeat');
    for (const now of [2_501, 5_000, 7_999]) {
      story.tick(now);
      assert.equal(story.transmit(now), undefined);
    }
  });

  test('b07 hours under a short lease with prompt answers: never lost', () => {
    const story = new Story({ leaseMs: 400 });
    story.exchange(0, acquired(41), 1);
    const end = 3 * 3_600_000;
    while (story.session.nextDeadline < end) {
      assert.deepEqual(story.exchange(story.session.nextDeadline, acquired(41), 1), []);
    }
    assert.equal(story.sent.length, 1 + end / 100 - 1);
  });

  test('b14 a second session beats as the first did', () => {
    for (let hold = 1; hold <= 2; hold++) {
      const story = new Story();
      story.exchange(0, acquired(hold));
      story.exchange(2_500, acquired(hold));
      assert.equal(story.session.nextDeadline, 5_000);
    }
  });
});

describe('ends', () => {
  const after = (...frames) => {
    const story = new Story();
    story.transmit(0);
    return story.receive(1, ...frames);
  };

  test('b08 each has its reason', () => {
    assert.deepEqual(after(acquired(41), WAITING), ['granted 41', 'lost: protocol_violation']);
    assert.deepEqual(after(acquired(41), acquired(42)), ['granted 41', 'lost: protocol_violation']);
    assert.deepEqual(after(acquired(41), acquired(41)), ['granted 41', 'lost: protocol_violation'], 'a reply to nothing');
    assert.deepEqual(after(WAITING, WAITING), ['queued', 'lost: protocol_violation'], 'a reply to nothing');
    assert.deepEqual(after(acquired(41), Buffer.of(0x7f)), ['granted 41', 'lost: protocol_violation']);
    assert.deepEqual(after(acquired(0)), ['refused: protocol_violation']);
    assert.deepEqual(after(WAITING, error(0x02, 'kicked')), ['queued', 'lost: server_error 2']);
    assert.deepEqual(after(error(0x18)), ['refused: server_error 24']);
    assert.deepEqual(after(acquired(41), error(0x01), acquired(41)), ['granted 41', 'lost: server_error 1']);
  });

  test('the connection closes', () => {
    const story = new Story();
    story.exchange(0, acquired(41));
    assert.deepEqual(story.session.disconnected(10).map(line), ['lost: closed']);
    assert.deepEqual(story.session.disconnected(11), []);
    assert.equal(story.session.transmit(12), undefined);
    assert.equal(story.session.nextDeadline, undefined);
  });

  test('a connection that closes after the give-up was lost by the clock', () => {
    const story = new Story();
    story.exchange(0, acquired(41));
    assert.deepEqual(story.session.disconnected(8_000).map(line), ['lost: timeout']);
  });

  test('b15 max_hold counts from the grant', () => {
    const story = new Story({ maxHoldMs: 3_000 });
    story.exchange(0, WAITING);
    story.exchange(2_500, acquired(42));
    story.receive(2_501, acquired(42));
    story.exchange(5_000, acquired(42));
    assert.deepEqual(story.tick(5_499), []);
    assert.deepEqual(story.tick(5_500), ['lost: max_hold']);
  });

  test('b03 after a pause both limits are past: the earlier is the reason', () => {
    const story = new Story({ maxHoldMs: 9_000 });
    story.exchange(0, acquired(41));
    assert.deepEqual(story.tick(100_000), ['lost: timeout']);
  });
});

describe('at random', () => {
  test('b38 streams cut anywhere mean the same', () => {
    const stream = [WAITING, acquired(42), acquired(42), error(0x02, 'that is it')];
    const whole = Buffer.concat(stream);
    withSeeds(500, (random) => {
      const story = new Story();
      story.transmit(0);
      const told = [];
      let cut = 0;
      while (cut < whole.length) {
        const next = Math.min(whole.length, cut + 1 + Math.floor(random() * 6));
        told.push(...story.receive(cut, whole.subarray(cut, next)));
        cut = next;
        // A heartbeat is under way whenever one may be, so that the answers in the stream answer something.
        story.tick(2_500);
        story.transmit(2_500);
      }
      assert.deepEqual(told, ['queued', 'granted 42', 'lost: server_error 2']);
    });
  });

  test('b01 b02 the client has lost always before the server has expired', () => {
    withSeeds(3_000, (random) => {
      const { clientLost, serverExpired } = untilDarkness(random);
      assert.ok(clientLost < serverExpired, `client lost at ${clientLost}, server expired at ${serverExpired}`);
    });
  });
});

/**
 * A session and a server with random delays either way, between which it grows dark at some instant: what is sent from then on, on one
 * way or both, arrives nowhere.
 */
function untilDarkness(random) {
  const leaseMs = 20 + Math.floor(random() ** 3 * 20_000);
  const slowest = leaseMs * random() * 0.5;
  const darkUp = leaseMs * random() * 6;
  const darkDown = random() < 0.5 ? darkUp : darkUp + leaseMs * (random() - 0.5);
  const promotedAt = random() < 0.5 ? leaseMs * random() * 6 : 0;
  const session = new Session(0, { name: 'jobs', leaseMs });
  /** What is under way, as `[when, whom, what]`; each way keeps its order. */
  let post = [];
  const latest = { server: 0, client: 0 };
  const send = (now, whom, what) => {
    if (now >= (whom === 'server' ? darkUp : darkDown)) return;
    latest[whom] = Math.max(latest[whom], now + slowest * random());
    post.push([latest[whom], whom, what]);
  };
  /** When the server last heard of the client. */
  let heard;
  let isHolder = false;
  let clientLost;
  for (let now = 0; ; ) {
    if (session.isOver) clientLost ??= now;
    const bytes = session.transmit(now);
    if (bytes !== undefined) send(now, 'server', bytes);
    const deadlines = [session.nextDeadline ?? Infinity, ...post.map(([when]) => when)];
    if (heard !== undefined) deadlines.push(heard + leaseMs, isHolder ? Infinity : promotedAt);
    const next = Math.min(...deadlines);
    // It grew dark before the server had heard of the client at all.
    if (next === Infinity) return { clientLost, serverExpired: Infinity };
    now = Math.max(now, next);
    if (heard !== undefined && now >= heard + leaseMs) return { clientLost: clientLost ?? Infinity, serverExpired: now };
    session.tick(now);
    if (heard !== undefined && !isHolder && promotedAt <= now) {
      isHolder = true;
      send(now, 'client', acquired(7));
    }
    const arrived = post.filter(([when]) => when <= now);
    post = post.filter(([when]) => when > now);
    for (const [, whom, what] of arrived) {
      if (whom === 'client') {
        session.receive(now, what);
      } else {
        isHolder ||= promotedAt <= now;
        heard = now;
        send(now, 'client', isHolder ? acquired(7) : WAITING);
      }
    }
  }
}
