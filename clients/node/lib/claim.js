'use strict';
// A session together with its socket, its clock and its alarm: what moves bytes, and knows no rule.
//
// Each input reads the clock itself, right when it is made, and what it brought about is told before it returns; a hold that is lost is
// over first, then its connection is closed, then it is told. When a claim is closed, its socket, timer and immediate are gone.

const { Alarm } = require('./timer.js');
const { Hold } = require('./hold.js');
const { Session } = require('./session.js');

class Claim {
  #session;
  #socket;
  #clock;
  #alarm = new Alarm(() => this.tick());
  #flushing;
  #isClosed = false;
  #onClosed = () => {};
  #observer = () => {};

  /** The hold, once the lock is granted. */
  hold;
  /** How the claim was lost, queued or held, once it is. */
  loss;

  /** A claim on a connection that has just been made. */
  constructor({ socket, request, clock }) {
    this.#socket = socket;
    this.#clock = clock;
    this.#session = new Session(clock(), request);
    this.name = request.name;
    socket.on('data', (bytes) => this.#input((now) => this.#session.receive(now, bytes)));
    socket.on('end', () => this.#input((now) => this.#session.disconnected(now)));
    // This listener stays: an error that comes after the closing is nobody's.
    socket.on('error', (error) => this.#input((now) => this.#session.disconnected(now, error)));
    socket.on('close', () => this.#input((now) => this.#session.disconnected(now)));
    this.#flush();
  }

  /** From now on `observer` is called with each event of the session, and nobody else. */
  observe(observer) {
    this.#observer = observer;
  }

  /** Calls back once when the claim is closed, at once where it is. */
  onClosed(callback) {
    if (this.#isClosed) callback();
    else this.#onClosed = callback;
  }

  /** Looks at the clock. */
  tick() {
    this.#input((now) => this.#session.tick(now));
  }

  get standing() {
    return this.#session.standing;
  }

  /** Closes the connection on this side, which is the release. Twice is harmless. */
  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#alarm.clear();
    clearImmediate(this.#flushing);
    this.#socket.destroy();
    this.#onClosed();
  }

  /** Resolves when the socket is gone. */
  closed() {
    return new Promise((resolve) => {
      if (this.#socket.closed) resolve();
      else this.#socket.once('close', resolve);
    });
  }

  #input(input) {
    if (this.#isClosed) return;
    const events = input(this.#clock());
    const isOver = this.#session.isOver;
    if (isOver) this.close();
    else this.#arm();
    for (const event of events) this.#tell(event);
  }

  #tell(event) {
    if (event.type === 'granted') this.hold = new Hold(this.name, event.token);
    if (event.type === 'lost') {
      this.loss = event.loss;
      this.hold?.end(event.loss);
    }
    this.#observer(event);
  }

  #arm() {
    if (this.#session.hasToTransmit) {
      // Not here and now: what lies in the socket is read first, so that the server's last word is not lost to a failing write.
      this.#flushing ??= setImmediate(() => this.#flush());
    }
    this.#alarm.set(this.#session.nextDeadline - this.#clock());
  }

  #flush() {
    this.#flushing = undefined;
    const bytes = this.#session.transmit(this.#clock());
    if (bytes !== undefined) this.#socket.write(bytes);
    this.#arm();
  }
}

module.exports = { Claim };
