// Holds a lock, and has nothing else to do: it must stay.
import { Client } from 'monolock';

const client = new Client({ address: process.argv[2], connectTimeoutMs: 60_000 });
const lock = await client.acquire('jobs', { leaseMs: 60_000 });
lock.onLost(({ reason }) => console.log(`lost ${reason}`));
console.log(`held ${lock.token}`);
