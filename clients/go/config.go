package monolock

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/monolock-dev/monolock-go/protocol"
)

// MinLease is the shortest lease that a client takes on. Timers fire up to 10 ms late, and a heartbeat that goes out after a quarter of the
// lease plus that must still have its answer by 0.8 leases.
const MinLease = 20 * time.Millisecond

// MaxLease is the longest lease that the protocol can say: 2^32-1 ms.
const MaxLease = (1<<32 - 1) * time.Millisecond

const defaultConnectTimeout = 5 * time.Second

// Config says where the servers are, and how patient to be.
type Config struct {
	// Address is the server's, host:port. Names are resolved anew at each attempt.
	Address string
	// Addresses are further addresses, tried in this order after Address.
	Addresses []string
	// Dialer makes the connections. Nil is a plain [net.Dialer].
	//
	// With a *net.Dialer or a *tls.Dialer the client resolves names itself, so that it can move on from an address that accepts and stays mute.
	// Any other Dialer is handed the address as it stands, and its own choice among several is final.
	Dialer Dialer
	// TLS turns on TLS. Where ServerName is empty, it is the host of the address. Client certificates are for mutual TLS.
	TLS *tls.Config
	// ConnectTimeout is how long one attempt may take from the first look-up to the server's first answer, all addresses together. 0 is 5
	// seconds. Each address has its share of what is left, so that one which is dead or mute leaves time for the next.
	ConnectTimeout time.Duration
	// MaxHold makes a hold that lasts longer count as lost. 0: a hold lasts as long as it is confirmed.
	MaxHold time.Duration
}

// Dialer makes connections. *[net.Dialer] and *[tls.Dialer] are Dialers. It must heed its context.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// DialerFunc is a function that is a [Dialer].
type DialerFunc func(ctx context.Context, network, address string) (net.Conn, error)

// DialContext calls f.
func (f DialerFunc) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return f(ctx, network, address)
}

// settings is a Config that has been understood.
type settings struct {
	servers        []string
	transport      transport
	connectTimeout time.Duration
	maxHold        time.Duration
	clock          clock
}

func (c Config) settings() (*settings, *Error) {
	s := &settings{connectTimeout: c.ConnectTimeout, maxHold: c.MaxHold, clock: system}
	if c.Address != "" {
		s.servers = append(s.servers, c.Address)
	}
	s.servers = append(s.servers, c.Addresses...)
	if s.connectTimeout == 0 {
		s.connectTimeout = defaultConnectTimeout
	}
	var err *Error
	if s.transport, err = c.transport(); err != nil {
		return nil, err
	}
	if len(s.servers) == 0 {
		return nil, errInvalid("no server address was given")
	}
	for _, server := range s.servers {
		if s.transport.resolver != nil && !isHostPort(server) {
			return nil, errInvalid("server address %q is not of the form host:port", server)
		}
	}
	if s.connectTimeout < 0 {
		return nil, errInvalid("ConnectTimeout must not be negative")
	}
	if s.maxHold < 0 {
		return nil, errInvalid("MaxHold must not be negative")
	}
	return s, nil
}

func (c Config) transport() (transport, *Error) {
	switch dialer := c.Dialer.(type) {
	case nil:
		// No keep-alive of the kernel ends a session early: the lease decides.
		return transport{&net.Dialer{KeepAlive: -1}, net.DefaultResolver, c.TLS}, nil
	case *net.Dialer:
		return transport{dialer, resolverOf(dialer), c.TLS}, nil
	case *tls.Dialer:
		if c.TLS != nil {
			return transport{}, errInvalid("TLS is configured twice: in Config.TLS and in the *tls.Dialer")
		}
		inner, config := dialer.NetDialer, dialer.Config
		if inner == nil {
			inner = &net.Dialer{KeepAlive: -1}
		}
		if config == nil {
			config = &tls.Config{}
		}
		return transport{inner, resolverOf(inner), config}, nil
	default:
		return transport{dialer, nil, c.TLS}, nil
	}
}

func resolverOf(dialer *net.Dialer) *net.Resolver {
	if dialer.Resolver != nil {
		return dialer.Resolver
	}
	return net.DefaultResolver
}

func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number != 0
}

// claim checks what is asked for, before anything is dialled.
func (s *settings) claim(name string, lease time.Duration) (claim, *Error) {
	switch {
	case name == "":
		return claim{}, errInvalid("the lock name is empty")
	case len(name) > protocol.MaxNameBytes:
		return claim{}, errInvalid("the lock name has %d bytes, %d are allowed", len(name), protocol.MaxNameBytes)
	case !utf8.ValidString(name):
		return claim{}, errInvalid("the lock name is not valid UTF-8")
	case lease <= 0:
		return claim{}, errInvalid("the lease must be positive, and is %v", lease)
	case lease%time.Millisecond != 0:
		return claim{}, errInvalid("a lease of %v is not a whole number of milliseconds", lease)
	case lease < MinLease:
		return claim{}, errInvalid("a lease of %v is too short to be kept: at least %v are needed", lease, MinLease)
	case lease > MaxLease:
		return claim{}, errInvalid("a lease of %v is longer than the longest, %v", lease, MaxLease)
	}
	return claim{name: name, lease: lease, maxHold: s.maxHold}, nil
}
