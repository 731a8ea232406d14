'use strict';
// What a caller may ask for, checked before anything is dialled.

const { MAX_LEASE_MS, MAX_NAME_BYTES } = require('./wire.js');
const errors = require('./error.js');
const { quoted } = require('./printable.js');

/**
 * The shortest lease that a client takes on. Timers fire up to 10 ms late. A heartbeat that goes out after a quarter of the lease plus
 * that must still have its answer by 0.8 leases: 0.55 leases must be more than 10 ms.
 */
const MIN_LEASE_MS = 20;
const DEFAULT_CONNECT_TIMEOUT_MS = 5_000;

function clientConfig(options) {
  if (typeof options !== 'object' || options === null) throw errors.invalid('a client needs an address');
  const { address, addresses, tls, connectTimeoutMs, maxHoldMs } = options;
  if (address !== undefined && addresses !== undefined) {
    throw errors.invalid('either address or addresses is to be given, not both');
  }
  if (addresses !== undefined && !Array.isArray(addresses)) throw errors.invalid('addresses is to be an array');
  const texts = addresses === undefined ? [address] : [...addresses];
  if (texts.length === 0 || texts[0] === undefined) throw errors.invalid('no server address was given');
  if (tls !== undefined && tls !== null && typeof tls !== 'object') throw errors.invalid('tls is to be an object');
  return {
    addresses: texts.map(parseAddress),
    tls: tls ?? undefined,
    connectTimeoutMs: positive('connectTimeoutMs', connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS),
    maxHoldMs: maxHoldMs === undefined || maxHoldMs === null ? Infinity : positive('maxHoldMs', maxHoldMs),
  };
}

/** What one call asks for. */
function request(name, options, { maxHoldMs }) {
  const { leaseMs, waitMs, signal } = options ?? {};
  checkName(name);
  checkLease(leaseMs);
  const wait = waitMs ?? Infinity;
  if (typeof wait !== 'number' || !(wait >= 0)) throw errors.invalid(`waitMs is not a length of time: ${shown(waitMs)}`);
  if (signal !== undefined && signal !== null && typeof signal.addEventListener !== 'function') {
    throw errors.invalid('signal is to be an AbortSignal');
  }
  return { name, leaseMs, maxHoldMs, waitMs: wait, signal: signal ?? undefined };
}

function checkWork(work) {
  if (typeof work !== 'function') throw errors.invalid('the work to be done under the lock is to be a function');
}

function checkName(name) {
  if (typeof name !== 'string') throw errors.invalid(`a lock name is a string, not ${shown(name)}`);
  const bytes = Buffer.from(name, 'utf8');
  if (bytes.length === 0) throw errors.invalid('a lock name is not empty');
  if (bytes.length > MAX_NAME_BYTES) {
    throw errors.invalid(`a lock name has at most ${MAX_NAME_BYTES} bytes of UTF-8, this one has ${bytes.length}`);
  }
  // A lone surrogate would silently become another name.
  if (bytes.toString('utf8') !== name) throw errors.invalid(`lock name ${quoted(name)} is not well-formed Unicode`);
}

function checkLease(leaseMs) {
  if (!Number.isInteger(leaseMs) || leaseMs < 1 || leaseMs > MAX_LEASE_MS) {
    throw errors.invalid(`leaseMs is a whole number of milliseconds from 1 to ${MAX_LEASE_MS}, not ${shown(leaseMs)}`);
  }
  if (leaseMs < MIN_LEASE_MS) {
    throw errors.invalid(`a lease of ${leaseMs} ms is too short to be kept: at least ${MIN_LEASE_MS} ms are needed`);
  }
}

/** `host:port`; an IPv6 address stands in brackets. */
function parseAddress(text) {
  const [, host, port] = /^(.+):(\d{1,5})$/s.exec(typeof text === 'string' ? text : '') ?? [];
  if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
    throw errors.invalid(`server address ${shown(text)} is not of the form host:port`);
  }
  return { text, host: host.replace(/^\[(.*)\]$/s, '$1'), port: Number(port) };
}

function positive(what, value) {
  if (typeof value !== 'number' || !(value > 0 && value < Infinity)) {
    throw errors.invalid(`${what} is to be a positive number, not ${shown(value)}`);
  }
  return value;
}

function shown(value) {
  return typeof value === 'string' ? quoted(value) : typeof value === 'object' ? typeof value : quoted(value).slice(1, -1);
}

module.exports = { MIN_LEASE_MS, checkWork, clientConfig, request };
