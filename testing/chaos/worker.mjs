// One Node.js client of the server, as the Rust program chaos-worker is one: claims a lock again and again, says what it
// believes as lines of a history on standard output, and hears `keep CLAIM`, `go` and `finish` on standard input. Public
// API alone; see src/history.rs for what a stamp means.

import { writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

import { Client } from '../../clients/node/index.mjs';

const LOOK_MS = 4;
const SAY_NS = 25_000_000n;

const { values: args } = parseArgs({
  options: {
    name: { type: 'string' },
    server: { type: 'string' },
    lock: { type: 'string' },
    seed: { type: 'string' },
    'leases-ms': { type: 'string' },
    // Node.js has no CLOCK_BOOTTIME: this is how far it is from the clock that there is.
    'boottime-offset-ns': { type: 'string' },
  },
});
const worker = args.name;
const leases = args['leases-ms'].split(',').map(Number);
const offset = BigInt(args['boottime-offset-ns']);

const now = () => process.hrtime.bigint() + offset;

/** From 0 to below `end`, the same for the same seed. */
let state = BigInt(args.seed);
function below(end) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(end));
}

function say(t, event, fields) {
  // A stamp has more digits than a number of JavaScript's; a token has not.
  const rest = JSON.stringify({ event, worker, ...fields }, (_, value) => (typeof value === 'bigint' ? Number(value) : value));
  const bytes = Buffer.from(`{"t":${t},${rest.slice(1)}\n`);
  // At once and whole: what a process that is stopped has said must not lie in it.
  for (let written = 0; written < bytes.length; ) {
    try {
      written += writeSync(1, bytes, written);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

const orders = { keep: 0, finish: false };
const input = createInterface({ input: process.stdin });
input.on('line', (line) => {
  const [word, claim] = line.split(' ');
  if (word === 'keep') orders.keep = Number(claim);
  else if (word === 'go') orders.keep = 0;
  else orders.finish = true;
});
input.on('close', () => {
  orders.finish = true;
});

function write(claim, lock) {
  say(now(), 'write', { claim, lock: args.lock, token: lock.token });
}

async function hold(claim, lock) {
  say(now(), 'granted', { claim, token: lock.token });
  let reason = 'none';
  lock.onLost((loss) => {
    reason = loss.reason;
  });
  const until = now() + BigInt(20 + below(230)) * 1_000_000n;
  let said = 0n;
  let believed = 0n;
  let isKeeping = false;
  for (;;) {
    // Stamped before the question: what is held at the answer was held at this instant too.
    const asked = now();
    if (!lock.isHeld()) break;
    if (asked - said >= SAY_NS) {
      said = asked;
      say(asked, 'believed', { claim });
      write(claim, lock);
    }
    believed = asked;
    if (orders.keep === claim && !orders.finish) {
      if (!isKeeping) {
        isKeeping = true;
        say(now(), 'keeping', { claim });
      }
    } else if (asked >= until || orders.finish) {
      say(asked, 'believed', { claim });
      say(now(), 'releasing', { claim });
      return;
    }
    await sleep(LOOK_MS);
  }
  if (believed > said) say(believed, 'believed', { claim });
  // Whoever is told of the loss is told in a turn of its own.
  await sleep(0);
  say(now(), 'lost', { claim, reason });
  // As work does that was between its last look and its write.
  write(claim, lock);
}

const client = new Client({ address: args.server, connectTimeoutMs: 2500 });
for (let claim = 1; !orders.finish; claim += 1) {
  const leaseMs = leases[below(leases.length)];
  say(now(), 'ask', { claim, lock: args.lock, lease_ms: leaseMs });
  let lock;
  try {
    lock = await client.acquire(args.lock, { leaseMs });
  } catch (error) {
    say(now(), 'failed', { claim, kind: error.kind ?? String(error) });
    await sleep(20 + below(180));
    continue;
  }
  await hold(claim, lock);
  await lock.release();
  await sleep(5 + below(55));
}
process.exit(0);
