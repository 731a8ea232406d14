// Holds a lock, and has nothing else to do: it must stay.
import { Client } from 'monolock';

const lock = await new Client({ address: process.argv[2] }).acquire('jobs', { leaseMs: 1_200 });
lock.onLost(({ reason }) => console.log(`lost ${reason}`));
console.log(`held ${lock.token}`);
