// What TypeScript makes of the types, seen from an ES module. Compiled only.

import { readFileSync } from 'node:fs';

import { Client, Lock, MIN_LEASE_MS, MonolockError, lossOf } from 'monolock';
import type { ErrorKind, Loss, LossReason } from 'monolock';

const client = new Client({ address: '127.0.0.1:7070', connectTimeoutMs: 1_000, maxHoldMs: 60_000 });
new Client({ addresses: ['one:7070', 'two:7070'], tls: { ca: readFileSync('ca.pem'), servername: 'locks' } });

// @ts-expect-error Some address is needed.
new Client({});
// @ts-expect-error One form of it.
new Client({ address: 'one:1', addresses: ['two:1'] });
// @ts-expect-error The lease has no default.
client.acquire('jobs', {});
// @ts-expect-error Locks come from a client.
new Lock();

export async function work(signal: AbortSignal): Promise<number> {
  const answer: number = await client.do('jobs', { leaseMs: 2_000, waitMs: 500, signal }, async (context) => {
    const { token, signal: stop, isHeld, lost, onLost } = context;
    const fence: bigint = token;
    const takeBack: () => void = onLost(({ reason }) => console.log(reason));
    takeBack();
    lost.then((loss: Loss) => console.log(loss.message));
    stop.throwIfAborted();
    return isHeld() ? Number(fence) : 0;
  });
  const plain: string = await client.doRetry('jobs', { leaseMs: MIN_LEASE_MS }, ({ name }) => name);
  await client.tryDo('jobs', { leaseMs: 2_000 }, () => plain);
  return answer;
}

export async function hold(): Promise<void> {
  await using lock = await client.acquire('jobs', { leaseMs: 2_000 });
  const token: bigint = lock.token;
  const loss: Loss | undefined = lock.loss;
  if (!lock.isHeld() || lock.signal.aborted) throw new Error(`${token} ${loss?.reason} ${client.claims('jobs')}`);
  // @ts-expect-error Nobody changes a token.
  lock.token = 1n;
}

export function toldApart(error: unknown): ErrorKind | LossReason | undefined {
  if (error instanceof MonolockError) {
    const code: number | undefined = error.code;
    return error.retryable && code === undefined ? error.kind : error.loss?.reason;
  }
  return lossOf(error)?.reason;
}
