// Package protocol is the wire format of monolock, version 1: frames to bytes and bytes to frames.
//
// It is pure and knows nothing of connections or rules: the client is built on it, and so can be a test server or a client of your own.
// Decoding is incremental: it looks at the bytes that have come and never asks for one that a frame does not need.
package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// Version is the protocol version that this package speaks.
const Version = 1

const (
	// MaxNameBytes is the length of the longest lock name.
	MaxNameBytes = 255
	// MaxReasonBytes is the length of the longest reason of an [Error].
	MaxReasonBytes = 255
	// MaxClientFrameBytes is the length of the longest frame that a client sends: an [Acquire] with the longest name.
	MaxClientFrameBytes = 8 + MaxNameBytes
	// MaxServerFrameBytes is the length of the longest frame that a server sends: an [Error] with the longest reason.
	MaxServerFrameBytes = 3 + MaxReasonBytes
)

const (
	typeAcquire   = 0x01
	typeHeartbeat = 0x02
	typeWaiting   = 0x11
	typeAcquired  = 0x12
	typeError     = 0x13
)

// ErrorCode says why a server ends a session. Programs go by its range ([ErrorCode.IsClientError]), never by a list of codes.
type ErrorCode uint8

// The codes that are known. Others may come; their range says what to do.
const (
	CodeShuttingDown       ErrorCode = 0x01
	CodeClosedByAdmin      ErrorCode = 0x02
	CodeLimitReached       ErrorCode = 0x03
	CodeUnsupportedVersion ErrorCode = 0x10
	CodeAcquireFirst       ErrorCode = 0x11
	CodeDuplicateAcquire   ErrorCode = 0x12
	CodeUnknownMessage     ErrorCode = 0x13
	CodeEmptyName          ErrorCode = 0x14
	CodeNameTooLong        ErrorCode = 0x15
	CodeNameNotUTF8        ErrorCode = 0x16
	CodeLeaseNotPositive   ErrorCode = 0x17
	CodeNotAuthorized      ErrorCode = 0x18
	CodeLeaseTooLong       ErrorCode = 0x19
)

const firstClientError ErrorCode = 0x10

// IsClientError tells the two ranges apart. From 0x10 up the client's bytes are at fault, and the same bytes fail again. Below, it is a
// condition of the server: reconnect later.
func (c ErrorCode) IsClientError() bool { return c >= firstClientError }

// String gives the code as it is written everywhere: in hexadecimal.
func (c ErrorCode) String() string { return fmt.Sprintf("0x%02x", uint8(c)) }

// ClientFrame is a frame from a client to a server: [Acquire] or [Heartbeat].
type ClientFrame interface {
	// Append adds the frame's bytes to dst.
	Append(dst []byte) []byte
	clientFrame()
}

// ServerFrame is a frame from a server to a client: [Waiting], [Acquired] or [Error].
type ServerFrame interface {
	// Append adds the frame's bytes to dst.
	Append(dst []byte) []byte
	serverFrame()
}

// Acquire claims a lock. It comes first on a connection, and once.
type Acquire struct {
	// LeaseMS is how long the session may be silent, in milliseconds; a server refuses 0.
	LeaseMS uint32
	// Name is the lock: 1 to [MaxNameBytes] bytes of UTF-8, taken raw.
	Name string
}

// Heartbeat says that the session is alive. The server answers each with the session's present state.
type Heartbeat struct{}

// Waiting says that the session is in the queue.
type Waiting struct{}

// Acquired says that the session owns the lock.
type Acquired struct {
	// Token is the grant's fencing token, never 0.
	Token uint64
}

// Error is a server's last frame on a connection.
type Error struct {
	Code ErrorCode
	// Reason is for people. It comes from the network: escape it before it is printed.
	Reason string
}

// Append adds the frame's bytes to dst. It panics if the name's length does not fit its field, 65535.
func (f Acquire) Append(dst []byte) []byte {
	if len(f.Name) > 0xffff {
		panic("protocol: the name does not fit the frame")
	}
	dst = append(dst, typeAcquire, Version)
	dst = binary.BigEndian.AppendUint32(dst, f.LeaseMS)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(f.Name)))
	return append(dst, f.Name...)
}

// Append adds the frame's bytes to dst.
func (Heartbeat) Append(dst []byte) []byte { return append(dst, typeHeartbeat) }

// Append adds the frame's bytes to dst.
func (Waiting) Append(dst []byte) []byte { return append(dst, typeWaiting) }

// Append adds the frame's bytes to dst.
func (f Acquired) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(append(dst, typeAcquired), f.Token)
}

// Append adds the frame's bytes to dst. It panics if the reason is longer than [MaxReasonBytes].
func (f Error) Append(dst []byte) []byte {
	if len(f.Reason) > MaxReasonBytes {
		panic("protocol: the reason does not fit the frame")
	}
	dst = append(dst, typeError, uint8(f.Code), uint8(len(f.Reason)))
	return append(dst, f.Reason...)
}

func (Acquire) clientFrame()   {}
func (Heartbeat) clientFrame() {}
func (Waiting) serverFrame()   {}
func (Acquired) serverFrame()  {}
func (Error) serverFrame()     {}

// UnknownFrameError says that a frame begins with a byte that this version does not know.
type UnknownFrameError struct {
	Type byte
}

func (e *UnknownFrameError) Error() string {
	return fmt.Sprintf("unknown message type: 0x%02x", e.Type)
}

// ErrTokenZero says that an ACQUIRED carries the token 0, which no grant has.
var ErrTokenZero = errors.New("token 0")

// DecodeServer decodes the frame at the start of b and says how many bytes it takes. 0 bytes and no error: more must come first.
func DecodeServer(b []byte) (frame ServerFrame, size int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	switch b[0] {
	case typeWaiting:
		return Waiting{}, 1, nil
	case typeAcquired:
		if len(b) < 9 {
			return nil, 0, nil
		}
		token := binary.BigEndian.Uint64(b[1:9])
		if token == 0 {
			return nil, 0, ErrTokenZero
		}
		return Acquired{Token: token}, 9, nil
	case typeError:
		if len(b) < 3 || len(b) < 3+int(b[2]) {
			return nil, 0, nil
		}
		size = 3 + int(b[2])
		reason := strings.ToValidUTF8(string(b[3:size]), "\uFFFD")
		return Error{Code: ErrorCode(b[1]), Reason: reason}, size, nil
	default:
		return nil, 0, &UnknownFrameError{Type: b[0]}
	}
}

// DecodeClient decodes the frame at the start of b and says how many bytes it takes. 0 bytes and no error: more must come first.
//
// It reads what a well-behaved client sends, for test servers: of the version it checks that it is [Version], of name and lease nothing.
func DecodeClient(b []byte) (frame ClientFrame, size int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	switch b[0] {
	case typeHeartbeat:
		return Heartbeat{}, 1, nil
	case typeAcquire:
		if len(b) >= 2 && b[1] != Version {
			return nil, 0, fmt.Errorf("unsupported protocol version: %d", b[1])
		}
		if len(b) < 8 || len(b) < 8+int(binary.BigEndian.Uint16(b[6:8])) {
			return nil, 0, nil
		}
		size = 8 + int(binary.BigEndian.Uint16(b[6:8]))
		return Acquire{LeaseMS: binary.BigEndian.Uint32(b[2:6]), Name: string(b[8:size])}, size, nil
	default:
		return nil, 0, &UnknownFrameError{Type: b[0]}
	}
}
