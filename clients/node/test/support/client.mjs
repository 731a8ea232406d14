// Patience for the tests that are about something else: it outlasts a machine that stands still for seconds.

import { Client } from 'monolock';

export const LEASE = { leaseMs: 60_000 };

/** A client whose connect timeout nobody reaches, unless `config` has another. */
export function patientClient(config) {
  return new Client({ connectTimeoutMs: 60_000, ...config });
}
