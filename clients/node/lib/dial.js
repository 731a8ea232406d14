'use strict';
// Which address to try next, and how long: one is dead, another accepts and stays mute, a third one serves.
//
// Pure: it is told what came of each step. The connect timeout bounds the whole attempt; every candidate gets an even share of what is
// left for those that are still to come, so nobody's silence uses up the time of the next.

const errors = require('./error.js');
const { isClientError } = require('./wire.js');

class Dial {
  #name;
  #addresses;
  #deadline;
  /** How many of the configured addresses have been looked up. */
  #lookedUp = 0;
  /** What the last look-up found, how much of it has been tried, and when its share of the time is over. */
  #candidates = [];
  #tried = 0;
  #candidatesUntil;
  #failures = [];

  constructor(now, { name, addresses, connectTimeoutMs }) {
    this.#name = name;
    this.#addresses = addresses;
    this.#deadline = now + connectTimeoutMs;
    this.#candidatesUntil = now;
  }

  /**
   * What to do next: `{ type: 'look_up', address, budgetMs }`, to be reported to `found` or `notFound`, or
   * `{ type: 'connect', address, ip, budgetMs }`, a failure of which is to be reported to `failed`.
   *
   * Throws `unreachable` where nobody is left.
   */
  nextStep(now) {
    if (this.#tried < this.#candidates.length) {
      const budgetMs = share(this.#candidatesUntil - now, this.#candidates.length - this.#tried);
      const address = this.#addresses[this.#lookedUp - 1];
      return { type: 'connect', address, ip: this.#candidates[this.#tried++], budgetMs };
    }
    if (this.#lookedUp < this.#addresses.length) {
      const budgetMs = share(this.#deadline - now, this.#addresses.length - this.#lookedUp);
      this.#candidatesUntil = now + budgetMs;
      return { type: 'look_up', address: this.#addresses[this.#lookedUp++], budgetMs };
    }
    throw errors.unreachable(this.#name, this.#failures);
  }

  /** The look-up found these addresses. */
  found(ips) {
    this.#candidates = ips;
    this.#tried = 0;
  }

  notFound({ text }, failure) {
    this.#failures.push({ address: text, ...failure });
  }

  /** This address did not take the claim in. Throws where the server said that no other one will either (a code from 0x10 up). */
  failed({ address, ip }, failure) {
    const told = ip.includes(':') ? `[${ip}]:${address.port}` : `${ip}:${address.port}`;
    if (failure.code !== undefined && isClientError(failure.code)) throw errors.refused(this.#name, told, failure);
    this.#failures.push({ address: told, ...failure });
  }
}

/** The share of what remains that the next of so many candidates gets. */
function share(remainingMs, candidates) {
  return Math.max(remainingMs, 0) / candidates;
}

module.exports = { Dial };
