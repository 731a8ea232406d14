'use strict';

const { Client, MIN_LEASE_MS } = require('./lib/client.js');
const { MonolockError, lossOf } = require('./lib/error.js');
const { Lock } = require('./lib/lock.js');

module.exports = { Client, Lock, MonolockError, MIN_LEASE_MS, lossOf };
