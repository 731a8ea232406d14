'use strict';
// A lock that is held, as its holder sees it.

// Node has it from 18.18 on. Compiled `await using` looks for it by this name, so where it is missing it is put there, in a way
// that lets another polyfill replace it.
if (Symbol.asyncDispose === undefined) {
  Object.defineProperty(Symbol, 'asyncDispose', {
    value: Symbol('Symbol.asyncDispose'),
    configurable: true,
    writable: true,
  });
}

class Lock {
  #claim;
  #hold;

  /** For the client alone. */
  constructor(claim) {
    this.#claim = claim;
    this.#hold = claim.hold;
  }

  get name() {
    return this.#hold.name;
  }

  get token() {
    return this.#hold.token;
  }

  isHeld() {
    return this.loss === undefined && !this.#hold.isOver;
  }

  get loss() {
    // By the clock: a hold whose time is over ends here, although nothing of ours has run since.
    if (!this.#hold.isOver) this.#claim.tick();
    return this.#hold.loss;
  }

  get lost() {
    return this.#hold.lost;
  }

  get signal() {
    return this.#hold.signal;
  }

  onLost(callback) {
    return this.#hold.onLost(callback);
  }

  async release() {
    this.#hold.release();
    this.#claim.close();
    await this.#claim.closed();
  }

  [Symbol.asyncDispose]() {
    return this.release();
  }
}

module.exports = { Lock };
