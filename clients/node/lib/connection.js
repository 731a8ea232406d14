'use strict';
// From an address to a socket: names are looked up anew at each attempt, TLS is shaken hands over.

const dns = require('node:dns');
const net = require('node:net');
const tls = require('node:tls');

/** The look-ups of one client. At most one for a name is under way: it cannot be called off, so impatient callers must not pile up. */
class Resolver {
  #lookup;
  #underWay = new Map();

  constructor(lookup = dns.lookup) {
    this.#lookup = lookup;
  }

  /** Resolves with `{ ips }` or `{ error }`. */
  lookUp(host) {
    if (net.isIP(host) !== 0) return Promise.resolve({ ips: [host] });
    let answer = this.#underWay.get(host);
    if (answer === undefined) {
      answer = this.#ask(host);
      this.#underWay.set(host, answer);
    }
    return answer;
  }

  #ask(host) {
    return new Promise((resolve) => {
      const answered = (answer) => {
        this.#underWay.delete(host);
        resolve(answer);
      };
      try {
        this.#lookup(host, { all: true }, (error, found) => {
          answered(error ? { error } : { ips: found.map(({ address }) => address) });
        });
      } catch (error) {
        // Before it stands in the map; then it has to go from there as well.
        queueMicrotask(() => answered({ error }));
      }
    });
  }
}

/** A socket that is being connected, and the name of the event that says that it is. */
function connect({ host, port }, ip, tlsOptions) {
  if (tlsOptions === undefined) {
    const socket = net.connect({ host: ip, port });
    socket.setNoDelay(true);
    return { socket, ready: 'connect' };
  }
  // Server Name Indication takes names only; an address is checked as `host`.
  const servername = tlsOptions.servername ?? (net.isIP(host) === 0 ? host : undefined);
  const { path: _path, socket: _socket, ...options } = tlsOptions;
  const socket = tls.connect({ ...options, host: ip, port, ...(servername === undefined ? {} : { servername }) });
  socket.setNoDelay(true);
  return { socket, ready: 'secureConnect' };
}

module.exports = { Resolver, connect };
