'use strict';
// Text from strangers, made fit for a terminal and a log: what does not print stands as its number.

const UNPRINTABLE = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]/gu;

function printable(text) {
  return String(text).replace(UNPRINTABLE, (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

/** The same in quotation marks. */
function quoted(text) {
  return `"${printable(String(text).replace(/["\\]/g, '\\$&'))}"`;
}

module.exports = { printable, quoted };
