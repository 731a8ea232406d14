// Blocks its event loop for 0.9 of its lease, with the server's answer to a heartbeat waiting in the socket (B05). The block takes as
// many real milliseconds as it is told.
import { Client } from 'monolock';

const LEASE_MS = 60_000;
const [address, blockMs] = process.argv.slice(2);
let now = 0;
const client = new Client({ address, connectTimeoutMs: 60_000, clock: () => now });
const lock = await client.acquire('jobs', { leaseMs: LEASE_MS });
const told = [];
lock.onLost(({ reason }) => told.push(`lost ${reason}`));
// The look makes a heartbeat due, which goes out in the very turn that then blocks.
now = LEASE_MS / 4;
lock.isHeld();
setImmediate(() => {
  const until = performance.now() + Number(blockMs);
  while (performance.now() < until);
  now += 0.9 * LEASE_MS;
  process.nextTick(() => told.push('unblocked'));
  setImmediate(() => {
    told.push(lock.isHeld() ? 'held' : 'not held');
    console.log(told.join(', '));
  });
});
