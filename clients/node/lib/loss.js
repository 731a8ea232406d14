'use strict';
// How a claim was lost: plain frozen data, the same words in every monolock client.

const { hex } = require('./wire.js');
const { printable } = require('./printable.js');

function loss(reason, message, extra) {
  return Object.freeze({ reason, message, ...extra });
}

/** Nothing was confirmed for 0.8 leases, counted from the sending of the last confirmed frame. */
function timeout() {
  return loss('timeout', 'the server confirmed nothing for 0.8 of the lease');
}

/** The connection ended; without an `error` the server closed it in good order. */
function closed(error) {
  if (error === undefined) return loss('closed', 'the server closed the connection');
  return loss('closed', `the connection failed: ${printable(error.message)}`, { cause: error });
}

/** The server sent an `ERROR`. Its reason is for people: no program may read it. */
function serverError(code, reason) {
  return loss('server_error', `the server said ${hex(code)}: ${printable(reason)}`, { code });
}

function protocolViolation(what) {
  return loss('protocol_violation', `the server broke the protocol: ${what}`);
}

function maxHold() {
  return loss('max_hold', 'the hold lasted as long as maxHoldMs allows');
}

module.exports = { closed, maxHold, protocolViolation, serverError, timeout };
