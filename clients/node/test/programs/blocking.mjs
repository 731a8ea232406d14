// Blocks its event loop for 0.9 of its lease, with the server's answers waiting in the socket (B05).
import { Client } from 'monolock';

const LEASE_MS = 1_000;
const lock = await new Client({ address: process.argv[2] }).acquire('jobs', { leaseMs: LEASE_MS });
const told = [];
lock.onLost(({ reason }) => told.push(`lost ${reason}`));
// Into the callback of a timer, so that what comes next is the event loop's choice.
setTimeout(() => {
  const until = performance.now() + 0.9 * LEASE_MS;
  while (performance.now() < until);
  process.nextTick(() => told.push('unblocked'));
  setImmediate(() => {
    told.push(lock.isHeld() ? 'held' : 'not held');
    console.log(told.join(', '));
  });
}, 10);
