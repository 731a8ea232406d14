// Does all that a client can do, and lets go of it: it must end by itself.
import { Client } from 'monolock';

const client = new Client({ address: process.argv[2] });
await client.do('jobs', { leaseMs: 3_600_000, waitMs: 3_600_000, signal: new AbortController().signal }, () => {});
const lock = await client.acquire('jobs', { leaseMs: 3_600_000 });
await client.tryAcquire('jobs', { leaseMs: 3_600_000 }).catch(() => {});
await client.acquire('jobs', { leaseMs: 3_600_000, waitMs: 20 }).catch(() => {});
await lock.release();
console.log('finished');
