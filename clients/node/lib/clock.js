'use strict';
// The one module that reads a clock.
//
// A lease runs on at the server while this machine sleeps, so the clock must run on as well. Node's `process.hrtime` does on macOS
// (mach_continuous_time) and on Windows (QueryPerformanceCounter), but is CLOCK_MONOTONIC on Linux, which stands still during
// suspend. There `os.uptime` (/proc/uptime, which is CLOCK_BOOTTIME in steps of 10 ms) tells how long the machine slept. The wall clock is
// never asked: it may be set.

const fs = require('node:fs');
const os = require('node:os');

/** Milliseconds since the process began, or so: monotonic, with fractions. */
function monotonic() {
  return Number(process.hrtime.bigint() - ORIGIN) / 1e6;
}
const ORIGIN = process.hrtime.bigint();

/**
 * A clock that runs as `monotonic` does, and that leaps over what only `uptime` saw pass. `stepMs` is the resolution of `uptime`:
 * a sleep shorter than two steps may go unnoticed, a longer one counts for up to two steps more than it took. It errs on
 * the side of giving up.
 */
function countingSuspend(monotonic, uptime, stepMs) {
  let slept = 0;
  const uptimeAtStart = uptime();
  const monotonicAtStart = monotonic();
  return () => {
    // In this order: a pause of the process between the two must not look like sleep of the machine.
    const up = uptime() - uptimeAtStart;
    const now = monotonic();
    const gap = up - (now - monotonicAtStart);
    // One more millisecond for what two reads in a row take.
    if (gap > slept + stepMs + 1) slept = gap + stepMs;
    return now + slept;
  };
}

function systemClock() {
  if (process.platform !== 'linux') return monotonic;
  try {
    // Without /proc the uptime comes in whole seconds.
    const stepMs = fs.existsSync('/proc/uptime') ? 10 : 1000;
    return countingSuspend(monotonic, () => os.uptime() * 1000, stepMs);
  } catch {
    return monotonic;
  }
}

module.exports = { countingSuspend, now: systemClock() };
