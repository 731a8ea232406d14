package monolock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

// The kinds of failure, for errors.Is. They bear the same names in every monolock client, and none is found by reading text.
var (
	// ErrCancelled: the caller's context was cancelled before the lock was obtained. errors.Is finds the context's error too.
	ErrCancelled = errors.New("monolock: cancelled")
	// ErrWaitTimeout: the wait limit passed before the lock was obtained. It is [Client.WithWaitLimit]'s or the context's deadline;
	// errors.Is finds context.DeadlineExceeded where it was the context's.
	ErrWaitTimeout = errors.New("monolock: wait timeout")
	// ErrContended: the lock is held by another, and the call was not to wait.
	ErrContended = errors.New("monolock: contended")
	// ErrDenied: the server's access-control list refuses this lock (code 0x18).
	ErrDenied = errors.New("monolock: denied")
	// ErrLost: the place in the queue or the lock itself was lost. errors.As finds a [*LossError] with the reason.
	ErrLost = errors.New("monolock: lost")
	// ErrUnreachable: no server took the claim in: no connection, no answer in time, or a server condition (a code below 0x10).
	ErrUnreachable = errors.New("monolock: unreachable")
	// ErrInvalid: what was asked for is wrong and will be wrong again: found before dialling, or said by the server (a code from 0x10 up).
	ErrInvalid = errors.New("monolock: invalid")
)

// Kind is the kind of an [Error], by the name that every monolock client uses.
type Kind string

// The kinds. For each there is an error for errors.Is: [ErrCancelled] and so on.
const (
	KindCancelled   Kind = "cancelled"
	KindWaitTimeout Kind = "wait_timeout"
	KindContended   Kind = "contended"
	KindDenied      Kind = "denied"
	KindLost        Kind = "lost"
	KindUnreachable Kind = "unreachable"
	KindInvalid     Kind = "invalid"
)

var sentinels = map[Kind]error{
	KindCancelled:   ErrCancelled,
	KindWaitTimeout: ErrWaitTimeout,
	KindContended:   ErrContended,
	KindDenied:      ErrDenied,
	KindLost:        ErrLost,
	KindUnreachable: ErrUnreachable,
	KindInvalid:     ErrInvalid,
}

// Error is the error of every call of this package. What it came from is found with errors.Is and errors.As: the context's error, a
// [*ServerError], a [*LossError], the system's error of a failed connection.
type Error struct {
	kind    Kind
	message string
	causes  []error
}

// Kind says what kind of failure it is.
func (e *Error) Kind() Kind { return e.kind }

// Temporary says whether the same call may succeed later without anybody changing it. After a code from 0x10 up it never does: the same
// bytes fail again.
func (e *Error) Temporary() bool {
	switch e.kind {
	case KindUnreachable, KindContended, KindWaitTimeout:
		return true
	case KindLost:
		server := e.serverError()
		return !e.lostBy(LossMaxHold) && (server == nil || server.Temporary())
	default:
		return false
	}
}

// Is reports whether target is this error's kind.
func (e *Error) Is(target error) bool { return target == sentinels[e.kind] }

// Unwrap gives what the error came from.
func (e *Error) Unwrap() []error { return e.causes }

func (e *Error) Error() string { return "monolock: " + e.message }

func (e *Error) serverError() *ServerError {
	var server *ServerError
	errors.As(e, &server)
	return server
}

func (e *Error) lostBy(reason LossReason) bool {
	var loss *LossError
	return errors.As(e, &loss) && loss.Reason == reason
}

// worthAnotherAttempt says whether another attempt at obtaining the lock makes sense within the same call.
func (e *Error) worthAnotherAttempt() bool {
	return (e.kind == KindUnreachable || e.kind == KindLost) && e.Temporary()
}

// ServerError is what a server said before it closed a connection.
type ServerError struct {
	// Code says why. Go by its range: see [ServerError.Temporary].
	Code protocol.ErrorCode
	// Reason is for people. It comes from the network: Error escapes it, and so must whoever prints it.
	Reason string
}

// Temporary says whether it is a condition of the server (a code below 0x10), and so worth another attempt later. From 0x10 up the same
// request fails again.
func (e *ServerError) Temporary() bool { return !e.Code.IsClientError() }

func (e *ServerError) Error() string {
	return fmt.Sprintf("the server said %v: %s", e.Code, strconv.Quote(e.Reason))
}

// LossReason is how a lock or a place in the queue was lost, by the name that every monolock client uses.
type LossReason string

// The ways of losing.
const (
	// LossTimeout: nothing was confirmed for 0.8 leases, counted from the sending of the last confirmed frame.
	LossTimeout LossReason = "timeout"
	// LossClosed: the connection ended.
	LossClosed LossReason = "closed"
	// LossServerError: the server sent an error. errors.As finds the [*ServerError].
	LossServerError LossReason = "server_error"
	// LossProtocolViolation: the server sent what the protocol forbids.
	LossProtocolViolation LossReason = "protocol_violation"
	// LossMaxHold: the hold lasted as long as [Config.MaxHold] allows.
	LossMaxHold LossReason = "max_hold"
)

// LossError says how a lock or a place in the queue was lost. It is found with errors.As in an error of kind [ErrLost].
type LossError struct {
	Reason LossReason
	// Err has more: a [*ServerError], or the system's error. Often nil.
	Err error
}

func (e *LossError) Error() string {
	switch {
	case e.Reason == LossTimeout:
		return "the server confirmed nothing for 0.8 of the lease"
	case e.Reason == LossMaxHold:
		return "the hold lasted longer than MaxHold"
	case e.Reason == LossProtocolViolation:
		return fmt.Sprintf("the server broke the protocol: %v", e.Err)
	case e.Reason == LossServerError:
		return e.Err.Error()
	case e.Err == nil:
		return "the server closed the connection"
	default:
		return fmt.Sprintf("the connection failed: %v", e.Err)
	}
}

// Unwrap gives what the loss came from.
func (e *LossError) Unwrap() error { return e.Err }

func errInvalid(format string, arguments ...any) *Error {
	return &Error{kind: KindInvalid, message: fmt.Sprintf(format, arguments...)}
}

func errCancelled(name string, causes ...error) *Error {
	return &Error{kind: KindCancelled, message: fmt.Sprintf("cancelled while acquiring lock %q", name), causes: causes}
}

func errWaitTimeout(name string, causes ...error) *Error {
	return &Error{kind: KindWaitTimeout, message: fmt.Sprintf("lock %q was not obtained in time", name), causes: causes}
}

// errInterrupted: ctx has ended, or a wait limit on it has passed.
func errInterrupted(ctx context.Context, name string) *Error {
	switch cause := context.Cause(ctx); {
	case cause == errWaitLimit:
		return errWaitTimeout(name)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errWaitTimeout(name, ctx.Err(), cause)
	default:
		return errCancelled(name, ctx.Err(), cause)
	}
}

func errContended(name string) *Error {
	return &Error{kind: KindContended, message: fmt.Sprintf("lock %q is held by another", name)}
}

func errLost(name string, loss *LossError) *Error {
	return &Error{kind: KindLost, message: fmt.Sprintf("lost lock %q: %v", name, loss), causes: []error{loss}}
}

// errRefused: a server said that the claim is wrong, so no other will take it either.
func errRefused(name, address string, server *ServerError) *Error {
	kind := KindInvalid
	if server.Code == protocol.CodeNotAuthorized {
		kind = KindDenied
	}
	return &Error{kind: kind, message: fmt.Sprintf("lock %q at %s: %v", name, address, server), causes: []error{server}}
}

// attempt is one address that was tried, and why it failed.
type attempt struct {
	address string
	err     error
}

func errUnreachable(name string, attempts []attempt) *Error {
	var message strings.Builder
	fmt.Fprintf(&message, "no server took the claim on lock %q in", name)
	separator := ": "
	// The last comes first: of several servers that answered, the last one's code counts.
	var causes []error
	for _, attempt := range attempts {
		fmt.Fprintf(&message, "%s%s: %v", separator, attempt.address, attempt.err)
		separator = "; "
		causes = append([]error{attempt.err}, causes...)
	}
	return &Error{kind: KindUnreachable, message: message.String(), causes: causes}
}

// refusal is why a server did not take a claim in. It is no [LossError]: nothing was had that could be lost.
func refusal(loss *LossError) error {
	var server *ServerError
	if errors.As(loss, &server) {
		return server
	}
	if loss.Err != nil {
		return failure{text: loss.Error(), cause: loss.Err}
	}
	return errors.New(loss.Error())
}

// failure is a text of its own over another error.
type failure struct {
	text  string
	cause error
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() error { return f.cause }

// noTimeError hides the timeout that it stands for: errors.Is(err, context.DeadlineExceeded) is about the caller's context only.
type noTimeError struct{ share time.Duration }

func (e noTimeError) Error() string {
	return fmt.Sprintf("no answer within %v", e.share.Round(time.Millisecond))
}
