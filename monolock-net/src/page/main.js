// The page: what is shown when, keys, and the deeds, each behind a question.

/** No person reads faster, and a page that draws less costs less. */
const FRAME_TIME = 200;
/** Where a picture takes long to draw, of so many parts of the time it takes one. */
const FRAME_SHARE = 8;
/** Between two sentences about the same lock for those who listen. */
const SPEAK_TIME = 3000;

const api = new Api();
const locks = new Locks();
const rates = new Rates();
const past = new History();

const CONTACTS = {
  connecting: "connecting",
  reading: "reading",
  live: "live",
  reconnecting: "reconnecting",
  stopping: "the server stops",
  full: "too many readers",
  locked: "token needed",
};

/** Since when the page has listened, and whether all it shows is so now. */
const contact = { state: "connecting", lostAt: null, openedAt: Date.now() };
let server = null;

function setContact(state, why = "") {
  const wasLive = contact.state === "live";
  if (contact.state === state && state !== "reconnecting") return;
  contact.state = state;
  if (state === "live") contact.lostAt = null;
  else if (wasLive) contact.lostAt = Date.now();
  byId("contact").dataset.state = state;
  setText(byId("contact-text"), CONTACTS[state]);
  byId("contact").title = why;
  const stale = byId("stale");
  stale.hidden = contact.lostAt === null || state === "reading";
  if (!stale.hidden) setText(stale, `Not live since ${timeOfDay(contact.lostAt)}: what is shown may be old.${why ? ` ${why}` : ""}`);
  if (wasLive || state === "live") speak(state === "live" ? "live" : `${CONTACTS[state]}: what is shown may be old`);
  changed();
}

const speak = (sentence) => setText(byId("spoken"), sentence);

/** Says what came of something, for as long as nothing else is said. */
function tell(sentence) {
  byId("message").hidden = false;
  setText(byId("message-text"), sentence);
  speak(sentence);
}

byId("message-close").addEventListener("click", () => (byId("message").hidden = true));

// The view.

const list = new List(locks, rates, { open: (lock) => (location.hash = hashOf(lock.name)), now: () => api.now(), changed });
const one = new One(locks, past, api, { release: askToRelease, kick: askToKick, now: () => api.now(), changed, since: contact.openedAt });

let [drawn, took] = [0, 0];
let drawing = null;

/** Something is to be shown, soon. */
function changed() {
  drawing ??= setTimeout(() => requestAnimationFrame(draw), Math.max(0, drawn + Math.max(FRAME_TIME, took * FRAME_SHARE) - performance.now()));
}

function draw() {
  drawing = null;
  const start = performance.now();
  list.show(follower.isComplete);
  one.show(follower.isComplete);
  if (server) setText(byId("server"), `${location.host} · ${server.version} · up ${age(api.now() - server.startedAt)}`);
  drawn = performance.now();
  took = drawn - start;
}

// Ages are in seconds.
setInterval(changed, 1000);

let returnTo = null;

function route() {
  const name = nameIn(location.hash);
  const hadName = one.name;
  document.body.classList.toggle("looking", name !== null);
  byId("one").hidden = name === null;
  one.open(name);
  list.select(name);
  document.title = name === null ? "monolock" : `${safe(name)} - monolock`;
  draw();
  setText(byId("keys"), "");
  const keys = name === null ? [["/", "filter"], ["↑ ↓", "choose"], ["Enter", "look"], ["r", "release"]] : [["Esc", "back"], ["r", "release"], ["Tab", "to the queue"], ["↑ ↓", "choose"], ["x", "kick"]];
  for (const [key, what] of keys) byId("keys").append(make("span", "", make("kbd", "", key), ` ${what}`));
  if (name !== null && name !== hadName) byId("one-title").focus({ preventScroll: true });
  else if (name === null && hadName !== null) list.focus();
}

addEventListener("hashchange", route);

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, select, textarea")) return;
  const isLooking = one.name !== null;
  if (event.key === "/") {
    if (byId("all").checkVisibility()) byId("filter").focus();
    else {
      location.hash = "#/";
      route();
      byId("filter").focus();
    }
    byId("filter").select();
  } else if (event.key === "Escape") {
    if (!byId("message").hidden) byId("message").hidden = true;
    else if (isLooking) location.hash = "#/";
    else {
      list.clear();
      changed();
    }
  } else if (event.key === "r") {
    if (isLooking) one.release();
    else if (list.selected?.holder && isAddressable(list.selected.name)) askToRelease(list.selected);
  } else if (event.key === "x" && isLooking) {
    one.kick();
  } else {
    return;
  }
  event.preventDefault();
});

// The deeds. What is asked about is the claim that was seen, and its token or session is what is sent.

const ask = byId("ask");
/** `{ isStill(), gone(), act() }` of what is asked about. */
let asked = null;

function askAbout({ title, verb, facts, warning, isStill, gone, act }) {
  setText(byId("ask-title"), title);
  byId("ask-facts").replaceChildren(
    ...facts.flatMap(([what, value, isData]) => [make("dt", "", what), make("dd", isData ? "data" : "", value)]),
  );
  byId("ask-warning").replaceChildren(...warning);
  setText(byId("ask-changed"), "");
  const yes = byId("ask-yes");
  setText(yes, verb);
  yes.disabled = false;
  asked = { isStill, gone, act };
  ask.showModal();
}

/** The claim that is asked about may end before the answer. */
function lookAtQuestion() {
  if (!ask.open || asked.isStill()) return;
  byId("ask-yes").disabled = true;
  setText(byId("ask-changed"), asked.gone());
  if (document.activeElement === byId("ask-yes")) byId("ask-no").focus();
}

byId("ask-no").addEventListener("click", () => ask.close());
byId("ask-yes").addEventListener("click", async () => {
  const { act } = asked;
  byId("ask-yes").disabled = true;
  const said = await act().catch((error) => (error instanceof Refused ? error.message : `the server cannot be reached: ${error.message}`));
  ask.close();
  tell(said);
});

function factsOf({ identity, address, session }) {
  return [...(identity ? [["Identity", safe(identity), true]] : []), ["Address", safe(address), true], ["Session", session, true]];
}

function askToRelease({ name, holder, queue }) {
  const { token } = holder;
  const next = queue.values().next().value;
  const left = make("span", "left", "the rest of its lease.");
  askAbout({
    title: `Release ${quoted(name)}?`,
    verb: "Release",
    facts: [
      ["Lock", safe(name), true],
      ["Held by", who(holder), true],
      ...factsOf(holder).filter(([what]) => what !== (holder.identity ? "Identity" : "Address")),
      ["Since", `${timeInUtc(holder.since)}, for ${age(api.now() - holder.since)}`],
      ["Token", token, true],
      ["Next", next ? `${named(next)}; ${counted(queue.size, "waiter")}` : "nobody waits"],
    ],
    warning: ["The holder is told, and its connection is closed. One that is cut off may believe in it for up to ", left],
    isStill: () => locks.get(name)?.holder?.token === token,
    gone: () => {
      const holder = locks.get(name)?.holder;
      const now = holder ? `it is held by ${named(holder)} under token ${holder.token}` : "nobody holds it";
      return `This claim has ended meanwhile: ${now}.`;
    },
    act: async () => {
      try {
        const { holder } = await api.release(name, token);
        const released = { session: holder.session, identity: holder.identity, address: holder.remote_addr };
        const held = age(api.now() - Date.parse(holder.since));
        return `released ${quoted(name)}, which ${named(released)} had held for ${held} under token ${token}`;
      } catch (error) {
        if (error instanceof Refused && error.status === 409) {
          return `nothing was done: the lock ${quoted(name)} is not held under token ${token}, but under ${error.token}`;
        }
        if (error instanceof Refused && error.status === 404) return `nothing was done: nobody holds the lock ${quoted(name)}`;
        throw error;
      }
    },
  });
  // How long it may believe is seen when one looks.
  api.lock(name).then(
    ({ holder }) => {
      if (holder?.token === token) setText(left, `${brief(holder.lease_remaining_ms)} more.`);
    },
    () => {},
  );
}

function askToKick({ name }, waiter) {
  const { session } = waiter;
  askAbout({
    title: `Kick a waiter of ${quoted(name)}?`,
    verb: "Kick",
    facts: [["Lock", safe(name), true], ...factsOf(waiter), ["Waits for", age(api.now() - waiter.since)]],
    warning: ["It leaves the queue, and its connection is closed. It may come back and queue anew."],
    isStill: () => Boolean(locks.get(name)?.queue.has(session)),
    gone: () => {
      const holds = locks.get(name)?.holder?.session === session;
      return holds ? "It waits no longer: it holds the lock now." : "It waits no longer.";
    },
    act: async () => {
      try {
        await api.kick(name, session);
        return `removed ${named(waiter)} from the queue of ${quoted(name)} after ${age(api.now() - waiter.since)}`;
      } catch (error) {
        if (error instanceof Refused && error.status === 404) {
          return `nothing was done: ${named(waiter)} does not wait for the lock ${quoted(name)}`;
        }
        throw error;
      }
    },
  });
}

// The token, where the server wants one.

const login = byId("login");
let loggedIn = () => {};

login.addEventListener("cancel", (event) => event.preventDefault());
byId("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = byId("login-token");
  api.token = input.value.trim();
  input.value = "";
  login.close();
  loggedIn();
});
byId("forget").addEventListener("click", () => {
  api.token = null;
  // All that is known goes with it.
  location.reload();
});

function locked() {
  setText(byId("login-wrong"), api.hasToken ? "That is not the token of this server." : "");
  return new Promise((resolve) => {
    loggedIn = resolve;
    if (!login.open) login.showModal();
  });
}

// The events.

let listing = null;
let spokenAt = -Infinity;

const follower = new Follower(api, {
  state: setContact,
  locked,
  begin: listAll,
  whole: () => setContact("live"),
  missed: (count) => {
    const many = count === null ? "Events" : counted(count, "event");
    tell(`${many} ${count === 1 ? "was" : "were"} missed while the connection was gone, so all locks are read anew.`);
  },
  overrun: (count) => {
    setContact("reading");
    tell(`This page was too slow, and the server has dropped it: ${counted(count, "event")} ${count === 1 ? "was" : "were"} missed. All locks are read anew.`);
  },
  happened: (event) => {
    if (event.event === "granted") rates.granted(Date.parse(event.time));
    past.happened(event);
    if (!locks.happened(event)) listAll();
    if (event.lock === one.name && event.event === "granted" && follower.isComplete) speakOfHolder(event);
    lookAtQuestion();
    changed();
  },
});

function speakOfHolder({ identity, remote_addr: address, session, token }) {
  if (performance.now() - spokenAt < SPEAK_TIME) return;
  spokenAt = performance.now();
  speak(`now held by ${named({ identity, address, session })} under token ${token}`);
}

/** Reads all locks, and what the server says of itself. Events that come meanwhile are put aside. */
async function listAll() {
  listing?.abort();
  const own = (listing = new AbortController());
  follower.isComplete = false;
  setContact("reading");
  rates.begin(api.now());
  locks.beginListing();
  try {
    const info = await api.ask("/api/info", { signal: own.signal });
    server = { version: info.version, startedAt: api.now() - info.uptime_ms };
    for await (const page of api.pages(own.signal)) {
      if (own.signal.aborted) return;
      locks.page(page);
    }
    if (own.signal.aborted) return;
    locks.listed();
    follower.isComplete = true;
    setContact("live");
    byId("forget").hidden = !api.hasToken;
    lookAtQuestion();
    draw();
    one.look();
  } catch {
    // With the connection the stream ends as well, and whoever comes back lists anew. Else it is tried again.
    if (!own.signal.aborted) setTimeout(() => own === listing && !own.signal.aborted && listAll(), 2000);
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  follower.hurry();
  one.look();
  changed();
});
addEventListener("online", () => follower.hurry());

route();
follower.run();
