package monolock

import (
	"context"
	"errors"
	"math/rand"
	"time"
)

// Work is what runs under a lock. Its context ends when the lock is lost, and when the caller's context does. The token is the grant's.
type Work = func(ctx context.Context, token uint64) error

// Client is a client of one server, or of several addresses of one. It keeps no connection: every claim on a lock is one. Its methods may be
// called from any goroutine.
type Client struct {
	settings *settings
	// problem is what is wrong with the configuration; every call answers with it.
	problem *Error
	claims  *claims
	wait    *time.Duration
}

// New is a client. Nothing is dialled yet. A configuration that is wrong makes every call fail with [ErrInvalid].
func New(config Config) *Client {
	settings, problem := config.settings()
	return &Client{settings: settings, problem: problem, claims: &claims{}}
}

// WithWaitLimit is this client, with each of its calls waiting at most so long for a lock, all attempts together. A call that does not make
// it fails with [ErrWaitTimeout]. Unlike a deadline of the context, the limit does not bound the work.
func (c *Client) WithWaitLimit(wait time.Duration) *Client {
	limited := *c
	limited.wait = &wait
	return &limited
}

// Claims is how many claims on this lock are open through this client, held or waiting. A claim that is made while there is one queues behind
// it, as behind a stranger's.
func (c *Client) Claims(name string) int { return c.claims.count(name) }

// Acquire acquires the lock, waiting for its turn in the queue until ctx ends. The caller must call [Lock.Release].
//
// ctx is about the waiting alone: when it ends later, the lock is kept. A lease is a whole number of milliseconds, [MinLease] to [MaxLease].
// The error is an [*Error] of any kind but [ErrContended].
func (c *Client) Acquire(ctx context.Context, name string, lease time.Duration) (*Lock, error) {
	return c.bounded(ctx, name, lease, queue)
}

// TryAcquire acquires the lock if it is free, and fails with [ErrContended] if it is not. The caller must call [Lock.Release].
func (c *Client) TryAcquire(ctx context.Context, name string, lease time.Duration) (*Lock, error) {
	return c.bounded(ctx, name, lease, try)
}

// AcquireRetry is like [Client.Acquire], and tries again where the server cannot be reached or the place in the queue is lost: after
// exponential backoff with full jitter, 100 ms doubling to 5 s. After a shutdown of the server (code 0x01) the first new attempt comes within
// 100 ms. Codes from 0x10 up are final.
func (c *Client) AcquireRetry(ctx context.Context, name string, lease time.Duration) (*Lock, error) {
	return c.bounded(ctx, name, lease, persist)
}

// Do acquires the lock like [Client.Acquire], runs work under it, and releases it, on every path: panics included.
//
// The work runs in the caller's goroutine. Its context ends when the lock is lost; [context.Cause] says how. When ctx ends, that only asks
// the work to stop: the lock is kept until the work has returned.
//
// Do returns the work's own error as it is. Where the lock was lost, the loss ([ErrLost]) is joined to it, and stands alone where the work
// returned nil. Where the lock was not obtained, the work never ran.
func (c *Client) Do(ctx context.Context, name string, lease time.Duration, work Work) error {
	return c.do(ctx, name, lease, queue, work)
}

// TryDo is like [Client.Do], if the lock is free; if it is not, it fails with [ErrContended].
func (c *Client) TryDo(ctx context.Context, name string, lease time.Duration, work Work) error {
	return c.do(ctx, name, lease, try, work)
}

// DoRetry is like [Client.Do], acquiring as in [Client.AcquireRetry]. Only the acquiring is tried again; the work runs at most once.
func (c *Client) DoRetry(ctx context.Context, name string, lease time.Duration, work Work) error {
	return c.do(ctx, name, lease, persist, work)
}

// patience is how a caller waits.
type patience int

const (
	// try: not at all.
	try patience = iota
	// queue: for its turn.
	queue
	// persist: for its turn, and for a server.
	persist
)

func (c *Client) do(ctx context.Context, name string, lease time.Duration, patience patience, work Work) error {
	lock, err := c.bounded(ctx, name, lease, patience)
	if err != nil {
		return err
	}
	return lock.run(ctx, work)
}

// bounded acquires within the wait limit and unless ctx ends.
func (c *Client) bounded(ctx context.Context, name string, lease time.Duration, patience patience) (*Lock, error) {
	if c.problem != nil {
		return nil, c.problem
	}
	asked, invalid := c.settings.claim(name, lease)
	if invalid != nil {
		return nil, invalid
	}
	if c.wait != nil {
		limited, cancel := context.WithTimeoutCause(ctx, *c.wait, errWaitLimit)
		defer cancel()
		ctx = limited
	}
	if ctx.Err() != nil {
		return nil, errInterrupted(ctx, name)
	}
	if patience == persist {
		return c.obtainPersistently(ctx, asked)
	}
	return c.obtain(ctx, asked, patience)
}

// errWaitLimit marks a context whose deadline is a client's wait limit.
var errWaitLimit = errors.New("wait limit")

func (c *Client) obtainPersistently(ctx context.Context, asked claim) (*Lock, error) {
	backoff := newBackoff()
	for {
		begun := c.settings.clock.now()
		lock, err := c.obtain(ctx, asked, queue)
		if err == nil {
			return lock, nil
		}
		lasted := c.settings.clock.now().since(begun)
		delay, ok := backoff.delay(err, lasted, rand.Float64())
		if !ok {
			return nil, err
		}
		if !sleep(ctx, delay) {
			return nil, errInterrupted(ctx, asked.name)
		}
	}
}

// obtain is one attempt.
func (c *Client) obtain(ctx context.Context, asked claim, patience patience) (*Lock, error) {
	leave := c.claims.enter(asked.name)
	connection, err := c.settings.dial(ctx, asked)
	if err != nil {
		leave()
		return nil, err
	}
	lock := &Lock{connection: connection, name: asked.name, leave: leave}
	if is, _ := connection.look(); is == queued && patience == try {
		err = errContended(asked.name)
	} else {
		err = connection.awaitGrant(ctx)
	}
	// A lock that came together with the end of the wait is not had: nobody runs under it.
	if err == nil && ctx.Err() != nil {
		err = errInterrupted(ctx, asked.name)
	}
	if err != nil {
		lock.Release()
		return nil, err
	}
	connection.whenEnded(leave)
	lock.token = connection.grant()
	return lock, nil
}

// sleep says whether it slept so long; not where ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
