// The same package, seen from a CommonJS module. Compiled only.

import monolock = require('monolock');

const client = new monolock.Client({ address: '127.0.0.1:7070' });

export async function tryIt(): Promise<bigint | undefined> {
  try {
    const lock: monolock.Lock = await client.tryAcquire('jobs', { leaseMs: 2_000 });
    await lock.release();
    return lock.token;
  } catch (error) {
    if (error instanceof monolock.MonolockError && error.kind === 'contended') return undefined;
    throw error;
  }
}
