// Does all that a client can do, and lets go of it: it must end by itself.
import { Client } from 'monolock';

const HOUR_MS = 3_600_000;
const client = new Client({ address: process.argv[2], connectTimeoutMs: HOUR_MS });
await client.do('jobs', { leaseMs: HOUR_MS, waitMs: HOUR_MS, signal: new AbortController().signal }, () => {});
const lock = await client.acquire('jobs', { leaseMs: HOUR_MS });
await client.tryAcquire('jobs', { leaseMs: HOUR_MS }).catch(() => {});
await client.acquire('jobs', { leaseMs: HOUR_MS, waitMs: 20 }).catch(() => {});
await lock.release();
console.log('finished');
