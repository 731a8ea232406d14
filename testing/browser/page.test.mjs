// The page at the admin address: what a person sees and does, in a real browser against the real server.

import assert from "node:assert/strict";
import { writeFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Client, Line, PHONE, Page, Server, bench, laterClaims } from "./support.mjs";

/** A server that is there for one test. */
async function serve(t, options) {
  const server = await Server.start(options);
  t.after(() => server.stop("SIGKILL"));
  return server;
}

const look = (name) => `#/lock/${encodeURIComponent(name)}`;

test("the four questions are answered: who holds it, since when, who waits, and a button to free it", async (t) => {
  const server = await serve(t);
  const holder = await Client.hold(server, "nightly/import");
  const waiters = [await Client.queue(server, "nightly/import"), await Client.queue(server, "nightly/import")];
  await Client.hold(server, "other");
  const page = await Page.open(server);
  await page.shows("#count", "2 locks");
  assert.equal(await page.text("#held"), "2");
  assert.equal(await page.text("#waiting"), "2");
  assert.equal(await page.text("#longest-wait-of"), "nightly/import");
  assert.deepEqual(await page.column("name"), ["nightly/import", "other"]);
  assert.deepEqual((await page.column("holder"))[0], holder.address);
  assert.deepEqual(await page.column("waiters"), ["2", "0"]);
  assert.deepEqual((await page.column("token"))[0], holder.token);

  await page.tab.click("#locks .rows .row:first-child .cell.name a");
  await page.shows("#h-who", holder.address);
  await page.shows("#h-token", holder.token);
  await page.shows("#h-since", " UTC, for ");
  await page.shows("#h-lease", "1h, ");
  await page.shows("#queue-count", "2 wait");
  assert.deepEqual(await page.column("address", "#queue"), waiters.map(({ address }) => address));
  await page.shows("#release", "Release");
  assert.equal(await page.tab.title(), "nightly/import - monolock");
  await page.close();
});

test("the table is filtered by a text in the name and by a pattern", async (t) => {
  const server = await serve(t);
  for (const name of ["nightly/import", "nightly/export", "Nightly", "other"]) await Client.hold(server, name);
  const page = await Page.open(server);
  const filter = async (text, ...names) => {
    await page.tab.$eval("#filter", (input) => input.select());
    await page.tab.type("#filter", text);
    await page.until(
      (names) => JSON.stringify([...document.querySelectorAll("#locks .rows .cell.name")].map((cell) => cell.textContent)) === names,
      JSON.stringify(names),
    );
  };
  await filter("nightly", "Nightly", "nightly/export", "nightly/import");
  await page.shows("#count", "3 of 4 locks");
  await filter("N", "Nightly");
  await filter("nightly/*", "nightly/export", "nightly/import");
  await filter("*port", "nightly/export", "nightly/import");
  await filter("?ther", "other");
  await filter("ther?");
  await page.shows("#none", 'no name matches "ther?"');
  await page.tab.keyboard.press("Escape");
  await page.shows("#count", "4 locks");
  await page.close();
});

test("the table is sorted by each column, in both directions", async (t) => {
  const server = await serve(t);
  const b = await Client.hold(server, "b");
  await laterClaims();
  await Client.hold(server, "c");
  await laterClaims();
  await Client.hold(server, "a");
  await Client.queue(server, "c");
  await laterClaims();
  await Client.queue(server, "a");
  await Client.queue(server, "a");
  const page = await Page.open(server);
  const sorted = async (key, direction, names) => {
    await page.tab.click(`#locks .head .${key} button`);
    await page.tab.waitForSelector(`#locks .head .${key}[aria-sort="${direction}"]`);
    await page.until(
      (names) => [...document.querySelectorAll("#locks .rows .cell.name")].map((cell) => cell.textContent).join("") === names,
      names,
    );
  };
  await page.shows("#count", "3 locks");
  assert.deepEqual(await page.column("name"), ["a", "c", "b"]);
  await sorted("waiters", "ascending", "bca");
  await sorted("name", "ascending", "abc");
  await sorted("name", "descending", "cba");
  await sorted("held", "descending", "bca");
  await sorted("held", "ascending", "acb");
  await sorted("wait", "descending", "cab");
  await sorted("token", "descending", "acb");
  await sorted("token", "ascending", "bca");
  assert.equal((await page.tab.$$("#locks [aria-sort]:not([aria-sort=none])")).length, 1);
  b.close();
  await page.shows("#count", "2 locks");
  await page.close();
});

test("a handover is seen as it happens", async (t) => {
  const server = await serve(t);
  const [first, second] = [await Client.hold(server, "nightly/import"), await Client.queue(server, "nightly/import")];
  const page = await Page.open(server, look("nightly/import"));
  await page.shows("#h-token", first.token);
  await page.tab.evaluate(() => (window.isTheSame = true));
  first.close();
  const token = await second.acquired();
  await page.shows("#h-token", token);
  await page.shows("#h-who", second.address);
  await page.shows("#queue-count", "nobody waits");
  await page.shows("#spoken", `now held by ${second.address}`);
  await page.until(() => document.querySelectorAll("#ownerships tr").length === 2);
  const ownerships = await page.tab.$$eval("#ownerships tr", (rows) => rows.map((row) => [".h-token", ".h-who", ".h-end"].map((cell) => row.querySelector(cell).textContent)));
  assert.deepEqual(ownerships, [
    [token, second.address, "not yet"],
    [first.token, first.address, "graceful"],
  ]);
  assert.ok(await page.tab.evaluate(() => window.isTheSame));
  second.close();
  await page.shows("#nobody", "nobody claims this lock");
  const third = await Client.hold(server, "nightly/import");
  await page.shows("#h-token", third.token);
  await page.close();
});

test("what was read by others a moment ago is known to a new page too", async (t) => {
  const server = await serve(t);
  const other = await Page.open(server);
  const [first, second] = [await Client.hold(server, "jobs"), await Client.queue(server, "jobs")];
  first.close();
  const token = await second.acquired();
  const page = await Page.open(server, look("jobs"));
  await page.until(() => document.querySelectorAll("#ownerships tr").length === 2);
  await page.shows("#h-token", token);
  await page.shows("#ownerships tr:nth-child(2) .h-token", first.token);
  await page.close();
  await other.close();
});

test("a release hits the holder that the question names", async (t) => {
  const server = await serve(t);
  const [holder, next] = [await Client.hold(server, "jobs"), await Client.queue(server, "jobs")];
  const page = await Page.open(server, look("jobs"));
  await page.shows("#h-token", holder.token);
  await page.tab.click("#release");
  await page.shows("#ask-title", 'Release "jobs"?');
  for (const fact of [holder.address, holder.token, next.address]) await page.shows("#ask-facts", fact);
  await page.shows("#ask-warning", " more.");
  await page.tab.click("#ask-no");
  await page.tab.waitForSelector("#ask", { hidden: true });
  assert.ok(await holder.isHolder());

  await page.tab.click("#release");
  await page.tab.click("#ask-yes");
  assert.equal(await holder.error(), 2);
  const token = await next.acquired();
  await page.shows("#message-text", `released "jobs", which ${holder.address} (session `);
  await page.shows("#message-text", `under token ${holder.token}`);
  await page.shows("#h-token", token);
  await page.shows("#ownerships tr:nth-child(2) .h-end", "force");
  await page.close();
});

for (const [device, viewport] of [["desktop", undefined], ["phone", PHONE]]) {
  test(`on a ${device} a question stands still when it has heard how long the holder may believe`, async (t) => {
    const server = await serve(t);
    await Client.hold(server, "jobs", 2 ** 32 - 1);
    const page = await Page.open(server, look("jobs"), { viewport });
    await page.shows("#h-lease", " left");
    await page.tab.setRequestInterception(true);
    let looks = [];
    page.tab.on("request", (request) => (looks && request.url().endsWith("/api/locks/jobs") ? looks.push(request) : request.continue()));
    await page.tab.click("#release");
    await page.shows("#ask-warning", "may believe in it for up to the rest of its lease.");
    const places = () => page.tab.$$eval("#ask, #ask *", (elements) => elements.map((element) => JSON.stringify(element.getBoundingClientRect())));
    const before = await places();
    const held = looks;
    looks = null;
    for (const request of held) await request.continue();
    await page.shows("#ask-warning", "may believe in it for up to 49days 17h ");
    assert.deepEqual(await places(), before);
    await page.close();
  });
}

test("a waiter is kicked out of the middle of the queue", async (t) => {
  const server = await serve(t);
  const holder = await Client.hold(server, "jobs");
  const waiters = [];
  for (let number = 0; number < 3; number++) waiters.push(await Client.queue(server, "jobs"));
  const page = await Page.open(server, look("jobs"));
  await page.shows("#queue-count", "3 wait");
  await page.tab.click("#queue .rows .row:nth-child(2) button");
  await page.shows("#ask-facts", waiters[1].address);
  await page.tab.click("#ask-yes");
  assert.equal(await waiters[1].error(), 2);
  await page.shows("#message-text", `removed ${waiters[1].address} (session `);
  await page.shows("#queue-count", "2 wait");
  assert.deepEqual(await page.column("address", "#queue"), [waiters[0].address, waiters[2].address]);
  assert.ok(await holder.isHolder());
  await page.close();
});

test("b24: a question about a holder that has gone meanwhile says so, and can be answered with no alone", async (t) => {
  const server = await serve(t);
  const [first, second] = [await Client.hold(server, "jobs"), await Client.queue(server, "jobs")];
  const page = await Page.open(server, look("jobs"));
  await page.shows("#h-token", first.token);
  await page.tab.click("#release");
  first.close();
  const token = await second.acquired();
  await page.shows("#ask-changed", `it is held by ${second.address}`);
  await page.shows("#ask-changed", token);
  // The question is about the first one still.
  await page.shows("#ask-facts", first.token);
  assert.ok(await page.tab.$eval("#ask-yes", (button) => button.disabled));
  await page.tab.keyboard.press("Escape");
  await page.tab.waitForSelector("#ask", { hidden: true });
  assert.ok(await second.isHolder());
  await page.close();
});

test("b24: an answer that is overtaken by a handover ends nobody's claim", async (t) => {
  const server = await serve(t);
  const [first, second] = [await Client.hold(server, "jobs"), await Client.queue(server, "jobs")];
  const page = await Page.open(server, look("jobs"), { expected: [/status of 409/] });
  await page.shows("#h-token", first.token);
  // The answer is on its way for as long as it takes.
  await page.tab.setRequestInterception(true);
  const sent = new Promise((resolve) => {
    page.tab.on("request", (request) => (request.method() === "POST" ? resolve(request) : request.continue()));
  });
  await page.tab.click("#release");
  await page.tab.click("#ask-yes");
  const request = await sent;
  assert.equal(new URL(request.url()).searchParams.get("token"), first.token);
  first.close();
  const token = await second.acquired();
  await request.continue();
  await page.shows("#message-text", `nothing was done: the lock "jobs" is not held under token ${first.token}, but under ${token}`);
  assert.ok(await second.isHolder());
  await page.close();
});

test("b25: a kick that is overtaken by the promotion leaves the new holder alone", async (t) => {
  const server = await serve(t);
  const [first, second] = [await Client.hold(server, "jobs"), await Client.queue(server, "jobs")];
  const page = await Page.open(server, look("jobs"), { expected: [/status of 404/] });
  await page.shows("#queue-count", "1 waits");
  await page.tab.setRequestInterception(true);
  const sent = new Promise((resolve) => {
    page.tab.on("request", (request) => (request.method() === "DELETE" ? resolve(request) : request.continue()));
  });
  await page.tab.click("#queue .rows .row button");
  await page.tab.click("#ask-yes");
  const request = await sent;
  first.close();
  await second.acquired();
  await request.continue();
  await page.shows("#message-text", "nothing was done: ");
  assert.ok(await second.isHolder());
  await page.close();
});

/** Names, and how they are shown. */
const HOSTILE = [
  ["<img src=x onerror=alert(1)><script>alert(2)</script>", "<img src=x onerror=alert(1)><script>alert(2)</script>"],
  [`"><a href='javascript:alert(1)'>'`, `"><a href='javascript:alert(1)'>'`],
  ["line\nbreak\ttab\r\0nul\u001b[31m\u009b", "line\\nbreak\\ttab\\r\\0nul\\u{1b}[31m\\u{9b}"],
  ["\u202etxt.exe\u2066\u200f", "\\u{202e}txt.exe\\u{2066}\\u{200f}"],
  ["back\\slash", "back\\\\slash"],
  ["a%2Fb", "a%2Fb"],
  ["?x=1&y=#z;/../..", "?x=1&y=#z;/../.."],
  ["__proto__", "__proto__"],
  [" ", " "],
  ["*", "*"],
  ["größer 锁 🔒 שלום", "größer 锁 🔒 שלום"],
  ["x".repeat(255), "x".repeat(255)],
  ["🔒".repeat(63), "🔒".repeat(63)],
];

test("b52: hostile names are shown as they are, looked at and released", async (t) => {
  const server = await serve(t);
  const clients = [];
  for (const [name] of HOSTILE) clients.push(await Client.hold(server, name));
  const page = await Page.open(server);
  await page.shows("#count", `${HOSTILE.length} locks`);
  assert.deepEqual((await page.column("name")).sort(), HOSTILE.map(([, shown]) => shown).sort());
  await page.picture("hostile-names");
  const elements = () => page.tab.evaluate(() => document.querySelectorAll("img, iframe, script, a[href^=javascript]").length);
  assert.equal(await elements(), 1);
  for (const [at, [name, shown]] of HOSTILE.entries()) {
    await page.tab.evaluate((hash) => (location.hash = hash), look(name));
    await page.shows("#h-token", clients[at].token);
    assert.equal(await page.text("#one-title"), shown);
    await page.tab.click("#release");
    await page.shows("#ask-facts", shown);
    await page.tab.click("#ask-yes");
    assert.equal(await clients[at].error(), 2, shown);
    // The answer and the event come in either order.
    await page.shows("#message-text", `released "${shown.replaceAll('"', '\\"')}", which `);
    await page.shows("#nobody", "nobody claims this lock");
  }
  assert.equal(await elements(), 1);
  await page.shows("#held", "0");
  await page.close();
});

test("the two names that no browser sends in a path are shown, and not released by mistake", async (t) => {
  const server = await serve(t);
  const clients = [await Client.hold(server, "."), await Client.hold(server, ".."), await Client.hold(server, "api")];
  for (const [at, name] of [".", ".."].entries()) {
    const page = await Page.open(server, look(name));
    await page.shows("#h-token", clients[at].token);
    await page.shows("#h-lease", "1h, ");
    assert.ok(await page.tab.$eval("#release", (button) => button.disabled));
    await page.tab.keyboard.press("r");
    assert.equal(await page.tab.$("#ask[open]"), null);
    await page.close();
  }
});

test("fifteen thousand locks are scrolled, searched and sorted", async (t) => {
  const server = await serve(t);
  const crowd = bench(server, "idle", "--connections", "15000", "--locks", "15000", "--duration", "30m", "--timeout", "60s");
  t.after(() => crowd.kill("SIGKILL"));
  const page = await Page.open(server);
  await page.shows("#count", "15,000 locks");
  await page.tab.click("#locks .head .name button");
  await page.tab.waitForSelector("#locks .head .name[aria-sort=ascending]");
  const name = (number) => `monolock-bench/${String(number).padStart(15, "0")}`;
  await page.shows("#locks .rows .row:first-child .name", name(0));
  assert.equal(await page.tab.$eval("#locks", (grid) => grid.getAttribute("aria-rowcount")), "15001");
  const rows = () => page.tab.$$eval("#locks .rows .row", (rows) => rows.map((row) => [Number(row.getAttribute("aria-rowindex")), row.querySelector(".name").textContent]));
  const check = async () => {
    const seen = await rows();
    assert.ok(seen.length > 10 && seen.length < 60, `${seen.length} rows exist`);
    for (const [at, [index, shown]] of seen.entries()) {
      assert.equal(index, seen[0][0] + at);
      assert.equal(shown, name(index - 2));
    }
    return seen;
  };
  await check();
  await page.tab.$eval("#locks", (grid) => (grid.scrollTop = 7000 * 32));
  await page.until(() => [...document.querySelectorAll("#locks .rows .row")].some((row) => row.getAttribute("aria-rowindex") === "7002"));
  await check();
  await page.tab.focus("#locks");
  await page.tab.keyboard.press("End");
  await page.until(() => document.querySelector("#locks .row[aria-selected=true]")?.getAttribute("aria-rowindex") === "15001");
  assert.equal((await check()).at(-1)[1], name(14_999));
  await page.tab.keyboard.press("PageUp");
  await page.tab.keyboard.press("ArrowUp");
  await page.until(() => {
    const active = document.getElementById(document.querySelector("#locks").getAttribute("aria-activedescendant"));
    return active?.getAttribute("aria-selected") === "true" && active.getAttribute("aria-rowindex") < 14_999;
  });
  await page.tab.type("#filter", "0012345");
  await page.until((name) => [...document.querySelectorAll("#locks .rows .name a")].map((cell) => cell.textContent).join() === name, name(12_345));
  assert.equal(await page.text("#count"), "1 of 15,000 locks");
  await page.tab.keyboard.press("Escape");
  await page.until(() => document.getElementById("count").textContent === "15,000 locks");
  await page.picture("15000-locks");
  crowd.kill("SIGKILL");
  await page.shows("#none", "nobody claims a lock");
  await page.close();
});

test("all of it is done by keyboard alone", async (t) => {
  const server = await serve(t);
  const clients = {};
  for (const name of ["a", "b", "nightly/a", "nightly/b"]) clients[name] = await Client.hold(server, name);
  const waiter = await Client.queue(server, "nightly/b");
  await Client.queue(server, "nightly/b");
  const page = await Page.open(server);
  await page.shows("#count", "4 locks");
  const press = async (...keys) => {
    for (const key of keys) await page.tab.keyboard.press(key);
  };
  const focused = (id) => page.until((id) => document.activeElement?.id === id, id);
  await press("/");
  await focused("filter");
  await page.tab.keyboard.type("nightly");
  await press("Enter");
  await focused("locks");
  await page.shows("#count", "2 of 4 locks");
  await press("ArrowDown");
  await page.shows("#locks .row[aria-selected=true]", "nightly/b");
  await press("Enter");
  await focused("one-title");
  await page.shows("#h-token", clients["nightly/b"].token);
  // The queue is two stops of the tab key away: the button to release, and it.
  await press("Tab", "Tab");
  await focused("queue");
  await press("ArrowDown", "x");
  await page.shows("#ask-facts", waiter.address);
  await focused("ask-no");
  await press("Tab");
  await focused("ask-yes");
  await press("Enter");
  assert.equal(await waiter.error(), 2);
  await page.shows("#message-text", "removed ");
  await focused("queue");
  await press("r");
  await page.shows("#ask-facts", clients["nightly/b"].token);
  await press("Enter");
  await page.tab.waitForSelector("#ask", { hidden: true });
  assert.ok(await clients["nightly/b"].isHolder());
  await press("r", "Tab", "Enter");
  assert.equal(await clients["nightly/b"].error(), 2);
  await page.shows("#message-text", "released ");
  await page.shows("#queue-count", "nobody waits");
  await press("Escape");
  await page.tab.waitForSelector("#message", { hidden: true });
  await press("Escape");
  await focused("locks");
  await page.shows("#locks .row[aria-selected=true]", "nightly/b");
  await press("ArrowUp");
  await page.shows("#locks .row[aria-selected=true]", "nightly/a");
  await press("r");
  await page.shows("#ask-facts", clients["nightly/a"].token);
  await press("Escape");
  await page.tab.waitForSelector("#ask", { hidden: true });
  await press("Escape");
  await page.shows("#count", "4 locks");
  await page.close();
});

test("on a phone nothing is wider than the screen", async (t) => {
  const server = await serve(t);
  const name = "x".repeat(255);
  for (const name of ["nightly/import", "b", "c"]) await Client.hold(server, name);
  await Client.hold(server, name);
  for (let number = 0; number < 3; number++) await Client.queue(server, name);
  const fits = async (picture) => {
    const [wide, within] = await page.tab.evaluate(() => [
      Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
      [...document.querySelectorAll(".grid, .scroll, dialog[open]")].filter((element) => element.checkVisibility() && element.scrollWidth > element.clientWidth).map(({ id }) => id),
    ]);
    assert.equal(wide, 360);
    assert.deepEqual(within, []);
    await page.picture(picture);
  };
  const page = await Page.open(server, "", { viewport: PHONE });
  await page.shows("#count", "4 locks");
  await fits("phone-locks");
  await page.tab.select("#order", "name");
  await page.until(() => document.querySelector("#locks .rows .name").textContent === "b");
  await page.tab.tap("#locks .rows .row:last-child .holder");
  await page.shows("#queue-count", "3 wait");
  await page.shows("#h-lease", "1h, ");
  await fits("phone-lock");
  await page.tab.tap("#release");
  await page.shows("#ask-warning", " more.");
  await fits("phone-question");
  await page.tab.tap("#ask-no");
  await page.tab.tap("#back");
  await page.shows("#locks", "nightly/import");
  await page.close();
});

test("the page comes back to a server that was stopped, and to one that was killed", async (t) => {
  let server = await serve(t);
  const { ports } = server;
  await Client.hold(server, "before");
  const page = await Page.open(server, "", { expected: [/net::ERR_/] });
  await page.shows("#locks", "before");
  await page.tab.evaluate(() => (window.isTheSame = true));
  // It may not be there for long.
  await page.tab.evaluate(() => {
    const contact = document.getElementById("contact");
    window.states = [];
    new MutationObserver(() => window.states.push(contact.dataset.state)).observe(contact, { attributes: true });
  });
  await server.stop();
  await page.until(() => window.states.includes("stopping"));
  await page.shows("#stale", "what is shown may be old");

  server = await serve(t, { ports });
  const second = await Client.hold(server, "after");
  await page.live();
  await page.until(() => [...document.querySelectorAll("#locks .rows .name")].map((cell) => cell.textContent).join() === "after");
  await page.shows("#message-text", "all locks are read anew");
  assert.equal(await page.tab.$("#stale:not([hidden])"), null);

  await server.stop("SIGKILL");
  await page.state("reconnecting");
  server = await serve(t, { ports });
  await page.live();
  await page.shows("#none", "nobody claims a lock");
  const third = await Client.hold(server, "third");
  await page.shows("#locks", third.token);
  assert.ok(await page.tab.evaluate(() => window.isTheSame));
  second.close();
  await page.close();
});

test("a connection that is lost is resumed where it broke, and nothing is read anew", async (t) => {
  const server = await serve(t);
  const first = await Client.hold(server, "jobs");
  const line = await Line.to(server);
  t.after(() => line.close());
  const page = await Page.open(line, look("jobs"), { expected: [/net::ERR_/] });
  await page.shows("#h-token", first.token);
  const listings = [];
  page.tab.on("request", (request) => new URL(request.url()).pathname === "/api/locks" && listings.push(request.url()));
  line.cut();
  await page.state("reconnecting");
  const second = await Client.queue(server, "jobs");
  first.close();
  const token = await second.acquired();
  line.mend();
  await page.live();
  await page.shows("#h-token", token);
  assert.deepEqual(listings, []);
  await page.close();
});

test("a page that is too slow is dropped and told, and reads all locks anew", async (t) => {
  const server = await serve(t);
  const holder = await Client.hold(server, "steady");
  const page = await Page.open(server);
  await page.shows("#count", "1 lock");
  const debug = await page.tab.createCDPSession();
  await debug.send("Debugger.enable");
  const paused = new Promise((resolve) => debug.once("Debugger.paused", resolve));
  await debug.send("Debugger.pause");
  await paused;
  // Each cycle is two events. Some of them lie in buffers of both systems and of the browser; few, if each character of a name is six.
  const load = bench(server, "cycle", "--connections", "32", "--prefix", "\u0001".repeat(240), "--duration", "30m");
  t.after(() => load.kill("SIGKILL"));
  const granted = await server.metric("monolock_wait_seconds_count");
  while ((await server.metric("monolock_wait_seconds_count")) - granted < 25_000) await pause(100);
  load.kill("SIGKILL");
  await debug.send("Debugger.resume");
  await page.shows("#message-text", "This page was too slow, and the server has dropped it: ");
  await page.live();
  assert.ok((await server.metric("monolock_event_readers_dropped_total")) >= 1);
  await page.shows("#locks", holder.token);
  await page.shows("#count", "1 lock");
  await page.close();
});

test("a server that wants a token is shown one, which is in no address", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "monolock-token-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, "admin.token");
  writeFileSync(file, "open-sesame\n");
  const server = await serve(t, { more: ["--admin-token-file", file] });
  const holder = await Client.hold(server, "jobs");
  const page = await Page.open(server, look("jobs"), { isLive: false, expected: [/status of 401/] });
  const urls = [];
  page.tab.on("request", (request) => urls.push(request.url()));
  await page.state("locked");
  const enter = async (token) => {
    await page.tab.waitForSelector("#login[open]");
    await page.tab.type("#login-token", token);
    await page.tab.keyboard.press("Enter");
  };
  assert.equal(await page.text("#login-wrong"), "");
  await enter("wrong");
  await page.shows("#login-wrong", "That is not the token");
  await enter("open-sesame");
  await page.live();
  await page.shows("#h-token", holder.token);
  await page.tab.click("#release");
  await page.tab.click("#ask-yes");
  assert.equal(await holder.error(), 2);
  await page.tab.reload();
  await page.live();
  assert.equal(await page.tab.$("#login[open]"), null);
  await page.tab.click("#forget");
  await page.tab.waitForSelector("#login[open]");
  assert.ok(urls.length > 3 && !urls.some((url) => url.includes("sesame")), urls.join("\n"));
  await page.close();
});

test("more pages than the server serves are told so", async (t) => {
  const server = await serve(t);
  const streams = [];
  t.after(() => streams.forEach(({ stream }) => stream.abort()));
  for (let number = 0; number < 16; number++) {
    const stream = new AbortController();
    // A response that nobody has any more is cancelled.
    const response = await fetch(`http://127.0.0.1:${server.adminPort}/api/events`, { signal: stream.signal });
    streams.push({ stream, response });
  }
  const page = await Page.open(server, "", { isLive: false, expected: [/status of 503/] });
  await page.state("full");
  await page.shows("#contact", "too many readers");
  streams.pop().stream.abort();
  await page.live();
  await page.close();
});

test("the picture in the manual", async (t) => {
  const server = await serve(t);
  const names = ["billing/close", "etl/customers", "etl/orders", "leader/mailer", "leader/scheduler", "nightly/export", "shard-1/compact", "shard-2/compact", "shard-3/compact"];
  const page = await Page.open(server, look("nightly/import"), { viewport: { width: 1280, height: 800 } });
  let holder = await Client.hold(server, "nightly/import", 900_000);
  for (const name of names) await Client.hold(server, name, 900_000);
  const queue = [];
  for (let number = 0; number < 8; number++) queue.push(await Client.queue(server, "nightly/import", 900_000));
  for (let number = 0; number < 2; number++) await Client.queue(server, "etl/orders", 900_000);
  const load = bench(server, "cycle", "--connections", "1", "--rate", "40", "--duration", "30m");
  t.after(() => load.kill("SIGKILL"));
  const held = (seconds) => page.until((seconds) => /for (\d+)s/.exec(document.querySelector("#h-since").textContent)?.[1] >= seconds, seconds);
  for (const seconds of [1, 2, 1]) {
    await held(seconds);
    holder.close();
    holder = queue.shift();
    await page.shows("#h-token", await holder.acquired());
  }
  await held(2);
  await page.shows("#h-lease", " left");
  load.kill("SIGKILL");
  await page.shows("#count", "10 locks");
  await page.picture("page");
  await page.tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await page.picture("page-dark");
  await page.close();
});
