// Uses the installed package as somebody does who has nothing else, by both ways to load it.
import assert from 'node:assert';
import { createRequire } from 'node:module';

import { Client } from 'monolock';

const { Client: OfCommonJs } = createRequire(import.meta.url)('monolock');
const [, , address] = process.argv;
const other = new OfCommonJs({ address });
await new Client({ address }).do('nightly-import', { leaseMs: 2000 }, async ({ token }) => {
  await assert.rejects(other.tryAcquire('nightly-import', { leaseMs: 2000 }), { kind: 'contended' });
  console.log(`held with token ${token}`);
});
