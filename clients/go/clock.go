package monolock

import (
	"math"
	"time"
)

// instant is a point of monotonic time, in nanoseconds from the clock's own origin.
type instant int64

// farFuture is never reached.
const farFuture instant = math.MaxInt64

// add saturates, so that no limit is too large.
func (i instant) add(d time.Duration) instant {
	if d > 0 && i > farFuture-instant(d) {
		return farFuture
	}
	return i + instant(d)
}

func (i instant) since(earlier instant) time.Duration { return time.Duration(i - earlier) }

// clock tells the time. The client reads no other, except that waiting is done with the runtime's timers.
type clock interface {
	now() instant
	// countsSuspend says whether the clock runs on while the machine sleeps. The runtime's timers do not, so they are checked against it.
	countsSuspend() bool
}

// runtimeClock is Go's monotonic clock. Whether it counts suspend is the system's affair: on Linux and macOS it does not.
type runtimeClock struct{ origin time.Time }

func (c runtimeClock) now() instant      { return instant(time.Since(c.origin)) }
func (runtimeClock) countsSuspend() bool { return false }

var system = systemClock()
