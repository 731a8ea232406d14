// All locks: how many, how long, and a table of them.

const byName = (one, other) => (one.name < other.name ? -1 : one.name > other.name ? 1 : 0);
const whoHolds = (lock) => (lock.holder ? who(lock.holder) : "nobody yet");

/**
 * By what one may sort: `key` is a column, `first` the direction at the first choice. Equals are in the order of their
 * names.
 */
const ORDERS = [
  { key: "name", title: "Name", first: "ascending", compare: byName },
  { key: "holder", title: "Holder", first: "ascending", compare: (one, other) => compareText(whoHolds(one), whoHolds(other)) },
  // What began first has lasted longest.
  { key: "held", title: "Held for", first: "descending", compare: (one, other) => compareLast(one.heldSince, other.heldSince) },
  { key: "waiters", title: "Waiters", first: "descending", compare: (one, other) => one.queue.size - other.queue.size },
  { key: "wait", title: "Longest wait", first: "descending", compare: compareWaits },
  { key: "token", title: "Token", first: "descending", compare: (one, other) => compareToken(one.holder?.token, other.holder?.token) },
];

/** By what the first in the queue was, when it was last looked at: it is asked for often in a sort. */
function compareWaits(one, other) {
  return compareLast(one.waitedSince, other.waitedSince);
}

const compareText = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

function compareLast(since, other) {
  return since === other ? 0 : since > other ? -1 : 1;
}

function compareToken(one = "", other = "") {
  return one === other ? 0 : isLater(one, other) ? 1 : -1;
}

class List {
  #locks;
  #rates;
  #now;
  #grid;
  #order = ORDERS.find(({ key }) => key === "waiters");
  #direction = "descending";
  #filter = "";

  /** `open(lock)` looks at one, `now()` is the server's time. */
  constructor(locks, rates, { open, now, changed }) {
    this.#locks = locks;
    this.#rates = rates;
    this.#now = now;
    const columns = ORDERS.map(({ key, title }) => ({ key, title, sort: true }));
    this.#grid = new Grid(byId("locks"), columns, {
      keyOf: (lock) => lock.name,
      fill: (cells, lock, _place, row) => this.#fill(cells, lock, row),
      open,
      sort: ({ key }) => {
        const order = ORDERS.find((order) => order.key === key);
        const opposite = this.#direction === "ascending" ? "descending" : "ascending";
        this.#sort(order, order === this.#order ? opposite : order.first);
        changed();
      },
      make: (key, cell) => {
        if (key !== "name") return cell;
        const link = make("a");
        link.tabIndex = -1;
        cell.append(link);
        return link;
      },
    });
    const select = byId("order");
    for (const { key, title } of ORDERS) select.append(new Option(title, key));
    select.addEventListener("change", () => {
      const order = ORDERS.find(({ key }) => key === select.value);
      this.#sort(order, order.first);
      changed();
    });
    const filter = byId("filter");
    filter.addEventListener("input", () => {
      this.#filter = filter.value;
      this.#grid.toTop();
      changed();
    });
    filter.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && filter.value !== "") {
        filter.value = this.#filter = "";
        changed();
      } else if (event.key === "Escape" || event.key === "Enter" || event.key === "ArrowDown") {
        this.focus();
      } else {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    });
    this.#sort(this.#order, this.#direction);
  }

  get selected() {
    return this.#grid.selected;
  }

  /** The name of the lock that is looked at, or null. */
  select(name) {
    if (name !== null) this.#grid.select(name);
  }

  focus() {
    this.#grid.element.focus({ preventScroll: true });
  }

  /** Drops the filter. */
  clear() {
    byId("filter").value = this.#filter = "";
  }

  show(isComplete) {
    const now = this.#now();
    let [held, waiters, longestWait, longestHold] = [0, 0, null, null];
    const passes = filterOf(this.#filter);
    const shown = [];
    for (const lock of this.#locks.values()) {
      if (lock.holder) held++;
      waiters += lock.queue.size;
      lock.waitedSince = lock.waitingSince;
      if (lock.waitedSince < (longestWait?.waitedSince ?? Infinity)) longestWait = lock;
      if (lock.heldSince < (longestHold?.heldSince ?? Infinity)) longestHold = lock;
      if (passes(lock.name)) shown.push(lock);
    }
    const sign = this.#direction === "ascending" ? 1 : -1;
    const { compare } = this.#order;
    shown.sort((one, other) => sign * compare(one, other) || compareWaits(other, one) || byName(one, other));
    this.#overview({ held, waiters, longestWait, longestHold }, now);
    const total = this.#locks.size;
    setText(byId("count"), shown.length === total ? counted(total, "lock") : `${grouped(shown.length)} of ${counted(total, "lock")}`);
    this.#grid.show(shown);
    const none = byId("none");
    none.hidden = shown.length > 0 || !isComplete;
    if (!none.hidden) setText(none, total === 0 ? "nobody claims a lock" : `no name matches ${quoted(this.#filter)}`);
  }

  #sort(order, direction) {
    this.#order = order;
    this.#direction = direction;
    byId("order").value = order.key;
    this.#grid.sortedBy(order.key, direction);
    this.#grid.toTop();
  }

  #fill(cells, lock, row) {
    const now = this.#now();
    const [holder, isBusy] = [lock.holder, lock.queue.size > 0];
    const name = safe(lock.name);
    if (cells.name.textContent !== name) {
      cells.name.textContent = cells.name.title = name;
      cells.name.href = hashOf(lock.name);
    }
    setText(cells.holder, whoHolds(lock));
    setText(cells.held, holder ? age(now - holder.since) : "-");
    setText(cells.waiters, grouped(lock.queue.size));
    setText(cells.wait, isBusy ? age(now - lock.waitingSince) : "-");
    setText(cells.token, holder ? holder.token : "-");
    row.classList.toggle("busy", isBusy);
    row.classList.toggle("nobody", !holder);
  }

  #overview({ held, waiters, longestWait, longestHold }, now) {
    setText(byId("held"), grouped(held));
    setText(byId("waiting"), grouped(waiters));
    const rate = this.#rates.rate(now);
    setText(byId("rate"), rate === null ? "–" : rate < 10 ? String(Math.round(rate * 10) / 10) : grouped(Math.round(rate)));
    const series = this.#rates.series(now);
    const most = Math.max(1, ...series);
    const line = series.map((count, at) => `${at === 0 ? "M" : "L"}${at} ${(19 - (18 * count) / most).toFixed(1)}`).join("");
    setAttribute(byId("spark").firstElementChild, "d", line);
    for (const [id, lock, since] of [
      ["longest-wait", longestWait, longestWait?.waitingSince],
      ["longest-hold", longestHold, longestHold?.heldSince],
    ]) {
      setText(byId(id), lock ? age(now - since) : "-");
      const link = byId(`${id}-of`);
      link.hidden = !lock;
      if (lock) {
        setText(link, safe(lock.name));
        setAttribute(link, "href", hashOf(lock.name));
      }
    }
  }
}

/** Where the page shows this lock. */
const hashOf = (name) => `#/lock/${encodeURIComponent(name)}`;

/** The lock that a link names, or null. */
function nameIn(hash) {
  if (!hash.startsWith("#/lock/")) return null;
  try {
    return decodeURIComponent(hash.slice("#/lock/".length)) || null;
  } catch {
    return null;
  }
}
