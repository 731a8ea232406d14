'use strict';
// What ends the acquiring of a lock from outside, and waiting that leaves nothing behind.
//
// Everything that a call waits for goes through `waitFor`: when it is over, however it ended, every timer and listener it had set up
// is gone.

const errors = require('./error.js');
const timer = require('./timer.js');

/** One call's limits: its caller's signal and its wait limit. The first to come is what the call fails with. */
class Interrupt {
  #error;
  #waiting = new Set();
  #undo;

  constructor({ name, waitMs, signal }) {
    if (signal?.aborted) {
      this.#error = errors.cancelled(name, signal.reason);
      this.#undo = () => {};
      return;
    }
    const cancel = () => this.#trigger(errors.cancelled(name, signal.reason));
    signal?.addEventListener('abort', cancel, { once: true });
    const callOff = timer.after(waitMs, () => this.#trigger(errors.waitTimeout(name, waitMs)));
    this.#undo = () => {
      signal?.removeEventListener('abort', cancel);
      callOff();
    };
  }

  /** Throws what the call is to fail with, if it is. */
  check() {
    if (this.#error !== undefined) throw this.#error;
  }

  /** Calls back once when it comes to that, at once where it has. Answers with what takes the callback back. */
  subscribe(callback) {
    if (this.#error !== undefined) {
      callback(this.#error);
      return () => {};
    }
    this.#waiting.add(callback);
    return () => this.#waiting.delete(callback);
  }

  /** The call is over: nothing will interrupt it any more. */
  close() {
    this.#undo();
  }

  #trigger(error) {
    if (this.#error !== undefined) return;
    this.#error = error;
    this.#undo();
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const callback of waiting) callback(error);
  }
}

/**
 * Waits until `begin` says so, or the interrupt comes. `begin` is given `resolve`, `reject` and `onSettled`, with which it registers
 * how to clean up; it is not called at all where the interrupt has come already.
 */
function waitFor(interrupt, begin) {
  return new Promise((resolve, reject) => {
    const cleanUps = [];
    let settled = false;
    const once = (settle) => (value) => {
      if (settled) return;
      settled = true;
      for (const cleanUp of cleanUps) cleanUp();
      settle(value);
    };
    const onSettled = (cleanUp) => {
      if (settled) cleanUp();
      else cleanUps.push(cleanUp);
    };
    onSettled(interrupt.subscribe(once(reject)));
    if (!settled) begin({ resolve: once(resolve), reject: once(reject), onSettled });
  });
}

function sleep(interrupt, ms) {
  return waitFor(interrupt, ({ resolve, onSettled }) => onSettled(timer.after(ms, resolve)));
}

module.exports = { Interrupt, sleep, waitFor };
