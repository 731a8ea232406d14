// One lock: its holder, its queue in order, and who has owned it.

/** Between two looks at the leases. */
const LOOK_TIME = 2000;
/** A look that takes long, as at a long queue, is taken the less often. */
const LOOK_SHARE = 20;
/** So many ownerships are shown. */
const SHOWN_OWNERSHIPS = 50;
/** So many rows the queue is high, and no more. */
const SHOWN_WAITERS = 12;

class One {
  #locks;
  #history;
  #api;
  #told;
  #queue;
  #rows = [];
  /** The name of the lock that is looked at, or null. */
  name = null;
  /** What the last look said of each session's lease: `{ lease, left, at }`. */
  #leases = new Map();
  #look = null;
  #lookedAt = -Infinity;

  /** `release(lock)` and `kick(lock, waiter)` ask and do. */
  constructor(locks, history, api, told) {
    this.#locks = locks;
    this.#history = history;
    this.#api = api;
    this.#told = told;
    const columns = [
      { key: "place", title: "#" },
      { key: "identity", title: "Identity" },
      { key: "address", title: "Address" },
      { key: "session", title: "Session" },
      { key: "waits", title: "Waits for" },
      { key: "lease", title: "Lease" },
      { key: "kick", title: "Kick", isUnseen: true },
    ];
    this.#queue = new Grid(byId("queue"), columns, {
      keyOf: ({ session }) => session,
      fill: (cells, waiter, place, row) => this.#fill(cells, waiter, place, row),
      make: (key, cell) => {
        if (key !== "kick") return cell;
        const button = make("button", "danger", "Kick…");
        button.type = "button";
        button.tabIndex = -1;
        button.addEventListener("click", () => this.kick(button.waiter));
        cell.append(button);
        return button;
      },
    });
    byId("release").addEventListener("click", () => this.release());
  }

  get #lock() {
    return this.#locks.get(this.name);
  }

  /** Looks at another lock, or at none. */
  open(name) {
    this.name = name;
    this.#leases.clear();
    this.#queue.select(null);
    this.#queue.toTop();
    byId("one-scroll").scrollTop = 0;
    this.#stopLooking();
    if (name !== null) this.look();
  }

  /** Looks at the leases, now and then, for as long as this lock is looked at. */
  async look() {
    this.#stopLooking();
    if (this.name === null) return;
    const look = { timer: null, abort: new AbortController() };
    this.#look = look;
    const start = (this.#lookedAt = performance.now());
    if (!document.hidden && this.#lock) {
      try {
        const { holder, waiters } = await this.#api.lock(this.name, look.abort.signal);
        if (this.#look !== look) return;
        const at = performance.now();
        this.#leases = new Map(
          [...(holder ? [holder] : []), ...waiters].map((client) => [
            client.session,
            { lease: client.lease_ms, left: client.lease_remaining_ms, at },
          ]),
        );
        this.#told.changed();
      } catch {
        // The stream says what is wrong.
      }
    }
    if (this.#look !== look) return;
    const took = performance.now() - start;
    look.timer = setTimeout(() => this.look(), Math.max(LOOK_TIME, took * LOOK_SHARE));
  }

  #stopLooking() {
    clearTimeout(this.#look?.timer);
    this.#look?.abort.abort();
    this.#look = null;
  }

  release() {
    if (this.#lock?.holder && !byId("release").disabled) this.#told.release(this.#lock);
  }

  /** Asks to kick a waiter: the selected one, if none is named. */
  kick(waiter = this.#queue.selected) {
    if (this.#lock && waiter && isAddressable(this.name)) this.#told.kick(this.#lock, waiter);
  }

  leaseOf(session) {
    return this.#leases.get(session);
  }

  show(isComplete) {
    const { name } = this;
    if (name === null) return;
    setText(byId("one-title"), safe(name));
    const lock = this.#lock;
    this.#showHolder(lock, isComplete);
    this.#showQueue(lock);
    this.#showHistory(lock);
  }

  #showHolder(lock, isComplete) {
    const holder = lock?.holder;
    const now = this.#told.now();
    byId("holder").hidden = !holder;
    const nobody = byId("nobody");
    nobody.hidden = Boolean(holder);
    const release = byId("release");
    release.disabled = !holder || !isAddressable(this.name);
    setAttribute(release, "title", isAddressable(this.name) ? null : "A browser cannot send this name: use monolock release");
    if (!holder) {
      const free = isComplete ? "nobody claims this lock" : "reading";
      setText(nobody, lock ? "nobody yet: the server grants nothing so soon after its start" : free);
      return;
    }
    setText(byId("h-who"), who(holder));
    for (const id of ["h-from", "h-from-label"]) byId(id).hidden = !holder.identity;
    setText(byId("h-from"), safe(holder.address));
    setText(byId("h-since"), `${timeInUtc(holder.since)}, for ${age(now - holder.since)}`);
    setText(byId("h-token"), holder.token);
    setText(byId("h-session"), holder.session);
    const lease = this.leaseOf(holder.session);
    // It has come since the last look.
    if (!lease && performance.now() - this.#lookedAt > LOOK_TIME / 4) this.look();
    setText(byId("h-lease"), leaseText(lease));
    byId("h-lease").classList.toggle("late", isLate(lease));
    const meter = byId("h-meter");
    meter.hidden = !lease;
    if (lease) meter.value = lease.left / lease.lease;
  }

  #showQueue(lock) {
    const waiters = lock ? [...lock.queue.values()] : [];
    const number = waiters.length;
    setText(byId("queue-count"), number === 0 ? "nobody waits" : `${grouped(number)} ${number === 1 ? "waits" : "wait"}`);
    byId("queue-box").hidden = number === 0;
    byId("queue-box").style.setProperty("--shown", Math.min(number, SHOWN_WAITERS));
    byId("queue").classList.toggle("anonymous", waiters.every(({ identity }) => !identity));
    this.#queue.show(waiters);
  }

  #fill(cells, waiter, place, row) {
    const lease = this.leaseOf(waiter.session);
    setText(cells.place, String(place + 1));
    setText(cells.identity, safe(waiter.identity));
    setText(cells.address, safe(waiter.address));
    setText(cells.session, waiter.session);
    setText(cells.waits, age(this.#told.now() - waiter.since));
    setText(cells.lease, leaseText(lease));
    row.classList.toggle("late", isLate(lease));
    if (cells.kick.waiter !== waiter) {
      cells.kick.waiter = waiter;
      cells.kick.disabled = !isAddressable(this.name);
      cells.kick.setAttribute("aria-label", `Kick ${named(waiter)}`);
    }
  }

  #showHistory(lock) {
    const now = this.#told.now();
    const ownerships = this.#history.of(this.name).slice(-SHOWN_OWNERSHIPS);
    const holder = lock?.holder;
    if (holder && !ownerships.some(({ token }) => token === holder.token)) {
      ownerships.push({ ...holder, until: null, reason: null });
    }
    ownerships.reverse();
    byId("history").hidden = ownerships.length === 0;
    setText(byId("history-note"), ownerships.length === 0 ? `none since ${timeOfDay(this.#told.since)}` : "newest first, as far as this page has heard");
    const begin = ownerships.reduce((begin, { since }) => Math.min(begin, since), now);
    const span = Math.max(now - begin, 1);
    setText(byId("axis"), `${age(span)} ago … now`);
    const body = byId("ownerships");
    while (this.#rows.length < ownerships.length) this.#rows.push(makeOwnership());
    for (const [place, row] of this.#rows.entries()) {
      const ownership = ownerships[place];
      if (!ownership) {
        row.element.remove();
        continue;
      }
      if (row.element.parentNode !== body) body.append(row.element);
      const isNow = ownership.token === holder?.token;
      const until = isNow ? now : ownership.until;
      row.element.className = isNow ? "now" : ownership.reason === "force" ? "forced" : "";
      setText(row.token, ownership.token);
      setText(row.who, who(ownership));
      setAttribute(row.who, "title", named(ownership));
      setText(row.when, timeOfDay(ownership.since));
      setAttribute(row.when, "title", timeInUtc(ownership.since));
      setText(row.for, until === null ? "?" : isNow ? age(until - ownership.since) : brief(until - ownership.since));
      setText(row.end, isNow ? "not yet" : ownership.reason ?? "not heard");
      const [left, width] = [ownership.since - begin, (until ?? ownership.since) - ownership.since].map((part) => (100 * part) / span);
      row.bar.style.left = `${Math.min(left, 99.5).toFixed(2)}%`;
      row.bar.style.width = `${Math.max(width, 0).toFixed(2)}%`;
    }
  }
}

function makeOwnership() {
  const cell = (name, ...children) => {
    const cell = make("td", `h-${name}`, ...children);
    cell.setAttribute("role", "cell");
    return cell;
  };
  const bar = make("i");
  const lane = make("div", "lane", bar);
  lane.setAttribute("aria-hidden", "true");
  const row = { token: cell("token"), who: cell("who"), when: cell("when"), for: cell("for"), end: cell("end"), bar };
  row.element = make("tr", "", row.token, row.who, row.when, row.for, row.end, cell("bar", lane));
  row.element.setAttribute("role", "row");
  return row;
}

const leaseText = (lease) => (lease ? `${brief(lease.lease)}, ${brief(lease.left)} left` : "…");

/** A client sends a heartbeat each quarter of its lease; one with less than half of it has missed some. */
const isLate = (lease) => Boolean(lease) && lease.left < lease.lease / 2;
