package monolock

import (
	"errors"
	"fmt"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

// This file is the one place that knows the rules of a session, as a client must keep them.
//
// A session is pure: it opens no socket, reads no clock and draws no randomness, so tests run the very same rules as the driver. Every input
// looks at the clock before it looks at anything else, so a session that has given up can be revived by nothing; and it gives up no later
// than 0.8 leases after the sending of the last confirmed frame, which is before the server does.

const (
	// heartbeatCeiling is the longest time between two heartbeats, however long the lease: middleboxes drop flows that are idle for long.
	heartbeatCeiling = time.Minute
	// heartbeatFloor is the shortest time between two heartbeats, where a quarter of the lease is not shorter still.
	heartbeatFloor = 100 * time.Millisecond
)

// claim is what a session is for.
type claim struct {
	name  string
	lease time.Duration
	// maxHold limits a hold, counted from the grant's receipt. 0: as long as it is confirmed.
	maxHold time.Duration
}

// standing is where a session stands. It never goes back.
type standing int

const (
	// asking: the server has not answered yet.
	asking standing = iota
	// queued: in the queue.
	queued
	// holding: the session owns the lock.
	holding
	// over: the connection is to be closed.
	over
)

// session is one claim on one lock, from ACQUIRE to its end.
//
// A driver makes one when it has connected, and then, for as long as nextDeadline says something: writes what transmit gives, hands what
// it reads to receive, and calls tick at the deadline. After every input, transmit may have something new. A now that steps back counts as
// standing still.
type session struct {
	claim
	// clock is the latest instant that any input brought.
	clock    instant
	standing standing
	// token is the grant's, while holding and after.
	token uint64
	// endedFrom is where it stood when it ended, and loss says why; valid when over.
	endedFrom standing
	loss      *LossError
	// owed is a frame that is to be sent and that transmit has not taken yet.
	owed protocol.ClientFrame
	// awaiting says that a frame, sent at sent, waits for its reply.
	awaiting bool
	sent     instant
	// confirmed is when the last confirmed frame was sent; until there is one, when ACQUIRE was.
	confirmed instant
	nextBeat  instant
	// roundTrip is the smoothed round-trip time; negative before the first sample.
	roundTrip time.Duration
	// holdEnds is when maxHold is over.
	holdEnds instant
	// undecoded is the beginning of a frame whose rest has not come.
	undecoded []byte
}

// newSession is a session that has just connected and owes its ACQUIRE.
func newSession(now instant, c claim) *session {
	return &session{
		claim:     c,
		clock:     now,
		owed:      protocol.Acquire{LeaseMS: uint32(c.lease / time.Millisecond), Name: c.name},
		confirmed: now,
		nextBeat:  now,
		roundTrip: -1,
		holdEnds:  farFuture,
	}
}

// receive takes in bytes from the server, cut and glued as the network pleases.
func (s *session) receive(now instant, b []byte) {
	s.settle(now)
	if s.standing == over {
		return
	}
	s.undecoded = append(s.undecoded, b...)
	taken := 0
	for s.standing != over {
		frame, size, err := protocol.DecodeServer(s.undecoded[taken:])
		if err != nil {
			s.violated(err)
			break
		}
		if size == 0 {
			break
		}
		taken += size
		s.takeIn(frame)
	}
	// What stays is less than a frame, so the buffer does not grow.
	s.undecoded = s.undecoded[:copy(s.undecoded, s.undecoded[taken:])]
	s.settle(now)
}

// tick lets time pass. Early it does nothing; when due, the deadline moves on or the session ends.
func (s *session) tick(now instant) { s.settle(now) }

// disconnected says that the connection is gone: the server closed it (err is nil), or reading or writing failed.
func (s *session) disconnected(now instant, err error) {
	s.settle(now)
	s.end(&LossError{Reason: LossClosed, Err: err})
}

// transmit appends the bytes that are to be written now, if any, and counts now as the moment of their sending: take the time before the
// system call, not after it.
func (s *session) transmit(now instant, dst []byte) []byte {
	s.clock = later(s.clock, now)
	if s.owed == nil || s.standing == over || s.clock >= s.givesUp() {
		return dst
	}
	if s.standing == asking {
		s.confirmed = s.clock
	}
	dst = s.owed.Append(dst)
	s.owed, s.awaiting, s.sent = nil, true, s.clock
	return dst
}

// nextDeadline is when tick is to be called next; not ok when the session is over.
func (s *session) nextDeadline() (at instant, ok bool) {
	if s.standing == over {
		return 0, false
	}
	if s.mayBeat() {
		return earlier(s.givesUp(), s.nextBeat), true
	}
	return s.givesUp(), true
}

// givesUp is when the session ends unless something is confirmed before: 0.8 leases after the sending of the last confirmed frame, or at the
// end of maxHold. From this instant on the lock must not be believed in. Meaningless when over.
func (s *session) givesUp() instant { return earlier(s.unconfirmedAt(), s.holdEnds) }

func (s *session) unconfirmedAt() instant { return s.confirmed.add(s.lease * 4 / 5) }

// mayBeat: at most one frame is unanswered at a time.
func (s *session) mayBeat() bool { return s.owed == nil && !s.awaiting }

// settle does what is due by now.
func (s *session) settle(now instant) {
	s.clock = later(s.clock, now)
	switch {
	case s.standing == over:
	case s.clock >= s.givesUp():
		reason := LossMaxHold
		if s.unconfirmedAt() <= s.holdEnds {
			reason = LossTimeout
		}
		s.end(&LossError{Reason: reason})
	case s.mayBeat() && s.clock >= s.nextBeat:
		s.owed = protocol.Heartbeat{}
	}
}

func (s *session) takeIn(frame protocol.ServerFrame) {
	switch frame := frame.(type) {
	case protocol.Error:
		s.end(&LossError{Reason: LossServerError, Err: &ServerError{Code: frame.Code, Reason: frame.Reason}})
	case protocol.Waiting:
		switch {
		case s.standing == holding:
			s.violated(errors.New("WAITING after ACQUIRED"))
		case s.confirm():
			s.standing = queued
		}
	case protocol.Acquired:
		switch {
		case s.standing == queued:
			// The push: it answers nothing, so it confirms nothing. A heartbeat under way is answered by the next frame.
			s.grant(frame.Token)
		case s.standing == holding && frame.Token != s.token:
			s.violated(fmt.Errorf("the token changed from %d to %d", s.token, frame.Token))
		case s.confirm() && s.standing == asking:
			s.grant(frame.Token)
		}
	}
}

// confirm: the frame that was under way has its reply. It says whether there was one; a reply to nothing ends the session.
func (s *session) confirm() bool {
	if !s.awaiting {
		s.violated(errors.New("a reply to nothing"))
		return false
	}
	s.awaiting = false
	s.confirmed = s.sent
	sample := s.clock.since(s.sent)
	if s.roundTrip < 0 {
		s.roundTrip = sample
	} else {
		s.roundTrip = (sample + 4*s.roundTrip) / 5
	}
	if interval, ok := heartbeatInterval(s.lease, s.roundTrip); ok {
		s.nextBeat = s.sent.add(interval)
	} else {
		s.nextBeat = s.clock
	}
	return true
}

func (s *session) grant(token uint64) {
	s.standing, s.token = holding, token
	if s.maxHold > 0 {
		s.holdEnds = s.clock.add(s.maxHold)
	}
}

func (s *session) violated(what error) { s.end(&LossError{Reason: LossProtocolViolation, Err: what}) }

func (s *session) end(loss *LossError) {
	if s.standing == over {
		return
	}
	s.endedFrom, s.loss = s.standing, loss
	s.standing, s.owed = over, nil
}

// heartbeatInterval is the time from one heartbeat's sending to the next one's; not ok: the next goes out as soon as the answer is in.
func heartbeatInterval(lease, roundTrip time.Duration) (interval time.Duration, ok bool) {
	base := lease / 4
	interval = base - 2*roundTrip
	if interval <= 0 {
		return 0, false
	}
	if floor := min(heartbeatFloor, base); interval < floor {
		interval = floor
	}
	return min(interval, heartbeatCeiling), true
}

func later(a, b instant) instant   { return max(a, b) }
func earlier(a, b instant) instant { return min(a, b) }
