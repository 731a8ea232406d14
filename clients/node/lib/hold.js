'use strict';
// What became of one grant, and who wants to know of its loss.
//
// A hold ends once, by loss or by release, and never comes back. The loss can be asked for before, during and after; each who asked
// learns of it once, and nobody can hold it up.

const errors = require('./error.js');

class Hold {
  #callbacks = new Set();
  #controller = new AbortController();
  #resolveLost;
  #isReleased = false;

  /** How the lock was lost, if it was. */
  loss;
  /** Resolves with the loss; stays pending where the lock is released. It never rejects. */
  lost = new Promise((resolve) => {
    this.#resolveLost = resolve;
  });

  constructor(name, token) {
    this.name = name;
    this.token = token;
  }

  get isOver() {
    return this.#isReleased || this.loss !== undefined;
  }

  get signal() {
    return this.#controller.signal;
  }

  /** Calls back with the loss, at once where it has come. Answers with what takes the callback back. */
  onLost(callback) {
    if (this.loss !== undefined) call(callback, this.loss);
    else if (!this.#isReleased) this.#callbacks.add(callback);
    return () => {
      this.#callbacks.delete(callback);
    };
  }

  /** The hold is lost: first it is over, then it is told. */
  end(loss) {
    if (this.isOver) return;
    this.loss = loss;
    this.#resolveLost(loss);
    const callbacks = [...this.#callbacks];
    this.#callbacks.clear();
    this.#controller.abort(errors.lost(this.name, loss));
    for (const callback of callbacks) call(callback, loss);
  }

  /** The hold is over and was not lost. */
  release() {
    this.#isReleased = true;
    this.#callbacks.clear();
  }
}

/** A callback that throws hurts neither us nor those after it: its error surfaces as that of an event listener does. */
function call(callback, loss) {
  try {
    callback(loss);
  } catch (error) {
    process.nextTick(() => {
      throw error;
    });
  }
}

module.exports = { Hold };
