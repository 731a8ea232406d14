'use strict';
// Acquiring locks, and running work under them.
//
// The acquiring is one `Interrupt` and a loop of attempts; each attempt is a dial and, where a server took the claim in, a wait in the
// queue. Whatever ends it, nothing it opened is left.

const { Backoff } = require('./backoff.js');
const { Claim } = require('./claim.js');
const { Dial } = require('./dial.js');
const { Interrupt, sleep, waitFor } = require('./interrupt.js');
const { Lock } = require('./lock.js');
const { MIN_LEASE_MS, checkWork, clientConfig, request: checkedRequest } = require('./config.js');
const { Resolver, connect } = require('./connection.js');
const { printable } = require('./printable.js');
const errors = require('./error.js');
const systemClock = require('./clock.js');
const timer = require('./timer.js');

class Client {
  #config;
  #clock;
  #resolver;
  /** How many claims are open, by the name of the lock. */
  #claims = new Map();

  constructor(options) {
    this.#config = clientConfig(options);
    this.#clock = options.clock ?? systemClock.now;
    this.#resolver = new Resolver(options.lookup);
  }

  async acquire(name, options) {
    return this.#acquire(name, options, this.#obtain);
  }

  async tryAcquire(name, options) {
    return this.#acquire(name, options, this.#obtainUncontended);
  }

  async acquireRetry(name, options) {
    return this.#acquire(name, options, this.#obtainPersistently);
  }

  async do(name, options, work) {
    checkWork(work);
    return runUnder(await this.acquire(name, options), options.signal, work);
  }

  async tryDo(name, options, work) {
    checkWork(work);
    return runUnder(await this.tryAcquire(name, options), options.signal, work);
  }

  async doRetry(name, options, work) {
    checkWork(work);
    return runUnder(await this.acquireRetry(name, options), options.signal, work);
  }

  claims(name) {
    return this.#claims.get(name) ?? 0;
  }

  async #acquire(name, options, obtain) {
    const request = checkedRequest(name, options, this.#config);
    const interrupt = new Interrupt(request);
    const leave = this.#enter(name);
    let claim;
    try {
      interrupt.check();
      claim = await obtain.call(this, request, interrupt);
      // It may have come in the very moment of the grant.
      interrupt.check();
      claim.onClosed(leave);
      return new Lock(claim);
    } catch (error) {
      claim?.close();
      leave();
      throw error;
    } finally {
      interrupt.close();
    }
  }

  async #obtain(request, interrupt) {
    const claim = await this.#open(request, interrupt);
    if (claim.hold !== undefined) return claim;
    // It may have been lost by what came glued to the first answer.
    if (claim.loss !== undefined) throw errors.lost(request.name, claim.loss);
    return waitFor(interrupt, ({ resolve, reject, onSettled }) => {
      onSettled(() => {
        if (claim.hold === undefined) claim.close();
      });
      claim.observe(({ type, loss }) => {
        if (type === 'granted') resolve(claim);
        else reject(errors.lost(request.name, loss));
      });
    });
  }

  async #obtainUncontended(request, interrupt) {
    const claim = await this.#open(request, interrupt);
    if (claim.hold !== undefined) return claim;
    claim.close();
    throw errors.contended(request.name);
  }

  async #obtainPersistently(request, interrupt) {
    const backoff = new Backoff();
    for (;;) {
      const begun = this.#clock();
      try {
        return await this.#obtain(request, interrupt);
      } catch (error) {
        interrupt.check();
        const delayMs = backoff.delayMs(error, this.#clock() - begun, Math.random());
        if (delayMs === undefined) throw error;
        await sleep(interrupt, delayMs);
      }
    }
  }

  /** A claim that the first reachable server took in, within the connect timeout: it is queued or granted. */
  async #open(request, interrupt) {
    const dial = new Dial(this.#clock(), { name: request.name, ...this.#config });
    for (;;) {
      const step = dial.nextStep(this.#clock());
      if (step.type === 'look_up') {
        const { ips, failure } = await this.#lookUp(step, interrupt);
        if (failure === undefined) dial.found(ips);
        else dial.notFound(step.address, failure);
      } else {
        const { claim, failure } = await this.#openOne(step, request, interrupt);
        if (failure === undefined) return claim;
        dial.failed(step, failure);
      }
    }
  }

  async #lookUp({ address, budgetMs }, interrupt) {
    const answer = await waitFor(interrupt, ({ resolve, onSettled }) => {
      onSettled(timer.after(budgetMs, () => resolve({ failure: noTime(budgetMs) })));
      this.#resolver.lookUp(address.host).then(resolve);
    });
    const { ips, error, failure } = answer;
    if (failure !== undefined) return { failure };
    if (error !== undefined) {
      return { failure: { message: `the name does not resolve: ${printable(error.message)}`, cause: error } };
    }
    if (ips.length === 0) return { failure: { message: 'the name has no address' } };
    return { ips };
  }

  /** Connects to one address and waits for the first answer. */
  #openOne({ address, ip, budgetMs }, request, interrupt) {
    return waitFor(interrupt, ({ resolve, onSettled }) => {
      let socket;
      let claim;
      let isTakenIn = false;
      const fail = (failure) => resolve({ failure });
      onSettled(() => {
        if (isTakenIn) return;
        if (claim === undefined) socket?.destroy();
        else claim.close();
      });
      onSettled(timer.after(budgetMs, () => fail(noTime(budgetMs))));
      const cannotConnect = (error) => fail({ message: `cannot connect: ${printable(error.message)}`, cause: error });
      let ready;
      try {
        ({ socket, ready } = connect(address, ip, this.#config.tls));
      } catch (error) {
        // TLS options that are wrong are found here.
        return cannotConnect(error);
      }
      const closed = () => fail({ message: 'the connection was closed' });
      // It stays, as the claim's own does: an error after the end is nobody's.
      socket.on('error', cannotConnect);
      socket.on('close', closed);
      socket.once(ready, () => {
        socket.off('error', cannotConnect);
        socket.off('close', closed);
        claim = new Claim({ socket, request, clock: this.#clock });
        claim.observe(({ type, loss }) => {
          if (type === 'refused') return fail(loss);
          isTakenIn = true;
          resolve({ claim });
        });
      });
    });
  }

  /** One more claim on this lock; answers with what takes it off. */
  #enter(name) {
    this.#claims.set(name, this.claims(name) + 1);
    return () => {
      const others = this.claims(name) - 1;
      if (others === 0) this.#claims.delete(name);
      else this.#claims.set(name, others);
    };
  }
}

function noTime(budgetMs) {
  return { message: `no answer within ${(budgetMs / 1000).toFixed(1)} s` };
}

/**
 * Runs `work` under `lock`, and releases it when the work has ended, on every path. Both the loss and the caller's signal only tell the
 * work: nothing can stop it from outside, and until it has ended it must be taken for running.
 */
async function runUnder(lock, signal, work) {
  const controller = new AbortController();
  const stop = () => controller.abort(signal.reason);
  lock.onLost(() => controller.abort(lock.signal.reason));
  if (signal?.aborted) stop();
  else signal?.addEventListener('abort', stop, { once: true });
  let loss;
  try {
    const value = await work(contextOf(lock, controller.signal));
    loss = lock.loss;
    if (loss === undefined) return value;
  } catch (error) {
    loss = lock.loss;
    if (loss !== undefined) errors.join(error, loss);
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
    await lock.release();
  }
  throw errors.lost(lock.name, loss);
}

/** What the work is given: free functions, so that it can be taken apart. */
function contextOf(lock, signal) {
  return Object.freeze({
    name: lock.name,
    token: lock.token,
    signal,
    lost: lock.lost,
    isHeld: () => lock.isHeld(),
    onLost: (callback) => lock.onLost(callback),
  });
}

module.exports = { Client, MIN_LEASE_MS };
