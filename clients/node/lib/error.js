'use strict';
// The one error of the client, with a kind that says what to do. The kinds bear the same names in every monolock client, and none is
// found by reading text.

const { NOT_AUTHORIZED, hex, isClientError } = require('./wire.js');
const { printable, quoted } = require('./printable.js');

/** The losses that befell work which failed by itself, by the work's own error. */
const joined = new WeakMap();

class MonolockError extends Error {
  constructor(kind, message, { cause, code, loss } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
    if (code !== undefined) this.code = code;
    if (loss !== undefined) this.loss = loss;
  }

  /** Whether the same call may succeed later without anybody changing it. Codes from 0x10 up never do. */
  get retryable() {
    switch (this.kind) {
      case 'unreachable':
      case 'contended':
      case 'wait_timeout':
        return true;
      case 'lost':
        return this.loss.reason !== 'max_hold' && !(this.code !== undefined && isClientError(this.code));
      default:
        return false;
    }
  }
}
Object.defineProperty(MonolockError.prototype, 'name', { value: 'MonolockError', configurable: true, writable: true });

function cancelled(name, cause) {
  return new MonolockError('cancelled', `cancelled while acquiring lock ${quoted(name)}`, { cause });
}

function waitTimeout(name, waitMs) {
  return new MonolockError('wait_timeout', `lock ${quoted(name)} was not obtained within ${waitMs} ms`);
}

function contended(name) {
  return new MonolockError('contended', `lock ${quoted(name)} is held by another`);
}

/** The server's final word on a claim: a code from 0x10 up. */
function refused(name, address, { code, message }) {
  const kind = code === NOT_AUTHORIZED ? 'denied' : 'invalid';
  return new MonolockError(kind, `${address} refused lock ${quoted(name)} with ${hex(code)}: ${message}`, { code });
}

function lost(name, loss) {
  const { cause, code, message } = loss;
  return new MonolockError('lost', `lost lock ${quoted(name)}: ${message}`, { cause, code, loss });
}

/** Nobody took the claim in. `attempts` are `{ address, message, cause?, code? }`, in the order in which they were made. */
function unreachable(name, attempts) {
  const told = attempts.map(({ address, message }) => `${printable(address)}: ${message}`).join('; ');
  const code = attempts.map((attempt) => attempt.code).filter((sent) => sent !== undefined).at(-1);
  const cause = attempts.at(-1)?.cause;
  return new MonolockError('unreachable', `no server took the claim on lock ${quoted(name)} in: ${told}`, { cause, code });
}

function invalid(message) {
  return new MonolockError('invalid', message);
}

/** Joins a loss to an error of the guarded work, which stands as it is. A thrown value that is no object has no room for it. */
function join(error, loss) {
  if (Object(error) === error) joined.set(error, loss);
}

/** How the lock was lost, as far as `error` knows: that of a `MonolockError`, or the one joined to an error of the guarded work. */
function lossOf(error) {
  if (Object(error) !== error) return undefined;
  return joined.get(error) ?? (error instanceof MonolockError ? error.loss : undefined);
}

module.exports = { MonolockError, cancelled, contended, invalid, join, lossOf, lost, refused, unreachable, waitTimeout };
