// Package monolock is the Go client of monolock, a small server for named locks.
//
// [Client.Do] runs a function under a lock:
//
//	c := monolock.New(monolock.Config{Address: "127.0.0.1:7070"})
//	err := c.Do(ctx, "nightly-import", 2*time.Second, func(ctx context.Context, token uint64) error {
//		// One process across the fleet is here at a time.
//		return doTheWork(ctx, token)
//	})
//
// The lock is kept by heartbeats in the background. When they stay unanswered for 0.8 of the lease, the client gives the lock up: before the
// server hands it on. Then the function's context is cancelled; it must stop. A process that was suspended in the middle of a write cannot
// be told in time, so the resource itself must refuse a token below the largest it saw: that is what the token is for.
//
// The client needs nothing beyond the standard library. It never acquires anew what was lost: a new turn is a new call.
//
// # Clocks
//
// A lease runs on at the server while this machine sleeps. On Linux the client lives by CLOCK_BOOTTIME, which runs on as well: after waking,
// [Lock.Held] and the work's ctx.Err say no at once, and [Lock.Lost] fires within a quarter of a second. Elsewhere it is Go's monotonic clock,
// which may stand still during sleep: there a lock that was lost in the machine's sleep is found out when the first deadline after it passes.
package monolock
