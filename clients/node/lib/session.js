'use strict';
// The one place that knows the rules of a session, as a client must keep them (`docs/protocol.md`, "What a client must do").
//
// `Session` is pure: it opens no socket, reads no clock and draws no randomness. Times are milliseconds from an origin of the
// caller's, fractions allowed. Every input looks at the clock before it looks at anything else, so a session that has given up can be
// revived by nothing; and it gives up no later than 0.8 leases after the sending of the last confirmed frame, which is before the
// server does.

const { decodeServer, encodeAcquire, encodeHeartbeat } = require('./wire.js');
const loss = require('./loss.js');

/** The longest time between two heartbeats, however long the lease: middleboxes drop flows that are idle for a few minutes. */
const HEARTBEAT_CEILING_MS = 60_000;
/** The shortest time between two heartbeats, where a quarter of the lease is not shorter still. */
const HEARTBEAT_FLOOR_MS = 100;

const NO_BYTES = Buffer.alloc(0);

/**
 * One claim on one lock, from `ACQUIRE` to its end.
 *
 * A driver opens a connection, makes a `Session`, and then, for as long as `nextDeadline` says something: writes what `transmit`
 * gives, hands what it reads to `receive`, and calls `tick` at the deadline. Inputs answer with the events that they brought about;
 * after every input, `transmit` may have something new. A `now` that steps back counts as standing still.
 *
 * `standing` is `asking`, `queued`, `holding` or `over`, and never goes back. Events are `{ type: 'queued' }`,
 * `{ type: 'granted', token }`, `{ type: 'refused', loss }` (ended before the server had taken the claim in) and
 * `{ type: 'lost', loss }`.
 */
class Session {
  #request;
  /** The latest instant that any input brought. */
  #now;
  #standing = 'asking';
  #token;
  /** A frame that is to be sent and that `transmit` has not taken yet. */
  #owed = 'acquire';
  /** When the one frame that waits for its reply was sent. */
  #unanswered;
  /** When the last confirmed frame was sent; until there is one, when `ACQUIRE` was. */
  #confirmed;
  #nextBeat;
  /** The smoothed round-trip time; `undefined` before the first sample. */
  #roundTrip;
  /** When `maxHoldMs` is over. */
  #holdEnds = Infinity;
  /** The beginning of a frame whose rest has not come. */
  #undecoded = NO_BYTES;
  #events = [];

  /** A session that has just connected and owes its `ACQUIRE`. */
  constructor(now, { name, leaseMs, maxHoldMs = Infinity }) {
    this.#request = { name, leaseMs, maxHoldMs };
    this.#now = now;
    this.#confirmed = now;
    this.#nextBeat = now;
  }

  /** Takes in bytes from the server, cut and glued as the network pleases. */
  receive(now, bytes) {
    this.#settle(now);
    if (!this.isOver) {
      this.#decode(this.#undecoded.length === 0 ? bytes : Buffer.concat([this.#undecoded, bytes]));
      this.#settle(now);
    }
    return this.#takeEvents();
  }

  /** Lets time pass. Early it does nothing; when due, the deadline moves on or the session ends. */
  tick(now) {
    this.#settle(now);
    return this.#takeEvents();
  }

  /** The connection is gone: the server closed it (no `error`), or reading or writing failed. */
  disconnected(now, error) {
    this.#settle(now);
    this.#end(loss.closed(error));
    return this.#takeEvents();
  }

  /**
   * The bytes that are to be written now, if any. `now` counts as the moment of their sending: take the time before the system
   * call, not after it.
   */
  transmit(now) {
    this.#now = Math.max(this.#now, now);
    const owed = this.#owed;
    if (owed === undefined || this.#now >= this.givesUpAt) return undefined;
    this.#owed = undefined;
    this.#unanswered = this.#now;
    if (owed === 'heartbeat') return encodeHeartbeat();
    this.#confirmed = this.#now;
    return encodeAcquire(this.#request);
  }

  /** Whether `transmit` has something. */
  get hasToTransmit() {
    return this.#owed !== undefined;
  }

  /** When `tick` is to be called next; `undefined` when the session is over. */
  get nextDeadline() {
    if (this.isOver) return undefined;
    return this.#mayBeat ? Math.min(this.givesUpAt, this.#nextBeat) : this.givesUpAt;
  }

  /**
   * When the session ends unless something is confirmed before: 0.8 leases after the sending of the last confirmed frame, or at the
   * end of `maxHoldMs`. From this instant on the lock must not be believed in. `undefined` when the session is over.
   */
  get givesUpAt() {
    return this.isOver ? undefined : Math.min(this.#unconfirmedAt, this.#holdEnds);
  }

  get standing() {
    return this.#standing;
  }

  /** The grant's fencing token; `undefined` before there is one. */
  get token() {
    return this.#token;
  }

  get isOver() {
    return this.#standing === 'over';
  }

  /** At most one frame is unanswered at a time. */
  get #mayBeat() {
    return this.#owed === undefined && this.#unanswered === undefined;
  }

  get #unconfirmedAt() {
    return this.#confirmed + (this.#request.leaseMs * 4) / 5;
  }

  /** Does what is due by `now`. */
  #settle(now) {
    this.#now = Math.max(this.#now, now);
    if (this.isOver) return;
    if (this.#now >= this.#unconfirmedAt || this.#now >= this.#holdEnds) {
      this.#end(this.#holdEnds < this.#unconfirmedAt ? loss.maxHold() : loss.timeout());
    } else if (this.#mayBeat && this.#now >= this.#nextBeat) {
      this.#owed = 'heartbeat';
    }
  }

  #decode(bytes) {
    let rest = bytes;
    while (!this.isOver) {
      const frame = decodeServer(rest);
      if (frame === undefined) break;
      if (frame.type === 'unknown') return this.#violated(frame.what);
      rest = rest.subarray(frame.size);
      this.#takeIn(frame);
    }
    this.#undecoded = rest;
  }

  #takeIn(frame) {
    if (frame.type === 'error') return this.#end(loss.serverError(frame.code, frame.reason));
    switch (this.#standing) {
      case 'asking':
        if (!this.#confirm()) return;
        return frame.type === 'acquired' ? this.#grant(frame.token) : this.#queue();
      case 'queued':
        // The push: it answers nothing, so it confirms nothing. A heartbeat under way is answered by the next frame.
        return frame.type === 'acquired' ? this.#grant(frame.token) : this.#confirm();
      case 'holding':
        if (frame.type === 'waiting') return this.#violated('WAITING after ACQUIRED');
        if (frame.token !== this.#token) return this.#violated(`the token changed from ${this.#token} to ${frame.token}`);
        return this.#confirm();
    }
  }

  /** The frame that was under way has its reply. Says whether there was one; a reply to nothing ends the session. */
  #confirm() {
    const sent = this.#unanswered;
    if (sent === undefined) {
      this.#violated('a reply to nothing');
      return false;
    }
    this.#unanswered = undefined;
    this.#confirmed = sent;
    const sample = this.#now - sent;
    this.#roundTrip = this.#roundTrip === undefined ? sample : 0.2 * sample + 0.8 * this.#roundTrip;
    const interval = heartbeatIntervalMs(this.#request.leaseMs, this.#roundTrip);
    this.#nextBeat = interval === undefined ? this.#now : sent + interval;
    return true;
  }

  #queue() {
    this.#standing = 'queued';
    this.#events.push({ type: 'queued' });
  }

  #grant(token) {
    this.#standing = 'holding';
    this.#token = token;
    this.#holdEnds = this.#now + this.#request.maxHoldMs;
    this.#events.push({ type: 'granted', token });
  }

  #violated(what) {
    this.#end(loss.protocolViolation(what));
  }

  #end(why) {
    if (this.isOver) return;
    this.#events.push({ type: this.#standing === 'asking' ? 'refused' : 'lost', loss: why });
    this.#standing = 'over';
    this.#owed = undefined;
    this.#undecoded = NO_BYTES;
  }

  #takeEvents() {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}

/** From one sending to the next; `undefined`: as soon as the answer is in. */
function heartbeatIntervalMs(leaseMs, roundTripMs) {
  const base = leaseMs / 4;
  const interval = base - 2 * roundTripMs;
  if (interval <= 0) return undefined;
  return Math.min(Math.max(interval, Math.min(HEARTBEAT_FLOOR_MS, base)), base, HEARTBEAT_CEILING_MS);
}

module.exports = { HEARTBEAT_CEILING_MS, HEARTBEAT_FLOOR_MS, Session };
