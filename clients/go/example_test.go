package monolock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"
	"time"

	monolock "github.com/monolock-dev/monolock-go"
	"github.com/monolock-dev/monolock-go/internal/testserver"
)

var examples struct {
	once   sync.Once
	server *testserver.Server
}

// server is the address of a real server, which the examples share.
func server() string {
	examples.once.Do(func() {
		started, err := testserver.Start("127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		examples.server = started
	})
	return examples.server.Address
}

func TestMain(m *testing.M) {
	status := m.Run()
	if examples.server != nil {
		examples.server.Stop()
	}
	os.Exit(status)
}

func ExampleClient_Do() {
	c := monolock.New(monolock.Config{Address: server(), ConnectTimeout: time.Minute})

	err := c.Do(context.Background(), "nightly-import", time.Minute,
		func(ctx context.Context, token uint64) error {
			// One process across the fleet is here at a time. ctx ends when the lock is lost; token fences out stale holders.
			fmt.Println("importing")
			return ctx.Err()
		})
	if err != nil {
		log.Fatal(err)
	}
	// Output: importing
}

func ExampleClient_Acquire() {
	c := monolock.New(monolock.Config{Address: server(), ConnectTimeout: time.Minute})

	lock, err := c.Acquire(context.Background(), "nightly-report", time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release()

	for page := 1; page <= 3; page++ {
		select {
		case <-lock.Lost():
			log.Fatal(lock.Err())
		default:
			fmt.Println("page", page)
		}
	}
	// Output:
	// page 1
	// page 2
	// page 3
}

func ExampleClient_TryAcquire() {
	c := monolock.New(monolock.Config{Address: server(), ConnectTimeout: time.Minute})

	lock, err := c.TryAcquire(context.Background(), "cache-refresh", time.Minute)
	switch {
	case errors.Is(err, monolock.ErrContended):
		fmt.Println("another process refreshes the cache")
	case err != nil:
		log.Fatal(err)
	default:
		defer lock.Release()
		fmt.Println("refreshing the cache")
	}
	// Output: refreshing the cache
}

func ExampleClient_WithWaitLimit() {
	c := monolock.New(monolock.Config{Address: server(), ConnectTimeout: time.Minute})
	rebuild := func(ctx context.Context, token uint64) error {
		fmt.Println("rebuilding the index")
		return nil
	}

	err := c.WithWaitLimit(30*time.Second).Do(context.Background(), "index", time.Minute, rebuild)
	if errors.Is(err, monolock.ErrWaitTimeout) {
		fmt.Println("not our turn within half a minute")
	} else if err != nil {
		log.Fatal(err)
	}
	// Output: rebuilding the index
}

func ExampleServerError() {
	c := monolock.New(monolock.Config{Address: server(), ConnectTimeout: time.Minute})

	err := c.DoRetry(context.Background(), "nightly-import", time.Minute,
		func(ctx context.Context, token uint64) error { return nil })

	var refused *monolock.ServerError
	if errors.As(err, &refused) && !refused.Temporary() {
		fmt.Println("asking again would not help:", refused.Code)
	}
	// Output:
}
