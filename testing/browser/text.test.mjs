// The words of the page are those of the command (monolock-bin/src/text.rs), by the same tables.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

const source = readFileSync(new URL("../../monolock-net/src/page/text.js", import.meta.url), "utf8");
const { safe, quoted, age, brief, parsed, isLater, matchesGlob, filterOf } = vm.runInNewContext(
  `${source}; ({ safe, quoted, age, brief, parsed, isLater, matchesGlob, filterOf })`,
);

test("b52: what is shown of a name has no effect and is unmistakable", () => {
  for (const [name, shown] of [
    ["nightly/import", "nightly/import"],
    ["\u001b[31mred\r\n", "\\u{1b}[31mred\\r\\n"],
    ["\u202etxt.exe\u2066\u200f\u061c", "\\u{202e}txt.exe\\u{2066}\\u{200f}\\u{61c}"],
    ["a\\nb", "a\\\\nb"],
    [`it's "so"`, `it's "so"`],
    ["\0\u007f\u009b\u0085", "\\0\\u{7f}\\u{9b}\\u{85}"],
    ["\u2028\ufeff\u200b\u{e0001}", "\\u{2028}\\u{feff}\\u{200b}\\u{e0001}"],
    ["\u0301a", "\\u{301}a"],
    ["e\u0301", "e\u0301"],
    ["größer 锁 🔒", "größer 锁 🔒"],
  ]) {
    assert.equal(safe(name), shown);
  }
  assert.equal(quoted('a"b\n'), '"a\\"b\\n"');
});

test("ages and durations are short", () => {
  const ages = [0, 59, 60, 3599, 3600, 86399, 86400, 9_000_000].map((seconds) => age(seconds * 1000));
  assert.deepEqual(ages, ["0s", "59s", "1m 00s", "59m 59s", "1h 00m", "23h 59m", "1d 00h", "104d 04h"]);
  const durations = [0, 1, 340, 3020, 9999, 10_500, 123_456, 90_000_000].map(brief);
  assert.deepEqual(durations, ["0ms", "1ms", "340ms", "3s 20ms", "9s 999ms", "10s", "2m 3s", "1day 1h"]);
});

test("b59: tokens and sessions are exact up to the last, whatever names look like them", () => {
  const said = parsed('{"token":18446744073709551615,"session":9007199254740993,"lock":"\\"token\\":1,\\"session\\":2","held_ms":5}');
  assert.equal(said.token, "18446744073709551615");
  assert.equal(said.session, "9007199254740993");
  assert.equal(said.lock, '"token":1,"session":2');
  assert.equal(said.held_ms, 5);
  assert.equal(parsed('{"lock":"token","token":5}').lock, "token");
  assert.ok(isLater("10", "9") && !isLater("9", "10") && isLater("18446744073709551615", "18446744073709551614"));
});

test("patterns match as they do in the server", () => {
  for (const [pattern, text, is] of [
    ["*", "", true],
    ["", "", true],
    ["", "a", false],
    ["shard-?/*", "shard-7/daily/import", true],
    ["shard-?/*", "shard-12/daily", false],
    ["?", "🔒", true],
    ["??", "🔒", false],
    ["*?", "🔒", true],
    ["a*b*c", "a-b-b-c", true],
    ["a*b*c", "a-b-b-d", false],
    ["*.*", "*", false],
    ["a?", "a?", true],
    ["A", "a", false],
  ]) {
    assert.equal(matchesGlob(pattern, text), is, `${pattern} ${text}`);
  }
  // It would not end if it tried all ways.
  assert.equal(matchesGlob(`${"*a".repeat(40)}*b`, "a".repeat(255)), false);
  assert.ok(filterOf("ightl")("Nightly") && filterOf("N")("Nightly") && !filterOf("N")("nightly"));
});
