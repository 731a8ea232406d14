package monolock

import (
	"errors"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

const (
	// reconnectSpread is the most that a reconnect "at once" waits.
	reconnectSpread     = 100 * time.Millisecond
	firstBackoffCeiling = 100 * time.Millisecond
	lastBackoffCeiling  = 5 * time.Second
)

// backoff is how long to wait between attempts at acquiring one lock: exponential, with full jitter. It is pure: the randomness is an
// argument. A restart of the server sends every client here at once, so not even the first attempt goes out at a predictable instant.
type backoff struct {
	// ceiling: the next delay is anything up to this.
	ceiling time.Duration
	// wasAtOnce: a shutdown of the server has been answered with a reconnect at once, and nothing good has come since.
	wasAtOnce bool
}

func newBackoff() backoff { return backoff{ceiling: firstBackoffCeiling} }

// delay is how long to wait after an attempt that lasted so long and failed with err; not ok where trying again is no use. random is a
// uniform number from 0 to 1.
func (b *backoff) delay(err error, lasted time.Duration, random float64) (delay time.Duration, ok bool) {
	var failed *Error
	if !errors.As(err, &failed) || !failed.worthAnotherAttempt() {
		return 0, false
	}
	if lasted >= lastBackoffCeiling {
		*b = newBackoff()
	}
	server := failed.serverError()
	if server != nil && server.Code == protocol.CodeShuttingDown && !b.wasAtOnce {
		b.wasAtOnce = true
		return scaled(reconnectSpread, random), true
	}
	delay = scaled(b.ceiling, random)
	b.ceiling = min(2*b.ceiling, lastBackoffCeiling)
	return delay, true
}

func scaled(d time.Duration, factor float64) time.Duration { return time.Duration(float64(d) * factor) }
