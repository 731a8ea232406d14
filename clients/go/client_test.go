package monolock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

var errWork = errors.New("the work failed")

func ok(context.Context, uint64) error { return nil }

func TestDoHandsTheTokenOnAndReleases(t *testing.T) {
	goroutines(t)
	server := listen(t)
	done := background(func() error {
		return server.client().Do(context.Background(), "jobs", testLease,
			func(ctx context.Context, token uint64) error {
				if token != 41 || ctx.Err() != nil {
					t.Errorf("token %d, %v", token, ctx.Err())
				}
				return nil
			})
	})
	p := server.accepts()
	if got := p.readsAcquire(); got != (protocol.Acquire{LeaseMS: 60_000, Name: "jobs"}) {
		t.Errorf("%v", got)
	}
	p.sends(waiting)
	p.sends(acquired)
	if err := receives(t, "the end", done); err != nil {
		t.Fatal(err)
	}
	p.reachesEOF()
}

func TestB03_APauseIsSeenBeforeAnythingElse(t *testing.T) {
	goroutines(t)
	clock := &setClock{}
	lock, p := hold(t, testLease, by(clock))
	if !lock.Held() || lock.Err() != nil {
		t.Fatal("not held")
	}
	clock.step(testLease * 3)
	// A reply waits in the socket, or comes just now: it revives nothing.
	p.sends(acquired)
	if lock.Held() {
		t.Fatal("held after a pause")
	}
	wantsLoss(t, lock.Err(), LossTimeout)
	receives(t, "the loss", lock.Lost())
	p.reachesEOF()
}

func TestB04_AwakeningIsFoundOutWithoutALook(t *testing.T) {
	clock := &setClock{}
	// The timers that were set before the sleep would run for minutes.
	lock, p := hold(t, time.Hour, by(clock))
	clock.step(2 * time.Hour)
	receives(t, "the loss", lock.Lost())
	wantsLoss(t, lock.Err(), LossTimeout)
	p.reachesEOF()
}

func TestB03_TheContextOfTheWorkLooksAtTheClock(t *testing.T) {
	clock := &setClock{}
	server := listen(t)
	client := server.client()
	client.settings.clock = clock
	done := background(func() error {
		return client.Do(context.Background(), "jobs", testLease, func(ctx context.Context, _ uint64) error {
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			clock.step(testLease)
			if ctx.Err() != context.Canceled {
				t.Error("the context does not know")
			}
			wantsLoss(t, context.Cause(ctx), LossTimeout)
			receives(t, "the end of a derived context", inner.Done())
			return nil
		})
	})
	server.acceptsClaim().sends(acquired)
	wantsLoss(t, receives(t, "the end", done), LossTimeout)
}

func TestB01_UnansweredHeartbeatsAreALoss(t *testing.T) {
	goroutines(t)
	clock := &setClock{}
	lock, p := hold(t, time.Second, by(clock))
	clock.step(250 * time.Millisecond)
	p.readsHeartbeat()
	if !lock.Held() {
		t.Fatal(lock.Err())
	}
	clock.step(time.Second)
	receives(t, "the loss", lock.Lost())
	if lock.Held() {
		t.Fatal("held")
	}
	wantsLoss(t, lock.Err(), LossTimeout)
	p.reachesEOF()
}

func TestB08_ReasonsOfALoss(t *testing.T) {
	for reason, part := range map[LossReason]func(peer){
		LossClosed:            func(p peer) { p.Close() },
		LossServerError:       func(p peer) { p.sends(protocol.Error{Code: 0x02, Reason: "\x1b[31m"}) },
		LossProtocolViolation: func(p peer) { p.sends(waiting) },
	} {
		t.Run(string(reason), func(t *testing.T) {
			goroutines(t)
			lock, p := hold(t, time.Minute, nil)
			early := lock.Lost()
			part(p)
			receives(t, "the loss", early)
			receives(t, "the loss, later", lock.Lost())
			loss := wantsLoss(t, lock.Err(), reason)
			if strings.Contains(loss.Error(), "\x1b") {
				t.Errorf("raw: %q", loss.Error())
			}
			var server *ServerError
			if errors.As(lock.Err(), &server) != (reason == LossServerError) || server != nil && server.Code != 0x02 {
				t.Errorf("%v", lock.Err())
			}
			if lock.Held() {
				t.Error("held")
			}
			lock.Release()
			lock.Release()
			wantsLoss(t, lock.Err(), reason)
		})
	}
}

func TestB09_ReleaseTwiceIsHarmlessAndNoLoss(t *testing.T) {
	goroutines(t)
	lock, p := hold(t, testLease, nil)
	lock.Release()
	lock.Release()
	if lock.Held() || lock.Err() != nil {
		t.Fatalf("%v, %v", lock.Held(), lock.Err())
	}
	select {
	case <-lock.Lost():
		t.Fatal("lost")
	default:
	}
	p.reachesEOF()
}

func TestB10_CancellingAsksTheWorkToStopAndKeepsTheLock(t *testing.T) {
	goroutines(t)
	const lease = 40 * time.Millisecond
	clock := &setClock{}
	client, accepts := piped(t, clock)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started, asked, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	done := background(func() error {
		return client.Do(ctx, "jobs", lease, func(ctx context.Context, _ uint64) error {
			close(started)
			<-ctx.Done()
			close(asked)
			<-stop
			return ctx.Err()
		})
	})
	p := accepts()
	p.readsAcquire()
	p.sends(acquired)
	receives(t, "the start", started)
	cancel()
	receives(t, "the request to stop", asked)
	// Three leases of winding up.
	for beat := 0; beat < 12; beat++ {
		clock.step(lease / 4)
		p.readsHeartbeat()
		p.gives(acquired)
	}
	close(stop)
	err := receives(t, "the end", done)
	if err != context.Canceled {
		t.Fatalf("%v: the work's own error as it is", err)
	}
	p.reachesEOF()
}

func TestB11_TheWorksErrorStandsAndTheLossIsJoined(t *testing.T) {
	for name, result := range map[string]error{"it fails": errWork, "it succeeds": nil} {
		t.Run(name, func(t *testing.T) {
			goroutines(t)
			server := listen(t)
			started := make(chan struct{})
			done := background(func() error {
				return server.client().Do(context.Background(), "jobs", testLease,
					func(ctx context.Context, _ uint64) error {
						close(started)
						<-ctx.Done()
						wantsLoss(t, context.Cause(ctx), LossClosed)
						return result
					})
			})
			p := server.acceptsClaim()
			p.sends(acquired)
			receives(t, "the start", started)
			p.Close()
			err := receives(t, "the end", done)
			wantsLoss(t, err, LossClosed)
			if result != nil && !errors.Is(err, result) {
				t.Fatal(err)
			}
		})
	}
}

func TestB11_APanicReleases(t *testing.T) {
	goroutines(t)
	server := listen(t)
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_ = server.client().Do(context.Background(), "jobs", testLease,
			func(context.Context, uint64) error { panic("a bug") })
	}()
	p := server.acceptsClaim()
	p.sends(acquired)
	if got := receives(t, "the panic", panicked); got != "a bug" {
		t.Fatal(got)
	}
	p.reachesEOF()
}

func TestB12_AWaitLimitPasses(t *testing.T) {
	never := func(context.Context, uint64) error {
		t.Error("the work ran")
		return nil
	}
	t.Run("the client's", func(t *testing.T) {
		goroutines(t)
		server := listen(t)
		server.serves(waiting)
		client := server.client().WithWaitLimit(100 * time.Millisecond)
		err := client.Do(context.Background(), "jobs", testLease, never)
		wants(t, err, KindWaitTimeout)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("no context had a deadline")
		}
	})
	t.Run("the context's", func(t *testing.T) {
		goroutines(t)
		server := listen(t)
		server.serves(waiting)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err := server.client().DoRetry(ctx, "jobs", testLease, never)
		wants(t, err, KindWaitTimeout)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestB14_TheSecondHoldHasHeartbeatsAsTheFirst(t *testing.T) {
	goroutines(t)
	const lease = 40 * time.Millisecond
	clock := &setClock{}
	client, accepts := piped(t, clock)
	for hold := 0; hold < 2; hold++ {
		lock, p := acquire(t, client, lease, accepts)
		for beat := 0; beat < 20; beat++ {
			clock.step(lease / 4)
			p.readsHeartbeat()
			p.gives(acquired)
		}
		if !lock.Held() {
			t.Fatal(lock.Err())
		}
		p.Close()
		receives(t, "the loss", lock.Lost())
		lock.Release()
	}
}

func TestB15_MaxHold(t *testing.T) {
	goroutines(t)
	clock := &setClock{}
	client, accepts := piped(t, clock)
	client.settings.maxHold = 300 * time.Millisecond
	lock, p := acquire(t, client, time.Second, accepts)
	clock.step(250 * time.Millisecond)
	p.readsHeartbeat()
	p.gives(acquired)
	if !lock.Held() {
		t.Fatal(lock.Err())
	}
	clock.step(50 * time.Millisecond)
	receives(t, "the loss", lock.Lost())
	wantsLoss(t, lock.Err(), LossMaxHold)
	p.reachesEOF()
}

func TestB27_OpenClaimsAreCounted(t *testing.T) {
	server := listen(t)
	client := server.client()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := background(func() error { return client.Do(ctx, "jobs", testLease, ok) })
	p := server.acceptsClaim()
	if n := client.WithWaitLimit(time.Second).Claims("jobs"); n != 1 {
		t.Errorf("%d claims while asking", n)
	}
	p.sends(waiting)
	cancel()
	wants(t, receives(t, "the end", done), KindCancelled)
	if n := client.Claims("jobs"); n != 0 || len(client.claims.open) != 0 {
		t.Errorf("%d claims at the end", n)
	}
}

func TestB29_B30_WhatIsInvalidIsNotDialled(t *testing.T) {
	never := DialerFunc(func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errWork
	})
	client := New(Config{Address: "server:7070", Dialer: never})
	for _, lease := range []time.Duration{
		0, 400 * time.Microsecond, -time.Millisecond, 1 << 32 * time.Millisecond, time.Millisecond, 19 * time.Millisecond,
		20*time.Millisecond + 1, 1<<63 - 1, -1 << 63,
	} {
		_, err := client.Acquire(context.Background(), "jobs", lease)
		wants(t, err, KindInvalid)
	}
	for _, name := range []string{"", strings.Repeat("x", 256), "\xff"} {
		wants(t, client.DoRetry(context.Background(), name, testLease, ok), KindInvalid)
	}
	for name, config := range map[string]Config{
		"no address":      {},
		"no port":         {Address: "localhost"},
		"no host":         {Address: ":7070"},
		"port 0":          {Address: "localhost:0"},
		"a port's name":   {Address: "localhost:http"},
		"a bad second":    {Address: "localhost:7070", Addresses: []string{""}},
		"connect timeout": {Address: "localhost:7070", ConnectTimeout: -1},
		"max hold":        {Address: "localhost:7070", MaxHold: -1},
		"TLS twice":       {Address: "localhost:7070", TLS: &tls.Config{}, Dialer: &tls.Dialer{}},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, New(config).Do(context.Background(), "jobs", testLease, ok), KindInvalid)
		})
	}
}

func TestB30_LeasesAreExact(t *testing.T) {
	server := listen(t)
	for _, lease := range []time.Duration{MinLease, 12345 * time.Millisecond, MaxLease} {
		ctx, cancel := context.WithCancel(context.Background())
		client := server.client()
		client.settings.clock = &setClock{}
		done := background(func() error { return client.Do(ctx, "jobs", lease, ok) })
		if got := server.accepts().readsAcquire().LeaseMS; time.Duration(got)*time.Millisecond != lease {
			t.Errorf("%d", got)
		}
		cancel()
		receives(t, "the end", done)
	}
}

func TestB38_GrantsComeCutAndGlued(t *testing.T) {
	goroutines(t)
	server := listen(t)
	result := make(chan uint64, 1)
	done := background(func() error {
		return server.client().Do(context.Background(), "jobs", time.Minute,
			func(_ context.Context, token uint64) error { result <- token; return nil })
	})
	p := server.acceptsClaim()
	for _, b := range bytesOf(waiting, acquired) {
		if _, err := p.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := receives(t, "the token", result); got != 41 {
		t.Fatal(got)
	}
	if err := receives(t, "the end", done); err != nil {
		t.Fatal(err)
	}
}

func TestAGrantThatComesWithItsLossIsToldFirst(t *testing.T) {
	server := listen(t)
	client := server.client()
	obtained := make(chan *Lock, 1)
	go func() {
		lock, err := client.Acquire(context.Background(), "jobs", testLease)
		if err != nil {
			t.Error(err)
		}
		obtained <- lock
	}()
	server.acceptsClaim().sends(acquired, protocol.Error{Code: 1})
	lock := receives(t, "the lock", obtained)
	wantsLoss(t, lock.Err(), LossServerError)
	lock.Release()

	done := background(func() error {
		return client.Do(context.Background(), "jobs", testLease, func(context.Context, uint64) error {
			t.Error("the work ran")
			return nil
		})
	})
	server.acceptsClaim().sends(acquired, protocol.Error{Code: 1})
	wantsLoss(t, receives(t, "the end", done), LossServerError)
}

func TestB46_EveryAddressHasItsTurn(t *testing.T) {
	goroutines(t)
	mute, plaintext, living := listen(t), listen(t), listen(t)
	mute.serves()
	// Each that is dead leaves its share to the last two, and makes that of the mute one, which the test waits for, a smaller part.
	others := []string{"no-such-host.invalid:1"}
	for dead := 0; dead < 9; dead++ {
		others = append(others, refusing(t))
	}
	nameless := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errWork }}
	lock := make(chan *Lock, 1)
	go func() {
		got, err := New(Config{
			Address:        mute.address(),
			Addresses:      append(others, plaintext.address(), living.address()),
			Dialer:         &net.Dialer{Resolver: nameless},
			ConnectTimeout: 12 * time.Second,
		}).Acquire(context.Background(), "jobs", testLease)
		if err != nil {
			t.Error(err)
		}
		lock <- got
	}()
	p := plaintext.acceptsClaim()
	if _, err := p.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	living.acceptsClaim().sends(acquired)
	receives(t, "the lock", lock).Release()
}

func TestUnreachableNamesEveryAttempt(t *testing.T) {
	dead, busy := refusing(t), listen(t)
	done := background(func() error {
		client := New(Config{Addresses: []string{busy.address(), dead}, ConnectTimeout: testConnectTimeout})
		return client.Do(context.Background(), "jobs", testLease, ok)
	})
	busy.acceptsClaim().sends(protocol.Error{Code: 0x0f, Reason: "busy"})
	err := receives(t, "the end", done)
	if failed := wants(t, err, KindUnreachable); !failed.Temporary() {
		t.Error("it may be reached later")
	}
	var server *ServerError
	var loss *LossError
	if !errors.As(err, &server) || server.Code != 0x0f || !server.Temporary() || errors.As(err, &loss) {
		t.Error(err)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), dead) {
		t.Error(err)
	}
}

func TestAMuteServerIsUnreachable(t *testing.T) {
	goroutines(t)
	server := listen(t)
	client := New(Config{Address: server.address(), ConnectTimeout: 100 * time.Millisecond})
	err := client.Do(context.Background(), "jobs", time.Minute, ok)
	wants(t, err, KindUnreachable)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("no context of the caller had a deadline")
	}
}

func TestB48_ARefusalIsFinal(t *testing.T) {
	for code, kind := range map[protocol.ErrorCode]Kind{0x18: KindDenied, 0x17: KindInvalid, 0x7e: KindInvalid} {
		server, other := listen(t), listen(t)
		done := background(func() error {
			client := New(Config{Addresses: []string{server.address(), other.address()}, ConnectTimeout: testConnectTimeout})
			return client.DoRetry(context.Background(), "jobs", testLease, ok)
		})
		server.acceptsClaim().sends(protocol.Error{Code: code, Reason: "no"})
		err := receives(t, "the end", done)
		if failed := wants(t, err, kind); failed.Temporary() {
			t.Error("it fails again")
		}
		var server1 *ServerError
		if !errors.As(err, &server1) || server1.Code != code || server1.Reason != "no" {
			t.Error(err)
		}
	}
}

func TestDoRetryTriesAgainAndRunsTheWorkOnce(t *testing.T) {
	goroutines(t)
	server := listen(t)
	var runs atomic.Int64
	done := background(func() error {
		return server.client().DoRetry(context.Background(), "jobs", testLease,
			func(ctx context.Context, _ uint64) error {
				runs.Add(1)
				<-ctx.Done()
				return nil
			})
	})
	server.acceptsClaim().sends(protocol.Error{Code: 0x02})
	server.acceptsClaim().Close()
	server.acceptsClaim().sends(waiting, protocol.Error{Code: 0x01})
	p := server.acceptsClaim()
	p.sends(acquired)
	// The lock is lost: that is the end, no matter how.
	p.sends(protocol.Error{Code: 0x01})
	wantsLoss(t, receives(t, "the end", done), LossServerError)
	if runs.Load() > 1 {
		t.Fatalf("%d runs", runs.Load())
	}
}

func TestTryIsContended(t *testing.T) {
	goroutines(t)
	server := listen(t)
	client := server.client()
	for _, try := range []func() error{
		func() error {
			_, err := client.TryAcquire(context.Background(), "jobs", testLease)
			return err
		},
		func() error { return client.TryDo(context.Background(), "jobs", testLease, ok) },
	} {
		done := background(try)
		p := server.acceptsClaim()
		p.sends(waiting)
		wants(t, receives(t, "the end", done), KindContended)
		p.reachesEOF()
	}
}

func TestALossInTheQueueIsALoss(t *testing.T) {
	clock := &setClock{}
	server := listen(t)
	client := server.client()
	client.settings.clock = clock
	done := background(func() error { return client.Do(context.Background(), "jobs", time.Second, ok) })
	p := server.acceptsClaim()
	p.sends(waiting)
	clock.step(250 * time.Millisecond)
	p.readsHeartbeat()
	clock.step(time.Second)
	wantsLoss(t, receives(t, "the end", done), LossTimeout)
}

// B50: cancelled at any stage, it is back soon and leaves nothing. The rounds of one stage run one after another, so a leak adds up.
func TestB50_CancelledAtEveryStage(t *testing.T) {
	// A round may be late by the machine's fault. A client that does not heed the cancel is late each time, or not back at all.
	const rounds, lateAtMost = 1000, 20
	plain := func(address string) Config { return Config{Address: address} }
	mute := func(peer) {}
	stages := map[string]struct {
		config func(address string) Config
		// part is the server's, until the moment of the cancel.
		part func(peer)
	}{
		"against a mute server": {plain, func(p peer) { p.readsAcquire() }},
		"in the queue":          {plain, func(p peer) { p.readsAcquire(); p.sends(waiting) }},
		"in the TLS handshake": {
			func(address string) Config {
				return Config{Address: address, TLS: &tls.Config{InsecureSkipVerify: true}}
			}, mute,
		},
		"in the look-up": {
			// The peer is the name server, over TCP.
			func(address string) Config {
				resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, "tcp", address)
				}}
				return Config{Address: "server.example.:7070", Dialer: &net.Dialer{Resolver: resolver}}
			}, mute,
		},
		"in the connect": {
			func(address string) Config {
				hanging := DialerFunc(func(ctx context.Context, _, _ string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
					if err == nil {
						defer conn.Close()
					}
					<-ctx.Done()
					return nil, ctx.Err()
				})
				return Config{Address: "server:7070", Dialer: hanging}
			}, mute,
		},
	}
	for stage, s := range stages {
		t.Run(stage, func(t *testing.T) {
			goroutines(t)
			server := listen(t)
			config := s.config(server.address())
			config.ConnectTimeout = testConnectTimeout
			client := New(config)
			var slowest time.Duration
			late := 0
			for round := 0; round < rounds; round++ {
				ctx, cancel := context.WithCancel(context.Background())
				done := background(func() error { return client.DoRetry(ctx, "jobs", testLease, ok) })
				p := server.accepts()
				s.part(p)
				begun := time.Now()
				cancel()
				err := receives(t, "the end", done)
				took := time.Since(begun)
				slowest = max(slowest, took)
				if took > time.Second {
					late++
				}
				if late > lateAtMost {
					t.Fatalf("back late in %d of %d rounds, after %v at most", late, round+1, slowest)
				}
				if wants(t, err, KindCancelled); !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				p.Close()
			}
			t.Logf("slowest: %v", slowest)
		})
	}
}

func TestB50_AThousandHoldsLeaveNothing(t *testing.T) {
	goroutines(t)
	server := listen(t)
	server.serves(acquired)
	client := server.client()
	for round := 0; round < 1000; round++ {
		if err := client.Do(context.Background(), "jobs", time.Minute, ok); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCauseAndCancelledBeforeAnything(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errWork)
	err := New(Config{Address: "127.0.0.1:1"}).Do(ctx, "jobs", testLease, ok)
	wants(t, err, KindCancelled)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errWork) {
		t.Fatal(err)
	}
}

// A connection that is no socket, and that waits in Write until the other end reads.
func TestADialerMayGiveAnyConnection(t *testing.T) {
	goroutines(t)
	clock := &setClock{}
	ours, theirs := net.Pipe()
	dialer := DialerFunc(func(_ context.Context, network, address string) (net.Conn, error) {
		if network != "tcp" || address != "a-proxy-knows:7070" {
			t.Errorf("%s %s", network, address)
		}
		return ours, nil
	})
	done := background(func() error {
		client := New(Config{Address: "a-proxy-knows:7070", Dialer: dialer, ConnectTimeout: testConnectTimeout})
		client.settings.clock = clock
		return client.Do(context.Background(), "jobs", time.Second, func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			return nil
		})
	})
	p := newPeer(t, theirs)
	p.readsAcquire()
	p.gives(acquired)
	clock.step(250 * time.Millisecond)
	p.readsHeartbeat()
	p.gives(acquired)
	clock.step(250 * time.Millisecond)
	// Nobody takes a byte: a heartbeat hangs in Write, and the loss comes all the same.
	if _, err := p.Read(nil); err != nil {
		t.Fatal(err)
	}
	clock.step(time.Second)
	wantsLoss(t, receives(t, "the end", done), LossTimeout)
}

func TestTLS(t *testing.T) {
	authority := newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	mutual := &tls.Config{
		Certificates: []tls.Certificate{authority.issue(t, "localhost")},
		ClientCAs:    roots,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
	known := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{authority.issue(t, "worker-1")}}
	anonymous := &tls.Config{RootCAs: roots}
	for name, c := range map[string]struct {
		config Config
		want   Kind
	}{
		"Config.TLS":               {Config{TLS: known}, ""},
		"a tls.Dialer":             {Config{Dialer: &tls.Dialer{Config: known}}, ""},
		"TLS over a net.Dialer":    {Config{TLS: known, Dialer: &net.Dialer{}}, ""},
		"without a certificate":    {Config{TLS: anonymous}, KindUnreachable},
		"an unknown authority":     {Config{TLS: &tls.Config{}}, KindUnreachable},
		"a tls.Dialer of defaults": {Config{Dialer: &tls.Dialer{}}, KindUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			goroutines(t)
			server := listen(t)
			_, port, _ := net.SplitHostPort(server.address())
			c.config.Address = "localhost:" + port
			c.config.ConnectTimeout = testConnectTimeout
			served := make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := server.Accept()
					if err != nil {
						return
					}
					secured := tls.Server(conn, mutual)
					if secured.Handshake() == nil {
						_, _ = secured.Read(make([]byte, 64))
						_, _ = secured.Write(bytesOf(acquired))
						_, _ = io.Copy(io.Discard, secured)
					}
					secured.Close()
				}
			}()
			err := New(c.config).Do(context.Background(), "jobs", time.Minute, ok)
			if c.want == "" && err != nil {
				t.Error(err)
			} else if c.want != "" {
				wants(t, err, c.want)
			}
			server.Close()
			<-served
		})
	}
}

// authority is a certificate authority for one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{certificate, key}
}

func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
