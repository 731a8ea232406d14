package monolock

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// suspendCheck is how long a timer runs at most before the clock is looked at: timers stand still while the machine sleeps.
	suspendCheck = 250 * time.Millisecond
	// lastWordTime is how long the reader may still look for the server's last word after a write has failed.
	lastWordTime = 50 * time.Millisecond
	// readBytes is how many bytes one read takes: several frames, of which there are seldom two.
	readBytes = 512
)

// connection is a socket and the session on it. One goroutine reads all the time; a timer ticks and writes. Both only move bytes: the
// session decides, under a lock that is never held over a system call on the socket.
//
// What happens is told in this order: the session is over, then whoever waits is told, then the socket is closed, so the holder knows before
// the server can hand the lock on.
type connection struct {
	conn  net.Conn
	clock clock

	// answered is closed when the server has answered or will not, granted when the lock is had, ended when the session is over and was not
	// hung up.
	answered, ended, granted chan struct{}
	// gone is closed when the reader has gone.
	gone chan struct{}

	mu      sync.Mutex
	session *session
	timer   *time.Timer
	// hungUp: the caller let go, so nothing that comes after is told.
	hungUp bool
	// writeErr is how writing failed.
	writeErr error
	// onEnd is called when the session is over.
	onEnd []func()
}

// open starts a session on a connection that has just been made.
func open(conn net.Conn, clock clock, c claim) *connection {
	k := &connection{
		conn:     conn,
		clock:    clock,
		answered: make(chan struct{}),
		ended:    make(chan struct{}),
		granted:  make(chan struct{}),
		gone:     make(chan struct{}),
		session:  newSession(clock.now(), c),
	}
	go k.read()
	return k
}

// read keeps the reading side, and sends the ACQUIRE first.
func (k *connection) read() {
	defer close(k.gone)
	k.step(func(now instant) { k.session.tick(now) })
	buffer := make([]byte, readBytes)
	for !k.isOver() {
		n, err := k.conn.Read(buffer)
		k.step(func(now instant) {
			if n > 0 {
				k.session.receive(now, buffer[:n])
			}
			if err != nil {
				k.session.disconnected(now, k.howItClosed(err))
			}
		})
	}
}

// step gives the session one input, tells what came of it, and writes what is to be written.
func (k *connection) step(input func(now instant)) {
	k.mu.Lock()
	was := k.session.standing
	if k.hungUp || was == over {
		k.mu.Unlock()
		return
	}
	input(k.clock.now())
	frame := k.session.transmit(k.clock.now(), nil)
	tell := k.moved(was)
	k.arm()
	k.mu.Unlock()

	for _, told := range tell {
		told()
	}
	if k.isOver() {
		k.conn.Close()
	} else if len(frame) > 0 {
		k.write(frame)
	}
}

// write writes a frame. There is at most one unanswered, so no two writes meet.
func (k *connection) write(frame []byte) {
	_, err := k.conn.Write(frame)
	if err == nil {
		return
	}
	k.mu.Lock()
	if k.writeErr == nil {
		k.writeErr = err
	}
	k.mu.Unlock()
	// The server's last word may lie in the socket and say more than the system's error: the reader finds it, or the deadline.
	if k.conn.SetReadDeadline(time.Now().Add(lastWordTime)) != nil {
		k.step(func(now instant) { k.session.disconnected(now, err) })
	}
}

// moved closes the channels that the session's move has made due, and gives whom to tell once the lock is let go.
func (k *connection) moved(was standing) (tell []func()) {
	is := k.session.standing
	if is == was {
		return nil
	}
	if was == asking {
		close(k.answered)
	}
	// One input may bring a grant and its loss: then both are told.
	if was != holding && k.session.token != 0 {
		close(k.granted)
	}
	if is == over {
		close(k.ended)
		tell, k.onEnd = k.onEnd, nil
	}
	return tell
}

// arm sets the timer to the next deadline.
func (k *connection) arm() {
	at, ok := k.session.nextDeadline()
	if !ok {
		if k.timer != nil {
			k.timer.Stop()
		}
		return
	}
	wait := at.since(k.clock.now())
	if k.clock.countsSuspend() {
		wait = min(wait, suspendCheck)
	}
	if k.timer == nil {
		k.timer = time.AfterFunc(wait, k.tick)
	} else {
		k.timer.Reset(wait)
	}
}

func (k *connection) tick() {
	k.step(func(now instant) { k.session.tick(now) })
	if k.isOver() {
		k.conn.Close()
	}
}

// look looks at the clock, and says where the session stands, and how it was lost, if it was. It touches no socket: where it finds the
// session at its end, the timer closes the connection.
func (k *connection) look() (is standing, loss *LossError) {
	k.mu.Lock()
	if k.hungUp {
		defer k.mu.Unlock()
		return over, k.session.loss
	}
	was := k.session.standing
	k.session.tick(k.clock.now())
	tell := k.moved(was)
	is, loss = k.session.standing, k.session.loss
	if is == over && was != over {
		k.timer.Reset(0)
	}
	k.mu.Unlock()
	for _, told := range tell {
		told()
	}
	return is, loss
}

// whenEnded has f called when the session ends; at once, if it has. A hang-up drops it uncalled.
func (k *connection) whenEnded(f func()) {
	k.mu.Lock()
	if k.session.standing != over {
		k.onEnd = append(k.onEnd, f)
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	f()
}

// hangUp ends the connection, and returns when nothing is left of it. Twice is harmless.
func (k *connection) hangUp() {
	k.mu.Lock()
	k.hungUp, k.onEnd = true, nil
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	k.conn.Close()
	<-k.gone
}

// awaitGrant waits for the lock. Where a grant and its loss came at once, the grant is told first.
func (k *connection) awaitGrant(ctx context.Context) error {
	name := k.session.name
	select {
	case <-k.granted:
		return nil
	case <-k.ended:
	case <-ctx.Done():
		return errInterrupted(ctx, name)
	}
	select {
	case <-k.granted:
		return nil
	default:
		_, loss := k.look()
		return errLost(name, loss)
	}
}

func (k *connection) isOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hungUp || k.session.standing == over
}

// howItClosed is why reading ended: nil where the server closed in good order, and the failed write where that came first. Called under the lock.
func (k *connection) howItClosed(err error) error {
	switch {
	case k.writeErr != nil:
		return k.writeErr
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// refused is why the server did not take the claim in; nil where it did.
func (k *connection) refused() *LossError {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session.standing == over && k.session.endedFrom == asking {
		return k.session.loss
	}
	return nil
}

// grant is the token of the grant.
func (k *connection) grant() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session.token
}
