// Uses the installed package as somebody does who has nothing else, by both ways to load it.
import assert from 'node:assert';
import { createRequire } from 'node:module';

import { Client } from 'monolock';

const { Client: OfCommonJs } = createRequire(import.meta.url)('monolock');
const [, , address] = process.argv;
const minute = 60_000;
const other = new OfCommonJs({ address, connectTimeoutMs: minute });
await new Client({ address, connectTimeoutMs: minute }).do('nightly-import', { leaseMs: minute }, async ({ token }) => {
  await assert.rejects(other.tryAcquire('nightly-import', { leaseMs: minute }), { kind: 'contended' });
  console.log(`held with token ${token}`);
});
