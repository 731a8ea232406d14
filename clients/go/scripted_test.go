package monolock

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

const (
	// testPatience is how long a test waits for what must come. Only a failing test waits so long.
	testPatience = 20 * time.Second
	// testLease and testConnectTimeout are longer still: what comes by them comes too late.
	testLease          = time.Minute
	testConnectTimeout = time.Minute
)

// setClock is a clock that a test sets. It counts suspend, as a set clock is ahead of the timers.
type setClock struct{ nanos atomic.Int64 }

func (c *setClock) now() instant          { return instant(c.nanos.Load()) }
func (c *setClock) countsSuspend() bool   { return true }
func (c *setClock) step(by time.Duration) { c.nanos.Add(int64(by)) }

// scriptedServer plays a server's part, frame by frame.
type scriptedServer struct {
	*net.TCPListener
	t *testing.T
}

func listen(t *testing.T) scriptedServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return scriptedServer{listener.(*net.TCPListener), t}
}

// refusing is an address where nobody listens. It is the near end of a connection, so nobody begins to while the test runs.
func refusing(t *testing.T) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	conn, err := dialer.Dial("tcp", listen(t).address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

func (s scriptedServer) address() string { return s.Addr().String() }

// client is a client of this server.
func (s scriptedServer) client() *Client {
	return New(Config{Address: s.address(), ConnectTimeout: testConnectTimeout})
}

// accepts waits for a connection.
func (s scriptedServer) accepts() peer {
	s.t.Helper()
	s.SetDeadline(time.Now().Add(testPatience))
	conn, err := s.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	return newPeer(s.t, conn)
}

// acceptsClaim waits for a connection and its ACQUIRE.
func (s scriptedServer) acceptsClaim() peer {
	s.t.Helper()
	p := s.accepts()
	p.readsAcquire()
	return p
}

// serves answers every claim with these frames and waits for the client to hang up, one after another, until the test ends. No client need
// come.
func (s scriptedServer) serves(frames ...protocol.ServerFrame) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			if _, err := conn.Read(make([]byte, 64)); err == nil {
				_, _ = conn.Write(bytesOf(frames...))
				_, _ = io.Copy(io.Discard, conn)
			}
			conn.Close()
		}
	}()
	s.t.Cleanup(func() {
		s.Close()
		receives(s.t, "the client hangs up", gone)
	})
}

// piped is a client by this clock whose connections are no sockets, and what waits for their other ends.
func piped(t *testing.T, clock clock) (client *Client, accepts func() peer) {
	peers := make(chan peer, 1)
	client = New(Config{
		Address:        "server:7070",
		ConnectTimeout: testConnectTimeout,
		Dialer: DialerFunc(func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			peers <- newPeer(t, theirs)
			return ours, nil
		}),
	})
	client.settings.clock = clock
	return client, func() peer { return receives(t, "a connection", peers) }
}

type peer struct {
	net.Conn
	t *testing.T
}

func newPeer(t *testing.T, conn net.Conn) peer {
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(testPatience))
	return peer{conn, t}
}

func (p peer) sends(frames ...protocol.ServerFrame) {
	p.t.Helper()
	if _, err := p.Write(bytesOf(frames...)); err != nil {
		p.t.Fatal(err)
	}
}

func (p peer) readsAcquire() protocol.Acquire {
	p.t.Helper()
	head := make([]byte, 8)
	if _, err := io.ReadFull(p, head); err != nil {
		p.t.Fatal(err)
	}
	name := make([]byte, int(head[6])<<8|int(head[7]))
	if _, err := io.ReadFull(p, name); err != nil {
		p.t.Fatal(err)
	}
	frame, _, err := protocol.DecodeClient(append(head, name...))
	if err != nil {
		p.t.Fatal(err)
	}
	return frame.(protocol.Acquire)
}

func (p peer) readsHeartbeat() {
	p.t.Helper()
	b := make([]byte, 1)
	if _, err := io.ReadFull(p, b); err != nil || b[0] != 0x02 {
		p.t.Fatalf("%x, %v", b, err)
	}
}

// gives sends a frame through a pipe, and returns when the client has taken it in: a write of nothing waits for the next read.
func (p peer) gives(frame protocol.ServerFrame) {
	p.t.Helper()
	p.sends(frame)
	if _, err := p.Write(nil); err != nil {
		p.t.Fatal(err)
	}
}

// reachesEOF: the client hangs up.
func (p peer) reachesEOF() {
	p.t.Helper()
	rest, err := io.ReadAll(p)
	if err != nil && !isReset(err) {
		p.t.Fatalf("%x, %v", rest, err)
	}
}

func isReset(err error) bool {
	var timeout net.Error
	return !(errors.As(err, &timeout) && timeout.Timeout())
}

// eventually waits for what has no signal of its own.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testPatience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func receives[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(testPatience):
		t.Fatalf("never: %s", what)
	}
	return value
}

// wants checks the kind of an error, by its name and by its sentinel.
func wants(t *testing.T, err error, kind Kind) *Error {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) || failed.Kind() != kind || !errors.Is(err, sentinels[kind]) {
		t.Fatalf("error %v, want the kind %s", err, kind)
	}
	for other, sentinel := range sentinels {
		if other != kind && errors.Is(err, sentinel) {
			t.Fatalf("error %v is %s and %s", err, kind, other)
		}
	}
	return failed
}

func wantsLoss(t *testing.T, err error, reason LossReason) *LossError {
	t.Helper()
	wants(t, err, KindLost)
	var loss *LossError
	if !errors.As(err, &loss) || loss.Reason != reason {
		t.Fatalf("error %v, want the loss %s", err, reason)
	}
	return loss
}

// goroutines checks that the test leaves none behind.
func goroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// background runs f and gives its error.
func background(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	return ended
}

// by sets a client's clock.
func by(clock clock) func(*Client) {
	return func(c *Client) { c.settings.clock = clock }
}

// hold acquires a lock from a scripted server, and gives both ends.
func hold(t *testing.T, lease time.Duration, change func(*Client)) (*Lock, peer) {
	t.Helper()
	server := listen(t)
	client := server.client()
	if change != nil {
		change(client)
	}
	return acquire(t, client, lease, server.accepts)
}

// acquire acquires a lock from the peer that comes, and gives both ends.
func acquire(t *testing.T, client *Client, lease time.Duration, comes func() peer) (*Lock, peer) {
	t.Helper()
	var (
		lock *Lock
		wait sync.WaitGroup
		err  error
	)
	wait.Add(1)
	go func() {
		defer wait.Done()
		lock, err = client.Acquire(context.Background(), "jobs", lease)
	}()
	p := comes()
	p.readsAcquire()
	p.sends(acquired)
	wait.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lock.Release)
	return lock, p
}
