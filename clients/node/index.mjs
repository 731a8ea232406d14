// The same module for `import`: one instance of it, whichever way it is loaded, so `instanceof` holds.
import monolock from './index.js';

export const { Client, Lock, MonolockError, MIN_LEASE_MS, lossOf } = monolock;
