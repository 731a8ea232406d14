// Command worker-go is one Go client of the server, as the Rust program chaos-worker is one: it claims a lock again and again, says what it
// believes as lines of a history on standard output, and hears "keep CLAIM", "go" and "finish" on standard input. It uses the client's public API
// alone; see ../src/history.rs for what a stamp means.
//
//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	monolock "github.com/monolock-dev/monolock-go"
)

const (
	look  = 4 * time.Millisecond
	sayNs = int64(25 * time.Millisecond)
	// clockBoottime is CLOCK_BOOTTIME.
	clockBoottime = 7
)

var (
	name     = flag.String("name", "", "who this is")
	server   = flag.String("server", "", "host:port")
	lockName = flag.String("lock", "", "what to claim")
	seed     = flag.Int64("seed", 0, "what decides how long it holds")
	leasesMs = flag.String("leases-ms", "", "leases to choose from")

	keep   atomic.Int64
	finish atomic.Bool
)

// now is CLOCK_BOOTTIME in nanoseconds.
func now() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

type fields map[string]any

func say(t int64, event string, claim int64, rest fields) {
	line := fields{"t": t, "event": event, "worker": *name, "claim": claim}
	for key, value := range rest {
		line[key] = value
	}
	bytes, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(bytes, '\n'))
}

func hear() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		word, claim, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "keep":
			number, _ := strconv.ParseInt(claim, 10, 64)
			keep.Store(number)
		case "go":
			keep.Store(0)
		}
	}
	finish.Store(true)
}

func write(claim int64, lock *monolock.Lock) {
	say(now(), "write", claim, fields{"lock": *lockName, "token": lock.Token()})
}

func hold(claim int64, lock *monolock.Lock, atLeast time.Duration) {
	say(now(), "granted", claim, fields{"token": lock.Token()})
	until := now() + int64(atLeast)
	var said, believed int64
	isKeeping := false
	for {
		// Stamped before the question: what is held at the answer was held at this instant too.
		asked := now()
		if !lock.Held() {
			break
		}
		if asked-said >= sayNs {
			said = asked
			say(asked, "believed", claim, nil)
			write(claim, lock)
		}
		believed = asked
		if keep.Load() == claim && !finish.Load() {
			if !isKeeping {
				isKeeping = true
				say(now(), "keeping", claim, nil)
			}
		} else if asked >= until || finish.Load() {
			say(asked, "believed", claim, nil)
			say(now(), "releasing", claim, nil)
			return
		}
		time.Sleep(look)
	}
	if believed > said {
		say(believed, "believed", claim, nil)
	}
	reason := "none"
	var lost *monolock.LossError
	if errors.As(lock.Err(), &lost) {
		reason = string(lost.Reason)
	}
	say(now(), "lost", claim, fields{"reason": reason})
	// As work does that was between its last look and its write.
	write(claim, lock)
}

func main() {
	flag.Parse()
	go hear()
	random := rand.New(rand.NewSource(*seed))
	client := monolock.New(monolock.Config{Address: *server, ConnectTimeout: 2500 * time.Millisecond})
	leases := strings.Split(*leasesMs, ",")
	for claim := int64(1); !finish.Load(); claim++ {
		leaseMs, err := strconv.ParseInt(leases[random.Intn(len(leases))], 10, 64)
		if err != nil {
			panic(err)
		}
		say(now(), "ask", claim, fields{"lock": *lockName, "lease_ms": leaseMs})
		lock, err := client.Acquire(context.Background(), *lockName, time.Duration(leaseMs)*time.Millisecond)
		if err != nil {
			say(now(), "failed", claim, fields{"kind": err.Error()})
			time.Sleep(time.Duration(20+random.Intn(180)) * time.Millisecond)
			continue
		}
		hold(claim, lock, time.Duration(20+random.Intn(230))*time.Millisecond)
		lock.Release()
		time.Sleep(time.Duration(5+random.Intn(55)) * time.Millisecond)
	}
}
