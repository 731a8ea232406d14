// The modules behind the package's door, for the tests of its parts.

import printableModule from '../../lib/printable.js';

export const { printable, quoted } = printableModule;
export { default as backoff } from '../../lib/backoff.js';
export { default as clock } from '../../lib/clock.js';
export { default as dial } from '../../lib/dial.js';
export { default as errors } from '../../lib/error.js';
export { default as losses } from '../../lib/loss.js';
export { default as session } from '../../lib/session.js';
export { default as timer } from '../../lib/timer.js';
