// The quick start's program, word for word.
package main

import (
	"context"
	"time"

	monolock "github.com/monolock-dev/monolock-go"
)

func main() {
	c := monolock.New(monolock.Config{Address: "127.0.0.1:7070"})

	// Blocks until this process owns "nightly-import", runs the
	// function, and releases the lock when it returns.
	err := c.Do(context.Background(), "nightly-import", 2*time.Second,
		func(ctx context.Context, token uint64) error {
			// Only one process across your fleet runs this at a time.
			// ctx is cancelled the moment ownership stops being
			// confirmed; token fences out stale holders (see below).
			return doTheWork(ctx, token)
		})
	if err != nil {
		// ...
	}
}
