// The admin API: requests, and the events for as long as the page is open.

const TOKEN_KEY = "monolock-admin-token";

/** An answer that is no success. */
class Refused extends Error {
  constructor(status, { error, token } = {}) {
    super(error ?? `the server has answered with status ${status}`);
    this.status = status;
    this.token = token;
  }
}

class Api {
  /** By how much the server's clock is ahead of this one, if by so much that it is seen. */
  #skew = 0;
  #bearer = sessionStorage.getItem(TOKEN_KEY);

  get hasToken() {
    return this.#bearer !== null;
  }

  /** What is shown from now on to be let in. It is kept for as long as the tab is open. */
  set token(token) {
    this.#bearer = token;
    if (token === null) sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  }

  /** The time by the server's clock. */
  now() {
    return Date.now() + this.#skew;
  }

  /** A response that is a success, its body yet to be read. */
  async open(path, { method = "GET", signal } = {}) {
    const headers = this.#bearer === null ? {} : { Authorization: `Bearer ${this.#bearer}` };
    const response = await fetch(path, { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" });
    const skew = Date.parse(response.headers.get("date")) - Date.now();
    // The header is in whole seconds.
    this.#skew = Math.abs(skew) > 2000 ? skew : 0;
    if (response.ok) return response;
    const text = await response.text();
    let said;
    try {
      said = parsed(text);
    } catch {
      // A proxy on the way has words of its own.
    }
    throw new Refused(response.status, said);
  }

  async ask(path, options) {
    return parsed(await (await this.open(path, options)).text());
  }

  /** All locks, page by page. */
  async *pages(signal) {
    let after = null;
    do {
      const query = after === null ? "" : `&after=${encodeURIComponent(after)}`;
      const { locks, next } = await this.ask(`/api/locks?limit=5000${query}`, { signal });
      yield locks;
      after = next ?? null;
    } while (after !== null);
  }

  async lock(name, signal) {
    if (isAddressable(name)) return this.ask(pathOf(name), { signal });
    const { locks } = await this.ask(`/api/locks?match=${encodeURIComponent(name)}`, { signal });
    return locks.find((lock) => lock.name === name) ?? Promise.reject(new Refused(404));
  }

  release(name, token) {
    return this.ask(`${pathOf(name)}/release?token=${token}`, { method: "POST" });
  }

  kick(name, session) {
    return this.ask(`${pathOf(name)}/waiters/${session}`, { method: "DELETE" });
  }
}

const pathOf = (name) => `/api/locks/${encodeURIComponent(name)}`;

/** A browser takes these two out of any path, encoded or not. */
const isAddressable = (name) => name !== "." && name !== "..";

/** Lines of server-sent events, as they come. */
class Parser {
  /** The id of the last event that was read to its end. */
  id = null;
  #rest = "";
  #event = "";
  #data = "";
  #id = null;
  #decoder = new TextDecoder();

  /** The events that these bytes end. */
  *feed(bytes) {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        this.id = this.#id ?? this.id;
        if (this.#data) yield { event: this.#event, data: this.#data };
        this.#event = this.#data = "";
      } else if (line.startsWith("data: ")) {
        this.#data += line.slice(6);
      } else if (line.startsWith("event: ")) {
        this.#event = line.slice(7);
      } else if (line.startsWith("id: ")) {
        this.#id = line.slice(4);
      }
    }
  }
}

/** No server has told of an event of this id, so what it still has of events comes first. */
const BEFORE_ALL = "0000000000000000-0";
const KEEP_ALIVE = 15_000;
const FIRST_PAUSE = 250;
const LAST_PAUSE = 5_000;
/** A server that stops takes a moment to come back. */
const AFTER_STOP = 1_000;

/**
 * Reads the events for ever, and comes back after a break. Whoever made it is told: `state(name, why)`,
 * `begin()` when all locks have to be listed anew, `happened(event)`, `whole()` when nothing is missing,
 * `missed(count)`, `overrun(count)`; `locked(isWrong)` is asked for a token.
 */
class Follower {
  #api;
  #told;
  #id = BEFORE_ALL;
  #keepAlive = KEEP_ALIVE;
  #pause = FIRST_PAUSE;
  #wake = () => {};
  /** Whether all locks have been listed since the page was opened or the last break in the events. */
  isComplete = false;

  constructor(api, told) {
    this.#api = api;
    this.#told = told;
  }

  async run() {
    for (;;) {
      const why = await this.#read().catch((error) => error);
      if (why instanceof Refused && why.status === 401) {
        this.#told.state("locked", why.message);
        await this.#told.locked();
        this.#pause = FIRST_PAUSE;
        continue;
      }
      if (why === "overrun") continue;
      if (why === "stopping") {
        this.#pause = AFTER_STOP;
      } else {
        const isFull = why instanceof Refused && why.status === 503;
        this.#told.state(isFull ? "full" : "reconnecting", why instanceof Error ? why.message : why);
      }
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, this.#pause);
      });
      this.#pause = Math.min(this.#pause * 2, LAST_PAUSE);
    }
  }

  /** Tries at once. */
  hurry() {
    this.#pause = FIRST_PAUSE;
    this.#wake();
  }

  /** Reads one stream to its end, and says why it ended. */
  async #read() {
    const silence = new AbortController();
    let timer;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(new Error("it has said nothing for too long")), this.#keepAlive * 2 + 5000);
    };
    wait();
    try {
      const after = this.#id === null ? "" : `?after=${this.#id}`;
      const response = await this.#api.open(`/api/events${after}`, { signal: silence.signal });
      const reader = response.body.getReader();
      const parser = new Parser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return "the connection was closed";
        wait();
        for (const { event, data } of parser.feed(value)) {
          const end = this.#pass(event, data);
          if (end) return end;
        }
        this.#id = parser.id ?? this.#id;
      }
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
  }

  /** Passes an event on. One that is about the stream's end says so. */
  #pass(event, data) {
    const said = parsed(data);
    switch (event) {
      case "hello":
        this.#keepAlive = Math.min(Math.max(said.keep_alive_ms ?? KEEP_ALIVE, 1000), 600_000);
        this.#pause = FIRST_PAUSE;
        if (this.isComplete) this.#told.whole();
        else this.#told.begin();
        break;
      case "missed":
        this.#pause = FIRST_PAUSE;
        if (this.#id !== BEFORE_ALL) this.#told.missed(said.count);
        this.#told.begin();
        break;
      case "overrun":
        // What is still there is too much: what comes from now on follows upon a new listing.
        this.#id = null;
        this.isComplete = false;
        this.#told.overrun(said.count);
        return "overrun";
      case "stopping":
        this.#told.state("stopping");
        return "stopping";
      default:
        // What names no lock is of a server that knows more than this page does.
        if (said.lock !== undefined) this.#told.happened(said);
    }
    return null;
  }
}
