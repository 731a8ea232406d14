// The real server, raw clients of it, and pages in a real browser.
//
// Nothing here sleeps: whatever is waited for is a condition. A page that says anything on its console, breaks the
// policy of its document or calls another origin fails its test.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

import puppeteer from "puppeteer-core";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TARGET = path.resolve(ROOT, process.env.CARGO_TARGET_DIR ?? "target");
export const MONOLOCK = process.env.MONOLOCK ?? path.join(TARGET, "debug/monolock");
/** Where what was seen is left. */
export const PICTURES = path.join(TARGET, "browser");
mkdirSync(PICTURES, { recursive: true });

/** For all that is waited for: a machine that is busy with other things takes long. */
export const PATIENCE = Number(process.env.MONOLOCK_BROWSER_PATIENCE ?? 60_000);

/** By what names Chromium goes, on the search path. */
const CHROMIUM = ["chromium", "chromium-browser", "google-chrome"];

function chromium() {
  const folders = process.env.PATH.split(path.delimiter);
  const files = CHROMIUM.flatMap((name) => folders.map((folder) => path.join(folder, name)));
  const found = process.env.MONOLOCK_CHROMIUM ?? files.find((file) => existsSync(file));
  assert.ok(found, "no Chromium: MONOLOCK_CHROMIUM names one");
  return found;
}

/** The server ends a connection that has lived long, and another request could meet that. */
const ONE_REQUEST = { headers: { connection: "close" } };

/** A running server on ports of its own. */
export class Server {
  static async start({ ports = [0, 0, 0], host = "127.0.0.1", more = [] } = {}) {
    const server = new Server();
    const hosts = [host, "127.0.0.1", "127.0.0.1"];
    const flags = ["--listen", "--admin-listen", "--ops-listen"].flatMap((flag, at) => [flag, `${hosts[at]}:${ports[at]}`]);
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("MONOLOCK")));
    server.child = spawn(MONOLOCK, [...flags, "--log-format", "json", ...more], {
      stdio: ["ignore", "ignore", "pipe"],
      env: environment,
    });
    server.ended = new Promise((resolve) => server.child.once("exit", resolve));
    const addresses = {};
    const log = [];
    const lines = readline.createInterface(server.child.stderr);
    await new Promise((resolve, reject) => {
      lines.on("line", (line) => {
        log.push(line);
        const { message, address } = JSON.parse(line);
        if (address) addresses[message] = Number(address.split(":").at(-1));
        if (Object.keys(addresses).length === 3) resolve();
      });
      server.ended.then(() => reject(new Error(`the server does not start:\n${log.join("\n")}`)));
    });
    server.port = addresses.listening;
    server.adminPort = addresses["serving the admin API"];
    server.opsPort = addresses["serving the ops endpoints"];
    return server;
  }

  get ports() {
    return [this.port, this.adminPort, this.opsPort];
  }

  url(hash = "") {
    return `http://localhost:${this.adminPort}/${hash}`;
  }

  async api(target) {
    const response = await fetch(`http://127.0.0.1:${this.adminPort}${target}`, ONE_REQUEST);
    return { status: response.status, body: await response.json() };
  }

  async metric(name) {
    const text = await (await fetch(`http://127.0.0.1:${this.opsPort}/metrics`, ONE_REQUEST)).text();
    return Number(text.split("\n").find((line) => line.startsWith(`${name} `)).split(" ")[1]);
  }

  async stop(signal = "SIGTERM") {
    this.child.kill(signal);
    await this.ended;
  }
}

/** An `ACQUIRE`, in bytes. */
export function acquire(name, leaseMs) {
  const text = Buffer.from(name);
  const head = Buffer.alloc(8);
  head[0] = head[1] = 1;
  head.writeUInt32BE(leaseMs, 2);
  head.writeUInt16BE(text.length, 6);
  return Buffer.concat([head, text]);
}

/**
 * Waits until the clock shows another millisecond, and one more: claims before and after this differ in the times that the
 * server tells, which it works out anew for each answer.
 */
export async function laterClaims() {
  const now = Date.now();
  while (Date.now() <= now + 1) await new Promise(setImmediate);
}

/** A client in raw bytes, which holds a lock or waits for it. */
export class Client {
  #bytes = Buffer.alloc(0);
  #waiting = [];
  #isClosed = false;

  constructor(server, name, leaseMs) {
    this.socket = net.connect(server.port, "127.0.0.1");
    this.socket.on("data", (bytes) => {
      this.#bytes = Buffer.concat([this.#bytes, bytes]);
      this.#wake();
    });
    this.socket.on("close", () => {
      this.#isClosed = true;
      this.#wake();
    });
    this.socket.on("error", () => {});
    this.socket.on("connect", () => (this.address = `127.0.0.1:${this.socket.localPort}`));
    this.socket.write(acquire(name, leaseMs));
  }

  /** A client that owns the lock, and its `token`. */
  static async hold(server, name, leaseMs = 3_600_000) {
    const client = new Client(server, name, leaseMs);
    client.token = await client.acquired();
    return client;
  }

  /** A client in the queue. */
  static async queue(server, name, leaseMs = 3_600_000) {
    const client = new Client(server, name, leaseMs);
    assert.equal((await client.frame()).type, 0x11);
    return client;
  }

  async acquired() {
    const { type, token } = await this.frame();
    assert.equal(type, 0x12);
    return token;
  }

  /** The code of an error that it is told. */
  async error() {
    const { type, code } = await this.frame();
    assert.equal(type, 0x13);
    return code;
  }

  /** Asks, and is answered what it is now: still there, for one. */
  async isHolder() {
    this.socket.write(Buffer.from([2]));
    return (await this.frame()).type === 0x12;
  }

  async frame() {
    const sizes = { 0x11: 1, 0x12: 9, 0x13: this.#bytes.length >= 3 ? 3 + this.#bytes[2] : 3 };
    while (this.#bytes.length === 0 || this.#bytes.length < (sizes[this.#bytes[0]] ?? 1) || (this.#bytes[0] === 0x13 && this.#bytes.length < 3 + this.#bytes[2])) {
      assert.ok(!this.#isClosed, "the server has closed the connection");
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
    const type = this.#bytes[0];
    const size = type === 0x11 ? 1 : type === 0x12 ? 9 : 3 + this.#bytes[2];
    const frame = this.#bytes.subarray(0, size);
    this.#bytes = this.#bytes.subarray(size);
    return { type, token: size === 9 ? String(frame.readBigUInt64BE(1)) : null, code: frame[1] };
  }

  close() {
    this.socket.destroy();
  }

  #wake() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** A `monolock bench` that is ended with its test. */
export function bench(server, ...flags) {
  // A later --server wins.
  const child = spawn(MONOLOCK, ["bench", "--server", `127.0.0.1:${server.port}`, ...flags], { stdio: "ignore" });
  child.ended = new Promise((resolve) => child.once("exit", resolve));
  return child;
}

/** A line to a server's admin address, which can be cut. */
export class Line {
  #sockets = new Set();
  #isCut = false;

  static async to(server) {
    const line = new Line();
    line.listener = net.createServer((near) => line.#join(near, server.adminPort));
    await new Promise((resolve) => line.listener.listen(0, "127.0.0.1", resolve));
    return line;
  }

  url(hash = "") {
    return `http://localhost:${this.listener.address().port}/${hash}`;
  }

  /** Ends what goes over it, and lets nothing pass until it is mended. */
  cut() {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend() {
    this.#isCut = false;
  }

  close() {
    this.cut();
    this.listener.close();
  }

  #join(near, port) {
    if (this.#isCut) {
      near.destroy();
      return;
    }
    const far = net.connect(port, "127.0.0.1");
    for (const [socket, other] of [[near, far], [far, near]]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  }
}

let browser;
const profile = mkdtempSync(path.join(tmpdir(), "monolock-browser-"));

after(async () => {
  await (await browser)?.close();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
});

/** The browser that all tests of a file share. */
export async function theBrowser() {
  const executablePath = chromium();
  // Root has no sandbox, and containers have little shared memory.
  const args = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-prefers-reduced-motion"];
  browser ??= puppeteer.launch({ executablePath, args, userDataDir: profile, timeout: PATIENCE, protocolTimeout: PATIENCE });
  return browser;
}

const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740, isMobile: true, hasTouch: true };

/** A page of the server that is watched for what no page may do. */
export class Page {
  complaints = [];

  /** `expected` are patterns of what the console may say: browsers report there each answer that is no success. */
  static async open(server, hash = "", { scheme = "light", viewport = DESKTOP, expected = [], isLive = true } = {}) {
    const context = await (await theBrowser()).createBrowserContext();
    const page = new Page();
    page.context = context;
    page.tab = await context.newPage();
    page.tab.setDefaultTimeout(PATIENCE);
    page.expected = expected;
    const origin = new URL(server.url()).origin;
    page.tab.on("console", (message) => {
      // The lock that is looked at may have gone a moment ago.
      const isGone = /status of 404/.test(message.text()) && /\/api\/locks\/[^/]+$/.test(message.location().url ?? "");
      if (!isGone) page.complain(`console: ${message.text()}`);
    });
    page.tab.on("pageerror", (error) => page.complain(`error: ${error}`));
    page.tab.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && url.protocol !== "data:") page.complain(`request to ${url.href}`);
    });
    await page.tab.evaluateOnNewDocument(() => {
      document.addEventListener("securitypolicyviolation", (event) => {
        console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
      });
    });
    await page.tab.setViewport(viewport);
    await page.tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.tab.goto(server.url(hash));
    if (isLive) await page.live();
    return page;
  }

  complain(what) {
    if (!this.expected.some((pattern) => pattern.test(what))) this.complaints.push(what);
  }

  live() {
    return this.state("live");
  }

  state(state) {
    return this.tab.waitForSelector(`#contact[data-state="${state}"]`);
  }

  /** Waits until a function of the page, called with these arguments, is true. */
  until(is, ...args) {
    return this.tab.waitForFunction(is, { polling: 50 }, ...args);
  }

  /** Waits until an element shows a text, or a part of it. */
  async shows(selector, part) {
    await this.until(
      (selector, part) => {
        const element = document.querySelector(selector);
        return element?.checkVisibility() && element.textContent.includes(part);
      },
      selector,
      part,
    ).catch(async (error) => {
      const text = await this.text(selector).catch(() => "nothing");
      throw new Error(`${selector} does not show ${JSON.stringify(part)}, but ${JSON.stringify(text)}`, { cause: error });
    });
  }

  text(selector) {
    return this.tab.$eval(selector, (element) => element.textContent);
  }

  /** The texts of the cells of this kind in the rows that exist. */
  column(key, grid = "#locks") {
    return this.tab.$$eval(`${grid} .rows .cell.${key}`, (cells) => cells.map((cell) => cell.textContent));
  }

  async picture(name) {
    await this.tab.screenshot({ path: path.join(PICTURES, `${name}.png`) });
  }

  /** Ends it, and says what it should not have done. */
  async close() {
    await this.context.close();
    assert.deepEqual(this.complaints, []);
  }
}
