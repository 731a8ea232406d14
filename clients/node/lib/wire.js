'use strict';
// The bytes of the wire protocol, version 1: what a client sends, and what it reads (`docs/protocol.md`, "Frames").
//
// Pure. A frame that has not come whole is no frame yet; bytes that no frame begins with are named as such and never skipped.

const VERSION = 1;
const MAX_NAME_BYTES = 255;
const MAX_LEASE_MS = 2 ** 32 - 1;
/** Codes below are server conditions, which pass; codes from here up are client errors, which the same bytes meet again. */
const FIRST_CLIENT_ERROR = 0x10;

const SERVER_SHUTTING_DOWN = 0x01;
const NOT_AUTHORIZED = 0x18;

const ACQUIRE = 0x01;
const HEARTBEAT = 0x02;
const WAITING = 0x11;
const ACQUIRED = 0x12;
const ERROR = 0x13;

function encodeAcquire({ leaseMs, name }) {
  const nameBytes = Buffer.from(name, 'utf8');
  const frame = Buffer.alloc(8 + nameBytes.length);
  frame.writeUInt8(ACQUIRE, 0);
  frame.writeUInt8(VERSION, 1);
  frame.writeUInt32BE(leaseMs, 2);
  frame.writeUInt16BE(nameBytes.length, 6);
  nameBytes.copy(frame, 8);
  return frame;
}

function encodeHeartbeat() {
  return Buffer.of(HEARTBEAT);
}

/**
 * The frame at the start of `bytes` with its `size`, or `undefined` where more bytes are needed. What no server may send is a
 * frame of type `unknown`.
 */
function decodeServer(bytes) {
  switch (bytes[0]) {
    case undefined:
      return undefined;
    case WAITING:
      return { type: 'waiting', size: 1 };
    case ACQUIRED: {
      if (bytes.length < 9) return undefined;
      const token = bytes.readBigUInt64BE(1);
      return token === 0n ? { type: 'unknown', what: 'a token of zero' } : { type: 'acquired', token, size: 9 };
    }
    case ERROR: {
      if (bytes.length < 3 || bytes.length < 3 + bytes[2]) return undefined;
      const size = 3 + bytes[2];
      return { type: 'error', code: bytes[1], reason: bytes.toString('utf8', 3, size), size };
    }
    default:
      return { type: 'unknown', what: `unknown message type: ${hex(bytes[0])}` };
  }
}

function isClientError(code) {
  return code >= FIRST_CLIENT_ERROR;
}

/** A byte as the protocol's documents write it. */
function hex(byte) {
  return `0x${byte.toString(16).padStart(2, '0')}`;
}

module.exports = {
  MAX_LEASE_MS,
  MAX_NAME_BYTES,
  NOT_AUTHORIZED,
  SERVER_SHUTTING_DOWN,
  decodeServer,
  encodeAcquire,
  encodeHeartbeat,
  hex,
  isClientError,
};
