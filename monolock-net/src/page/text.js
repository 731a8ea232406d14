// Words for people: names that do nothing on a page but be read, times and durations, patterns.
//
// Names and identities come from strangers. They reach the page by textContent alone, and whatever is no visible
// character is shown as an escape (`\n`, `\u{202e}`), and a backslash as two, as the command shows them.

const ESCAPES = new Map([["\0", "\\0"], ["\t", "\\t"], ["\n", "\\n"], ["\r", "\\r"], ["\\", "\\\\"]]);

/** A name as it may be shown. */
function safe(name) {
  return name.replace(/[\p{C}\p{Z}\\]|^\p{Grapheme_Extend}/gu, (character) => {
    if (character === " ") return character;
    return ESCAPES.get(character) ?? `\\u{${character.codePointAt(0).toString(16)}}`;
  });
}

/** A name in quotes, for a sentence. */
const quoted = (name) => `"${safe(name).replaceAll('"', '\\"')}"`;

/** Who a client is, the best that is known: its identity, else its address. */
const who = ({ identity, address }) => safe(identity || address);

/** What is said of a client in a sentence: who, from where, in which session. */
function named({ identity, address, session }) {
  return identity ? `${safe(identity)} (${safe(address)}, session ${session})` : `${safe(address)} (session ${session})`;
}

const two = (number) => String(number).padStart(2, "0");

/** How long something has lasted: `7s`, `3m 04s`, `2h 05m`, `4d 03h`. */
function age(millis) {
  const seconds = Math.max(0, Math.floor(millis / 1000));
  const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days}d ${two(hours % 24)}h`;
  if (hours > 0) return `${hours}h ${two(minutes % 60)}m`;
  if (minutes > 0) return `${minutes}m ${two(seconds % 60)}s`;
  return `${seconds}s`;
}

const DAY = 86_400_000;

/** A duration to the millisecond below ten seconds, and to the second above: `340ms`, `3s 20ms`, `2m 3s`. */
function brief(millis) {
  let rest = Math.max(0, Math.floor(millis));
  if (rest >= 10_000) rest -= rest % 1000;
  if (rest === 0) return "0ms";
  const parts = [];
  for (const [unit, length] of [["day", DAY], ["h", 3_600_000], ["m", 60_000], ["s", 1000], ["ms", 1]]) {
    const number = Math.floor(rest / length);
    rest %= length;
    if (number > 0) parts.push(`${number}${unit === "day" && number > 1 ? "days" : unit}`);
  }
  return parts.join(" ");
}

/** A time in UTC, to the second. */
const timeInUtc = (millis) => `${new Date(millis).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** The time of day of the person who looks. */
const timeOfDay = (millis) => new Date(millis).toTimeString().slice(0, 8);

const grouped = (number) => number.toLocaleString("en");

/** `1 lock`, `2 locks`. */
const counted = (number, thing) => `${grouped(number)} ${thing}${number === 1 ? "" : "s"}`;

/**
 * What an answer of the API says. Tokens and sessions may be as large as 2^64, which a number of JavaScript is not:
 * they become strings of their digits. Inside of a string of JSON a quote stands behind a backslash, so what looks like
 * a field is one.
 */
const parsed = (json) => JSON.parse(json.replace(/("(?:token|session)":)\s*(\d+)/g, '$1"$2"'));

/** Whether a token, in its digits, is the larger. */
const isLater = (token, other) => (token.length === other.length ? token > other : token.length > other.length);

/**
 * Whether a pattern matches the whole of a text: `*` is any run of characters, `?` exactly one. It goes back to the last
 * star alone, so no pattern makes it slow.
 */
function matchesGlob(pattern, text) {
  let [at, place, star, resume] = [0, 0, -1, 0];
  while (at < text.length) {
    if (pattern[place] === "*") {
      star = place++;
      resume = at;
    } else if (pattern[place] === "?") {
      place++;
      at += text.codePointAt(at) > 0xffff ? 2 : 1;
    } else if (place < pattern.length && pattern[place] === text[at]) {
      place++;
      at++;
    } else if (star >= 0) {
      place = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  while (pattern[place] === "*") place++;
  return place === pattern.length;
}

/**
 * What a filter lets through. With `*` or `?` it is a pattern, as everywhere; without them it passes names that have the
 * text in them, whatever its case unless a capital is typed.
 */
function filterOf(text) {
  if (text === "") return () => true;
  if (/[*?]/.test(text)) return (name) => matchesGlob(text, name);
  const folded = text.toLowerCase();
  if (folded !== text) return (name) => name.includes(text);
  return (name) => name.toLowerCase().includes(folded);
}
