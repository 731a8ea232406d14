'use strict';
// Timers that take any length and fire when they are due.
//
// `setTimeout` turns a delay beyond 2^31-1 ms into 1 ms, and on Linux its time stands still while the machine sleeps. So no single
// wait is longer than `LONGEST_MS`; between waits the clock is asked.

const clock = require('./clock.js');

/** The most that one `setTimeout` waits. On Linux short, so that waking from suspend is noticed soon. */
const LONGEST_MS = process.platform === 'linux' ? 1_000 : 2 ** 31 - 1;

/** Rings once, at some time after `ms` at the latest, and perhaps earlier: whoever is woken looks at the clock. */
class Alarm {
  #ring;
  #timer;

  constructor(ring) {
    this.#ring = ring;
  }

  /** Replaces what was set before. */
  set(ms) {
    this.clear();
    this.#timer = setTimeout(this.#ring, Math.min(Math.max(Math.ceil(ms), 1), LONGEST_MS));
  }

  clear() {
    clearTimeout(this.#timer);
  }
}

/** Calls `callback` after `ms`, never earlier; `Infinity` is never. Answers with what calls it off. */
function after(ms, callback, now = clock.now) {
  if (ms === Infinity) return () => {};
  const due = now() + ms;
  const alarm = new Alarm(() => {
    const remaining = due - now();
    if (remaining <= 0) callback();
    else alarm.set(remaining);
  });
  alarm.set(ms);
  return () => alarm.clear();
}

module.exports = { Alarm, LONGEST_MS, after };
