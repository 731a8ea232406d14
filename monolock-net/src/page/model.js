// What the page knows of the locks: a listing, and the events since.
//
// Events that come while a listing is under way are put aside and applied after it, each with no effect if the listing
// shows it already (docs/admin-api.md, "Know all locks at any time"). Nothing here grows beyond what the server has, but
// the history, which has a bound of its own.

/** So many events are put aside during a listing. With more it begins anew. */
const PUT_ASIDE = 1 << 16;

const claimOf = ({ session, identity, remote_addr: address }, since) => ({ session, identity, address, since });

class Lock {
  /** With its `token`, or null. */
  holder = null;
  /** By session, in the order in which they will be served. */
  queue = new Map();
  /** `waitingSince`, for who sorts. */
  waitedSince = Infinity;

  constructor(name) {
    this.name = name;
  }

  static listed({ name, holder, waiters }) {
    const lock = new Lock(name);
    if (holder) lock.holder = { ...claimOf(holder, Date.parse(holder.since)), token: holder.token };
    for (const waiter of waiters) lock.queue.set(waiter.session, claimOf(waiter, Date.parse(waiter.queued_at)));
    return lock;
  }

  /** Since when the first in the queue has waited, which is longest. */
  get waitingSince() {
    for (const waiter of this.queue.values()) return waiter.since;
    return Infinity;
  }

  get heldSince() {
    return this.holder ? this.holder.since : Infinity;
  }
}

class Locks {
  #locks = new Map();
  #listing = null;

  get size() {
    return this.#locks.size;
  }

  get(name) {
    return this.#locks.get(name);
  }

  values() {
    return this.#locks.values();
  }

  /** A listing begins. What is known stays until it is over. */
  beginListing() {
    this.#listing = { locks: new Map(), events: [] };
  }

  page(locks) {
    for (const lock of locks) this.#listing?.locks.set(lock.name, Lock.listed(lock));
  }

  listed() {
    const { locks, events } = this.#listing;
    this.#listing = null;
    this.#locks = locks;
    for (const event of events) this.#apply(event);
  }

  /** Something has happened. False says that so much has happened since the listing began that it must begin anew. */
  happened(event) {
    if (!this.#listing) {
      this.#apply(event);
    } else if (this.#listing.events.length >= PUT_ASIDE) {
      return false;
    } else {
      this.#listing.events.push(event);
    }
    return true;
  }

  #apply({ event, lock: name, time, session, token, identity, remote_addr }) {
    if (session === undefined) return;
    let lock = this.#locks.get(name);
    if (!lock) this.#locks.set(name, (lock = new Lock(name)));
    const claim = () => claimOf({ session, identity, remote_addr }, Date.parse(time));
    switch (event) {
      case "queued":
        if (lock.holder?.session !== session && !lock.queue.has(session)) lock.queue.set(session, claim());
        break;
      case "granted":
        lock.queue.delete(session);
        if (!lock.holder || isLater(token, lock.holder.token)) lock.holder = { ...claim(), token };
        break;
      case "released":
        lock.queue.delete(session);
        if (lock.holder?.token === token) lock.holder = null;
        break;
      case "waiter_gone":
        lock.queue.delete(session);
        break;
    }
    if (!lock.holder && lock.queue.size === 0) this.#locks.delete(name);
  }
}

/** So many ownerships of one lock are remembered, */
const REMEMBERED_OF_ONE = 100;
/** and so many of all; those of the locks that have been quiet longest are forgotten first. */
const REMEMBERED = 20_000;

/** Who has owned what, as far as this page has heard. */
class History {
  #ownerships = new Map();
  #size = 0;

  of(name) {
    return this.#ownerships.get(name) ?? [];
  }

  happened({ event, lock: name, time, session, token, identity, remote_addr, held_ms, reason }) {
    if (event !== "granted" && event !== "released") return;
    const at = Date.parse(time);
    let known = this.#ownerships.get(name) ?? [];
    let ownership = known.findLast((ownership) => ownership.token === token);
    if (!ownership && (known.length === 0 || isLater(token, known.at(-1).token))) {
      const from = event === "granted" ? at : at - held_ms;
      ownership = { ...claimOf({ session, identity, remote_addr }, from), token, until: null, reason: null };
      known.push(ownership);
      this.#size++;
      if (known.length > REMEMBERED_OF_ONE) {
        known.shift();
        this.#size--;
      }
    }
    if (ownership && event === "released") Object.assign(ownership, { until: at, reason });
    // The map is in the order of the last event.
    this.#ownerships.delete(name);
    this.#ownerships.set(name, known);
    while (this.#size > REMEMBERED) {
      const [oldest, ownerships] = this.#ownerships.entries().next().value;
      this.#ownerships.delete(oldest);
      this.#size -= ownerships.length;
    }
  }
}

/** Over so many seconds grants are counted. */
const SECONDS = 60;
/** The rate that is shown is that of so many. */
const RATE_SECONDS = 10;

/** Grants a second, by the server's clock. */
class Rates {
  #counts = new Array(SECONDS).fill(0);
  #latest = 0;
  /** From which second on all grants are known. */
  #since = Infinity;

  /** What is counted from now on has no gap. */
  begin(millis) {
    this.#counts.fill(0);
    this.#since = Math.floor(millis / 1000);
  }

  granted(millis) {
    const second = Math.floor(millis / 1000);
    this.#advance(second);
    this.#since = Math.min(this.#since, second);
    if (second > this.#latest - SECONDS) this.#counts[second % SECONDS]++;
  }

  /** The grants of each whole second until now, oldest first. */
  series(now) {
    const second = Math.floor(now / 1000);
    this.#advance(second);
    return Array.from({ length: SECONDS - 1 }, (_, at) => this.#counts[(second + 1 + at) % SECONDS]);
  }

  rate(now) {
    const known = Math.min(RATE_SECONDS, Math.floor(now / 1000) - this.#since);
    if (!(known >= 1)) return null;
    return this.series(now).slice(-known).reduce((sum, count) => sum + count, 0) / known;
  }

  #advance(second) {
    if (second - this.#latest > SECONDS) this.#latest = second - SECONDS;
    while (this.#latest < second) this.#counts[++this.#latest % SECONDS] = 0;
  }
}
