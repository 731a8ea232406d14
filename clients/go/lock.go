package monolock

import (
	"context"
	"errors"
)

// Lock is a lock that was granted. Its methods may be called from any goroutine.
type Lock struct {
	connection *connection
	name       string
	token      uint64
	leave      func()
}

// Token is the fencing token: larger than that of any earlier grant. Hand it to whatever the lock guards, which must refuse a token below the
// largest it saw.
func (l *Lock) Token() uint64 { return l.token }

// Name is the lock's name.
func (l *Lock) Name() string { return l.name }

// Held says whether the lock is still held, by the clock: false from the give-up instant on, although nothing has run since and whatever
// lies unread in the socket. Once false, it stays false. After the release it is false too.
func (l *Lock) Held() bool {
	is, _ := l.connection.look()
	return is == holding
}

// Lost is closed when the lock is lost. [Lock.Err] says how. A lock that is released was not lost: then the channel stays open.
func (l *Lock) Lost() <-chan struct{} { return l.connection.ended }

// Err says how the lock was lost: an [*Error] of kind [ErrLost], or nil while it is held and after its release. Like [Lock.Held], it goes by
// the clock.
func (l *Lock) Err() error {
	if err := l.err(); err != nil {
		return err
	}
	return nil
}

// Release lets the lock go, and returns when the connection is closed and no goroutine is left of it. Nothing is waited for from the server.
// Calling it again is harmless, and so is calling it after a loss.
func (l *Lock) Release() {
	l.connection.hangUp()
	l.leave()
}

func (l *Lock) err() *Error {
	if _, loss := l.connection.look(); loss != nil {
		return errLost(l.name, loss)
	}
	return nil
}

// run runs work under the lock and releases it, on every path.
func (l *Lock) run(ctx context.Context, work Work) error {
	defer l.Release()
	if err := l.Err(); err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.connection.whenEnded(func() { cancel(l.err()) })
	err := work(&workContext{inner, l, cancel}, l.token)
	switch loss := l.Err(); {
	case loss == nil:
		return err
	case err == nil:
		return loss
	default:
		return errors.Join(err, loss)
	}
}

// workContext is the context of guarded work. Whoever asks it for its error looks at the clock.
type workContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc
}

// Err is non-nil from the instant on at which the lock must not be believed in, although nothing has run since.
func (c *workContext) Err() error {
	if loss := c.lock.err(); loss != nil {
		c.cancel(loss)
	}
	return c.Context.Err()
}
