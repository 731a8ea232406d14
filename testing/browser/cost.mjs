// What it costs the server to be watched: 15 000 locks are held, and 1000 grants a second go on.
//
// `npm run cost`, after `cargo build --release --package monolock-bin`. Two servers take turns under one load: one that
// nobody watches, and one that has a reader of the events, then the page in a browser. What is counted is the processor
// time of the server alone, of all its threads, as the system has it. Takes `ROUNDS` rounds of three windows.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import test from "node:test";
import { setTimeout as pause } from "node:timers/promises";

process.env.MONOLOCK ??= path.resolve(import.meta.dirname, "../../", process.env.CARGO_TARGET_DIR ?? "target", "release/monolock");
const { Page, Server, bench } = await import("./support.mjs");

const LOCKS = 15_000;
const GRANTS_A_SECOND = 1000;
const ROUNDS = Number(process.env.ROUNDS ?? 4);
const SECONDS = Number(process.env.SECONDS ?? 15);
const TICKS_A_SECOND = Number(execFileSync("getconf", ["CLK_TCK"]));

/** Seconds of processor time that a process has taken. */
function taken(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
}

/** A reader of the events, and how many bytes it has had. */
async function read(server) {
  const reader = { bytes: 0 };
  await new Promise((resolve, reject) => {
    reader.request = http.get({ host: "127.0.0.1", port: server.adminPort, path: "/api/events" }, (response) => {
      response.on("data", (bytes) => (reader.bytes += bytes.length));
      response.on("error", () => {});
      resolve();
    });
    reader.request.on("error", reject);
  });
  return reader;
}

/** Clients that claim free locks and let go of them, so many times a second; a call ends them. */
function load(server) {
  const clients = ["--connections", "20", "--prefix", "load/", "--rate", String(GRANTS_A_SECOND), "--threads", "1"];
  // At another address than the crowd: towards that one the kernel searches long for a port that is free.
  const address = ["--server", `127.0.0.2:${server.port}`];
  const process = bench(server, "cycle", ...clients, ...address, "--duration", `${SECONDS + 60}s`);
  return () => process.kill("SIGKILL");
}

/** Processor time in a window under the load, in per cent of one core, and grants a second. */
async function window(server) {
  const end = load(server);
  // The load has to come to its pace.
  await pause(2000);
  const [granted, before, start] = [await server.metric("monolock_wait_seconds_count"), taken(server.child.pid), performance.now()];
  await pause(SECONDS * 1000);
  const [cpu, seconds] = [taken(server.child.pid) - before, (performance.now() - start) / 1000];
  const grants = ((await server.metric("monolock_wait_seconds_count")) - granted) / seconds;
  end();
  return { cpu: (100 * cpu) / seconds, grants };
}

async function hold(server) {
  const crowd = bench(server, "idle", "--connections", String(LOCKS), "--locks", String(LOCKS), "--duration", "50m", "--timeout", "60s");
  while ((await server.api("/api/info")).body.locks < LOCKS) await pause(100);
  return crowd;
}

const median = (numbers) => numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];

test("the cost of being watched", { timeout: 3_600_000 }, async (t) => {
  const [alone, watched] = [await Server.start({ host: "0.0.0.0" }), await Server.start({ host: "0.0.0.0" })];
  const crowds = [await hold(alone), await hold(watched)];
  t.after(() => {
    for (const process of [...crowds, alone.child, watched.child]) process.kill("SIGKILL");
  });
  const results = { nobody: [], reader: [], page: [] };
  for (let round = 0; round < ROUNDS; round++) {
    results.nobody.push(await window(alone));
    const reader = await read(watched);
    results.reader.push(await window(watched));
    reader.request.destroy();
    if (reader.bytes < SECONDS * results.reader.at(-1).grants * 200) throw new Error(`the reader has had ${reader.bytes} bytes`);
    const page = await Page.open(watched);
    await page.shows("#count", "15,0");
    results.page.push(await window(watched));
    const rate = Number((await page.text("#rate")).replaceAll(",", ""));
    if (!(rate > results.page.at(-1).grants / 4)) throw new Error(`the page shows ${rate} grants a second`);
    await page.live();
    await page.close();
  }
  const base = median(results.nobody.map(({ cpu }) => cpu));
  for (const [who, windows] of Object.entries(results)) {
    const shares = windows.map(({ cpu }) => cpu);
    const [least, most] = [Math.min(...shares), Math.max(...shares)].map((share) => share.toFixed(1));
    const grants = median(windows.map(({ grants }) => grants)).toFixed(0);
    console.log(`${who.padEnd(7)} ${median(shares).toFixed(1)} % of a core (${least} to ${most}), ${(median(shares) - base).toFixed(1)} more than nobody, at ${grants} grants a second`);
  }
});
