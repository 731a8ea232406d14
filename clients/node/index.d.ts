/// <reference types="node" />

import type { LookupFunction } from 'node:net';
import type { ConnectionOptions } from 'node:tls';

/** The shortest lease that a client takes on, in milliseconds: a shorter one cannot be kept, timers being as late as they are. */
export declare const MIN_LEASE_MS: 20;

/** Where the servers are, and how patient to be. Lengths of time are milliseconds. */
export type ClientOptions = ServerAddress & {
  /** TLS with these options, as `tls.connect` takes them: `ca`, `cert` and `key`, `servername`, … Without it the connection is plain. */
  readonly tls?: ConnectionOptions | undefined;
  /**
   * How long one attempt may take from the first look-up to the server's first answer, all addresses together: 5000 unless said
   * otherwise. Each address has its share of what is left, so that one which is dead or mute leaves time for the next.
   */
  readonly connectTimeoutMs?: number | undefined;
  /** A hold that lasts longer than this counts as lost. Without it a hold lasts as long as it is confirmed. */
  readonly maxHoldMs?: number | undefined;
  /** Looks names up, anew at each attempt: `dns.lookup` unless said otherwise. */
  readonly lookup?: LookupFunction | undefined;
  /** The clock to live by, in milliseconds, for tests: leases are reckoned with it, while waiting takes real time. */
  readonly clock?: (() => number) | undefined;
};

/** `host:port`, one or several that are tried in this order; an IPv6 address stands in brackets. */
export type ServerAddress =
  | { readonly address: string; readonly addresses?: undefined }
  | { readonly addresses: readonly string[]; readonly address?: undefined };

export interface AcquireOptions {
  /**
   * How long the server waits for a sign of life before it hands the lock on: a whole number of milliseconds, from
   * {@link MIN_LEASE_MS} to 2^32 - 1.
   */
  readonly leaseMs: number;
  /** How long to wait for the lock at most, all attempts together. Without it: as long as it takes. */
  readonly waitMs?: number | undefined;
  /**
   * Ends the acquiring, with an error of kind `cancelled`. While work runs under the lock (`do` and its like), aborting asks the work to
   * stop, and the lock is kept until it has ended. A lock that `acquire` has returned is not touched.
   */
  readonly signal?: AbortSignal | undefined;
}

/**
 * A client of one server, or of several addresses of one. It keeps no connection of its own: every claim on a lock is a
 * connection, and when none is open, nothing of it keeps the process alive.
 */
export declare class Client {
  /** Nothing is dialled yet. Throws a {@link MonolockError} of kind `invalid` where the options are wrong. */
  constructor(options: ClientOptions);

  /**
   * Runs `work` under the lock and releases it when the work has ended, on every path.
   *
   * When the lock is lost, or `options.signal` is aborted, the work's own `signal` is aborted; nothing can stop the work from outside,
   * so the call waits for it, and until then the lock is kept (after a loss there is nothing to keep). What the work throws is thrown on
   * as it is; {@link lossOf} tells of a loss beside it. Work that ends well although the lock was lost makes the call fail with kind
   * `lost`.
   */
  do<T>(name: string, options: AcquireOptions, work: Work<T>): Promise<T>;
  /** {@link do}, where the lock is free: otherwise an error of kind `contended`. */
  tryDo<T>(name: string, options: AcquireOptions, work: Work<T>): Promise<T>;
  /** {@link do}, acquiring as {@link acquireRetry} does. Only the acquiring is tried again: the work runs at most once. */
  doRetry<T>(name: string, options: AcquireOptions, work: Work<T>): Promise<T>;

  /** Acquires the lock, waiting for its turn in the queue. */
  acquire(name: string, options: AcquireOptions): Promise<Lock>;
  /** Acquires the lock if it is free: otherwise an error of kind `contended`. */
  tryAcquire(name: string, options: AcquireOptions): Promise<Lock>;
  /**
   * Acquires the lock like {@link acquire}, and tries again where the server cannot be reached or the place in the queue is lost: after
   * exponential backoff with full jitter, 100 ms doubling to 5 s. After a shutdown of the server (code 0x01) the first new attempt
   * comes within 100 ms. Codes from 0x10 up are final.
   */
  acquireRetry(name: string, options: AcquireOptions): Promise<Lock>;

  /**
   * How many claims on this lock are open through this client: being made, waiting, or held. A claim that is made while there is one
   * queues behind it, as behind a stranger's.
   */
  claims(name: string): number;
}

/** What is done under a lock. */
export type Work<T> = (context: WorkContext) => T | PromiseLike<T>;

/** What guarded work sees of its lock. It may be taken apart: its functions need no `this`. */
export interface WorkContext {
  readonly name: string;
  /** See {@link Lock.token}. */
  readonly token: bigint;
  /**
   * Aborted when the work is to stop: the lock was lost (the reason is a {@link MonolockError} of kind `lost`), or the caller's signal
   * was aborted (the reason is the caller's, and the lock is held until the work has ended).
   */
  readonly signal: AbortSignal;
  /** See {@link Lock.lost}. */
  readonly lost: Promise<Loss>;
  /** See {@link Lock.isHeld}. */
  readonly isHeld: () => boolean;
  /** See {@link Lock.onLost}. */
  readonly onLost: (callback: (loss: Loss) => void) => () => void;
}

/** A lock that is held until it is released or lost. `await using` releases it at the end of the block. */
export declare class Lock implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /**
   * The fencing token: larger than that of any earlier grant. Hand it to whatever the lock guards, which must refuse a token below the
   * largest it saw.
   */
  readonly token: bigint;
  /**
   * Whether the lock is still held, by the clock: false from the give-up instant on, although nothing has run since and whatever lies
   * unread in the socket. Once false, it stays false. After the release it is false too.
   */
  isHeld(): boolean;
  /** How the lock was lost, if it was: by the clock, like {@link isHeld}. */
  readonly loss: Loss | undefined;
  /** Resolves when the lock is lost; it never rejects. A lock that is released was not lost: then it stays pending. */
  readonly lost: Promise<Loss>;
  /** Aborted when the lock is lost; the reason is a {@link MonolockError} of kind `lost`. */
  readonly signal: AbortSignal;
  /**
   * Calls `callback` once when the lock is lost, at once if it has been. A release drops it uncalled, and so does the function that is
   * returned. What it throws surfaces as what an event listener throws does.
   */
  onLost(callback: (loss: Loss) => void): () => void;
  /** Releases the lock: at once, and resolved when the connection is closed on this side. Twice is harmless. It never rejects. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * - `timeout`: nothing was confirmed for 0.8 leases, counted from the sending of the last confirmed frame.
 * - `closed`: the connection ended.
 * - `server_error`: the server sent an error; see the code.
 * - `protocol_violation`: the server sent what the protocol forbids.
 * - `max_hold`: the hold lasted as long as `maxHoldMs` allows.
 */
export type LossReason = 'timeout' | 'closed' | 'server_error' | 'protocol_violation' | 'max_hold';

/** How a lock, or a place in the queue, was lost. */
export interface Loss {
  readonly reason: LossReason;
  /** The code that the server sent, where it sent one. */
  readonly code?: number;
  /** For people. */
  readonly message: string;
  /** How reading or writing failed, where that ended the connection. */
  readonly cause?: Error;
}

/**
 * - `cancelled`: the caller's signal was aborted before the lock was obtained; `cause` is its reason.
 * - `wait_timeout`: `waitMs` passed before the lock was obtained.
 * - `contended`: the lock is held by another, and the call was not to wait.
 * - `denied`: the server's access-control list refuses this lock (code 0x18).
 * - `lost`: the place in the queue or the lock itself was lost; `loss` says how.
 * - `unreachable`: no server took the claim in: no connection, no answer in time, or a server condition (a code below 0x10).
 * - `invalid`: what was asked for is wrong and will be wrong again: found before dialling, or said by the server (a code from 0x10 up).
 */
export type ErrorKind = 'cancelled' | 'wait_timeout' | 'contended' | 'denied' | 'lost' | 'unreachable' | 'invalid';

/** Why a call of the client failed. One class: `kind` says what to do. */
export declare class MonolockError extends Error {
  private constructor();
  readonly name: 'MonolockError';
  readonly kind: ErrorKind;
  /** The code that the server sent, where it sent one; of several addresses, the last of them. */
  readonly code?: number;
  /** How the lock was lost, where the kind is `lost`. */
  readonly loss?: Loss;
  /** Whether the same call may succeed later without anybody changing it. Codes from 0x10 up never do. */
  get retryable(): boolean;
}

/**
 * How the lock was lost, as far as `error` tells: a {@link MonolockError} of kind `lost`, or an error of the guarded work that the loss
 * came beside. (A thrown value that is no object has no room for it.)
 */
export declare function lossOf(error: unknown): Loss | undefined;
