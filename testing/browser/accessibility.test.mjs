// The page and those who do not see it, or not well: axe finds nothing to say, in both themes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import test from "node:test";

import { Client, PHONE, Page, Server } from "./support.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

async function check(page, where) {
  await page.tab.evaluate(AXE);
  const { violations, passes } = await page.tab.evaluate(() =>
    axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations", "passes"] }),
  );
  const said = violations.flatMap(({ id, help, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${help}\n${html}\n${failureSummary}`));
  assert.deepEqual(said, [], where);
  assert.ok(passes.length > 10, `${passes.length} rules passed`);
}

for (const scheme of ["light", "dark"]) {
  for (const [device, viewport] of [["desktop", undefined], ["phone", PHONE]]) {
    test(`nothing is wrong on a ${device} in ${scheme}`, async (t) => {
      const server = await Server.start();
      t.after(() => server.stop("SIGKILL"));
      const holder = await Client.hold(server, "nightly/import");
      await Client.hold(server, "other");
      for (let number = 0; number < 3; number++) await Client.queue(server, "nightly/import");
      const page = await Page.open(server, "", { scheme, viewport });
      await page.shows("#count", "2 locks");
      await check(page, "all locks");
      await page.tab.evaluate(() => (location.hash = "#/lock/nightly%2Fimport"));
      await page.shows("#h-lease", " left");
      await page.shows("#queue-count", "3 wait");
      await check(page, "one lock");
      await page.tab.click("#release");
      await page.shows("#ask-warning", " more.");
      await check(page, "the question");
      await page.tab.click("#ask-yes");
      assert.equal(await holder.error(), 2);
      await page.shows("#message-text", "released");
      await check(page, "its answer");
      page.expected.push(/net::ERR_/);
      await server.stop("SIGKILL");
      await page.shows("#stale", "may be old");
      await check(page, "a server that is gone");
      await page.close();
    });
  }
}
