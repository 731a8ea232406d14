package main

import (
	"context"
	"fmt"
	"time"
)

// doTheWork stands for what one process at a time may do.
func doTheWork(ctx context.Context, token uint64) error {
	fmt.Printf("working under token %d\n", token)
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
