'use strict';
// When to try again after a failed attempt: exponential backoff with full jitter.
//
// Pure: the randomness is an argument. A restart of the server sends every client here at once (`docs/protocol.md`, "What a client must
// do"), so not even the first attempt goes out at a predictable instant.

const { SERVER_SHUTTING_DOWN } = require('./wire.js');

/** The most that a reconnect "at once" waits. */
const SPREAD_MS = 100;
const FIRST_CEILING_MS = 100;
const LAST_CEILING_MS = 5_000;

class Backoff {
  /** The next delay is anything up to this. */
  #ceiling = FIRST_CEILING_MS;
  /** Whether a shutdown of the server has been answered with a reconnect at once, and nothing good has come since. */
  #wasAtOnce = false;

  /**
   * How long to wait after an attempt that took so long and failed with `error`; `undefined` where trying again is no use. `random`
   * is uniform from 0 to 1.
   */
  delayMs(error, tookMs, random) {
    if (!isWorthAnotherAttempt(error)) return undefined;
    if (tookMs >= LAST_CEILING_MS) {
      this.#ceiling = FIRST_CEILING_MS;
      this.#wasAtOnce = false;
    }
    if (error.code === SERVER_SHUTTING_DOWN && !this.#wasAtOnce) {
      this.#wasAtOnce = true;
      return SPREAD_MS * random;
    }
    const delay = this.#ceiling * random;
    this.#ceiling = Math.min(this.#ceiling * 2, LAST_CEILING_MS);
    return delay;
  }
}

function isWorthAnotherAttempt(error) {
  return (error.kind === 'unreachable' || error.kind === 'lost') && error.retryable;
}

module.exports = { Backoff };
