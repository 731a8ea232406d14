package monolock

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

func ms(n int64) instant { return instant(n) * instant(time.Millisecond) }

func bytesOf(frames ...protocol.ServerFrame) (b []byte) {
	for _, f := range frames {
		b = f.Append(b)
	}
	return b
}

var (
	waiting  = protocol.Waiting{}
	acquired = protocol.Acquired{Token: 41}
)

// scripted is a session whose driver is a test. Times are in milliseconds.
type scripted struct {
	*session
	t *testing.T
}

func connected(t *testing.T, leaseMS int64, maxHold time.Duration) scripted {
	t.Helper()
	s := scripted{newSession(0, claim{"jobs", time.Duration(leaseMS) * time.Millisecond, maxHold}), t}
	s.sends(0, protocol.Acquire{LeaseMS: uint32(leaseMS), Name: "jobs"})
	return s
}

// sends: at this time exactly this goes out, or nothing.
func (s scripted) sends(at int64, want protocol.ClientFrame) {
	s.t.Helper()
	s.tick(ms(at))
	got := s.transmit(ms(at), nil)
	var expected []byte
	if want != nil {
		expected = want.Append(nil)
	}
	if string(got) != string(expected) {
		s.t.Fatalf("at %d ms: sent %x, want %x", at, got, expected)
	}
}

func (s scripted) gets(at int64, frames ...protocol.ServerFrame) {
	s.receive(ms(at), bytesOf(frames...))
}

func (s scripted) is(want standing) {
	s.t.Helper()
	if s.standing != want {
		s.t.Fatalf("standing %d, want %d (loss: %v)", s.standing, want, s.loss)
	}
}

// givesUpAt: not before, and then for this reason.
func (s scripted) givesUpAt(at int64, reason LossReason) {
	s.t.Helper()
	if got := s.givesUp(); got != ms(at) {
		s.t.Fatalf("gives up at %v, want %d ms", time.Duration(got), at)
	}
	s.tick(ms(at) - 1)
	if s.standing == over {
		s.t.Fatal("gave up early")
	}
	s.tick(ms(at))
	s.lost(reason)
}

func (s scripted) lost(reason LossReason) {
	s.t.Helper()
	if s.standing != over || s.loss.Reason != reason {
		s.t.Fatalf("standing %d, loss %v, want %s", s.standing, s.loss, reason)
	}
	if _, ok := s.nextDeadline(); ok {
		s.t.Fatal("a session that is over has a deadline")
	}
}

func TestB02_GiveUpCountsFromTheSendingOfTheConfirmedFrame(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(3000, acquired)
	s.is(holding)
	s.givesUpAt(8000, LossTimeout)
}

func TestB02_AHeartbeatCountsFromItsSendingToo(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.sends(2499, nil)
	s.sends(2500, protocol.Heartbeat{})
	s.gets(5500, acquired)
	s.sends(5500, protocol.Heartbeat{})
	s.givesUpAt(2500+8000, LossTimeout)
}

func TestB02b_ThePushConfirmsNothing(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, waiting)
	s.is(queued)
	s.sends(2500, protocol.Heartbeat{})
	s.gets(2600, acquired)
	s.is(holding)
	s.givesUpAt(8000, LossTimeout)
}

func TestB02b_TheFrameAfterThePushConfirms(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, waiting)
	s.sends(2500, protocol.Heartbeat{})
	s.gets(2600, acquired, acquired)
	s.is(holding)
	s.givesUpAt(2500+8000, LossTimeout)
}

func TestTheHandshakeIsBoundedToo(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.givesUpAt(8000, LossTimeout)
	if s.endedFrom != asking {
		t.Fatal("nothing was had that could be lost")
	}
}

func TestB03_AReplyReadTooLateRevivesNothing(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.sends(2500, protocol.Heartbeat{})
	s.gets(8000, acquired)
	s.lost(LossTimeout)
}

func TestNothingIsSentTooLate(t *testing.T) {
	s := scripted{newSession(0, claim{"jobs", 10 * time.Second, 0}), t}
	if got := s.transmit(ms(8000), nil); got != nil {
		t.Fatalf("sent %x", got)
	}
	s.tick(ms(8000))
	s.lost(LossTimeout)
}

func TestOneUnansweredAtMost(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.sends(2500, protocol.Heartbeat{})
	s.sends(5000, nil)
	s.sends(7999, nil)
}

func TestB15_MaxHoldCountsFromTheGrant(t *testing.T) {
	s := connected(t, 10_000, 5*time.Second)
	s.gets(1000, acquired)
	s.sends(1500, protocol.Heartbeat{})
	s.gets(1500, acquired)
	s.givesUpAt(6000, LossMaxHold)
}

func TestB15_MaxHoldDoesNotCountInTheQueue(t *testing.T) {
	s := connected(t, 10_000, 5*time.Second)
	s.gets(0, waiting)
	s.givesUpAt(8000, LossTimeout)
}

func TestB19_AWaiterGivesUpAsWell(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(10, waiting)
	s.givesUpAt(8000, LossTimeout)
}

func TestViolations(t *testing.T) {
	for name, frames := range map[string][]protocol.ServerFrame{
		"WAITING after ACQUIRED":        {acquired, waiting},
		"another token":                 {acquired, protocol.Acquired{Token: 42}},
		"a reply to nothing, holding":   {acquired, acquired},
		"a reply to nothing, queued":    {waiting, waiting},
		"a push and a reply to nothing": {waiting, acquired, acquired},
		"token 0":                       {protocol.Acquired{Token: 0}},
		"WAITING after a push":          {waiting, acquired, waiting},
	} {
		t.Run(name, func(t *testing.T) {
			s := connected(t, 10_000, 0)
			s.gets(0, frames...)
			s.lost(LossProtocolViolation)
		})
	}
	t.Run("an unknown byte", func(t *testing.T) {
		s := connected(t, 10_000, 0)
		s.receive(0, []byte{0x7f})
		s.lost(LossProtocolViolation)
	})
}

func TestAServerErrorEndsASession(t *testing.T) {
	for _, before := range [][]protocol.ServerFrame{nil, {waiting}, {acquired}} {
		s := connected(t, 10_000, 0)
		s.gets(0, append(before, protocol.Error{Code: 0x7e, Reason: "no"})...)
		s.lost(LossServerError)
		var server *ServerError
		if !errors.As(s.loss, &server) || server.Code != 0x7e || server.Temporary() {
			t.Fatalf("%v", s.loss)
		}
	}
}

func TestAConnectionThatEndsIsALoss(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.disconnected(ms(10), nil)
	s.lost(LossClosed)
}

func TestTheClockComesBeforeTheConnection(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.disconnected(ms(8000), errors.New("reset"))
	s.lost(LossTimeout)
}

func TestATimeThatStepsBackCountsAsStandingStill(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(0, acquired)
	s.sends(2500, protocol.Heartbeat{})
	s.gets(1000, acquired)
	s.is(holding)
	s.givesUpAt(2500+8000, LossTimeout)
}

// B38: cut at every position, with the same result.
func TestB38_FramesNotPackets(t *testing.T) {
	stream := bytesOf(waiting, acquired, protocol.Error{Code: 1, Reason: "stop"})
	for cut := 0; cut <= len(stream); cut++ {
		s := connected(t, 10_000, 0)
		s.receive(0, stream[:cut])
		s.receive(0, stream[cut:])
		s.lost(LossServerError)
		if s.token != 41 || s.endedFrom != holding {
			t.Fatalf("cut at %d: token %d", cut, s.token)
		}
	}
	s := connected(t, 10_000, 0)
	for i := range stream {
		s.receive(0, stream[i:i+1])
	}
	s.lost(LossServerError)
}

func TestB29_B45_HeartbeatIntervals(t *testing.T) {
	const none = -1
	for _, c := range []struct{ lease, roundTrip, want time.Duration }{
		{10 * time.Second, 0, 2500 * time.Millisecond},
		{10 * time.Second, time.Second, 500 * time.Millisecond},
		{10 * time.Second, 1249 * time.Millisecond, 100 * time.Millisecond},
		{10 * time.Second, 1250 * time.Millisecond, none},
		{400 * time.Millisecond, 0, 100 * time.Millisecond},
		{400 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond},
		{401 * time.Millisecond, 49 * time.Millisecond, 100 * time.Millisecond},
		{399 * time.Millisecond, 49 * time.Millisecond, 99750 * time.Microsecond},
		{100 * time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond},
		{100 * time.Millisecond, 20 * time.Millisecond, none},
		{20 * time.Millisecond, 0, 5 * time.Millisecond},
		{30 * time.Minute, 0, time.Minute},
		{MaxLease, time.Hour, time.Minute},
	} {
		got, ok := heartbeatInterval(c.lease, c.roundTrip)
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("lease %v, round trip %v: %v, want %v", c.lease, c.roundTrip, got, c.want)
		}
	}
}

func TestTheRoundTripIsSmoothed(t *testing.T) {
	s := connected(t, 10_000, 0)
	s.gets(100, acquired)
	s.sends(2300, protocol.Heartbeat{})
	s.gets(2800, acquired)
	// 0.2 * 500 + 0.8 * 100
	if s.roundTrip != 180*time.Millisecond {
		t.Fatalf("%v", s.roundTrip)
	}
	s.sends(2300+2500-360-1, nil)
	s.sends(2300+2500-360, protocol.Heartbeat{})
}

func TestB07_HoursOfPromptHeartbeats(t *testing.T) {
	s := connected(t, 1000, 0)
	s.gets(0, acquired)
	beats := 0
	for now := instant(0); now < ms(3*3600*1000); {
		at, ok := s.nextDeadline()
		if !ok {
			t.Fatalf("lost after %d beats: %v", beats, s.loss)
		}
		if at <= now && beats > 0 {
			t.Fatal("no progress")
		}
		now = at
		s.tick(now)
		if s.transmit(now, nil) != nil {
			beats++
			s.receive(now, bytesOf(acquired))
		}
	}
	if beats != 3*3600*4 {
		t.Fatalf("%d beats", beats)
	}
}

func TestB30_TheLongestLeaseOverflowsNothing(t *testing.T) {
	s := connected(t, 1<<32-1, 1<<63-1)
	s.gets(0, acquired)
	if got, want := s.givesUp(), instant(MaxLease*4/5); got != want {
		t.Fatalf("%d, want %d", got, want)
	}
	s.sends(60_000, protocol.Heartbeat{})
}

// world is a network and a server, seen from one client. The server's half is modelled by its one rule: it drops a session one lease after
// the arrival of its last frame. Frames of one direction arrive in order, each after any delay; at some instant each direction goes dark.
type world struct {
	random           *rand.Rand
	lease            time.Duration
	slowest          float64
	darkUp, darkDown instant
	// promotion is when the lock becomes this client's.
	promotion instant
	pushed    bool
	up        []instant
	down      []arrival
	lastUp    instant
	lastDown  instant
	lastSeen  instant
}

type arrival struct {
	at    instant
	bytes []byte
}

func (w *world) delay() time.Duration { return scaled(w.lease, w.random.Float64()*w.slowest) }

func (w *world) clientSends(now instant) {
	w.lastUp = later(w.lastUp, now.add(w.delay()))
	if w.lastUp < w.darkUp {
		w.up = append(w.up, w.lastUp)
	}
}

func (w *world) serverSends(now instant, frame protocol.ServerFrame) {
	w.lastDown = later(w.lastDown, now.add(w.delay()))
	if w.lastDown < w.darkDown {
		w.down = append(w.down, arrival{w.lastDown, bytesOf(frame)})
	}
}

func (w *world) expires() instant {
	if w.lastSeen < 0 {
		return farFuture
	}
	return w.lastSeen.add(w.lease)
}

// run lets the world run until the server drops the session, and says how long before that the client knew.
func (w *world) run() (margin time.Duration, beats int, err error) {
	s := newSession(0, claim{"jobs", w.lease, 0})
	w.lastSeen = -1
	now := instant(0)
	for rounds := 0; rounds < 100_000; rounds++ {
		if s.transmit(now, nil) != nil {
			beats++
			w.clientSends(now)
		}
		next := w.expires()
		deadline, alive := s.nextDeadline()
		if alive {
			next = earlier(next, deadline)
		}
		if len(w.up) > 0 {
			next = earlier(next, w.up[0])
		}
		if alive && len(w.down) > 0 {
			next = earlier(next, w.down[0].at)
		}
		if !w.pushed && w.lastSeen >= 0 && w.promotion > now {
			next = earlier(next, w.promotion)
		}
		now = later(now, next)
		switch {
		case now >= w.expires():
			if alive && now >= deadline {
				s.tick(now)
			}
			if s.standing != over || s.clock >= w.expires() {
				return 0, beats, fmt.Errorf("the server drops the session at %v, the client believes until %v", time.Duration(now), time.Duration(s.givesUp()))
			}
			return w.expires().since(s.clock), beats, nil
		case len(w.up) > 0 && w.up[0] <= now:
			w.up = w.up[1:]
			first := w.lastSeen < 0
			w.lastSeen = now
			switch {
			case now < w.promotion:
				w.serverSends(now, waiting)
			default:
				w.pushed = w.pushed || first
				if !w.pushed {
					w.pushed = true
					w.serverSends(now, acquired)
				}
				w.serverSends(now, acquired)
			}
		case !w.pushed && w.lastSeen >= 0 && now >= w.promotion:
			w.pushed = true
			w.serverSends(now, acquired)
		case alive && len(w.down) > 0 && w.down[0].at <= now:
			s.receive(now, w.down[0].bytes)
			w.down = w.down[1:]
		default:
			s.tick(now)
			if !alive && w.lastSeen < 0 && len(w.up) == 0 {
				// The server never heard of it.
				return w.lease, beats, nil
			}
		}
		if s.standing == over && s.loss.Reason != LossTimeout {
			return 0, beats, fmt.Errorf("lost by %v", s.loss)
		}
	}
	return 0, beats, errors.New("the world does not end")
}

// B01, B02 and B02b for random delays: the client gives up before the server does.
func TestB01_B02_TheClientKnowsFirst(t *testing.T) {
	seed := time.Now().UnixNano()
	worlds := 5000
	if text := os.Getenv("MONOLOCK_SEED"); text != "" {
		given, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed, worlds = given, 1
	}
	most := 0
	for ; worlds > 0; worlds-- {
		random := rand.New(rand.NewSource(seed))
		lease := time.Duration(20+random.Int63n(10_000)) * time.Millisecond
		w := &world{
			random:   random,
			lease:    lease,
			slowest:  []float64{0.01, 0.1, 0.3, 0.6}[random.Intn(4)],
			darkUp:   instant(random.Float64() * 20 * float64(lease)),
			darkDown: instant(random.Float64() * 20 * float64(lease)),
		}
		if random.Intn(2) == 0 {
			w.promotion = instant(random.Float64() * 10 * float64(lease))
		}
		_, beats, err := w.run()
		if err != nil {
			t.Fatalf("seed %d: %v\nrepeat with MONOLOCK_SEED=%d go test -run %s .", seed, err, seed, t.Name())
		}
		most = max(most, beats)
		seed++
	}
	if os.Getenv("MONOLOCK_SEED") == "" && most < 20 {
		t.Fatalf("no world lasted: %d beats at most", most)
	}
}
