package monolock

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// dial connects to the first address whose server takes the claim in, within the connect timeout.
//
// One address is dead, another accepts and stays mute, a third one serves: every candidate gets an even share of what is left for those that
// are still to come, so nobody's silence uses up the time of the next.
func (s *settings) dial(ctx context.Context, c claim) (*connection, error) {
	deadline := s.clock.now().add(s.connectTimeout)
	var failures []attempt
	for i, server := range s.servers {
		budget := share(deadline.since(s.clock.now()), len(s.servers)-i)
		until := s.clock.now().add(budget)
		candidates, err := s.lookUp(ctx, budget, server)
		if err != nil {
			failures = append(failures, attempt{server, err})
		}
		for j, candidate := range candidates {
			budget := share(until.since(s.clock.now()), len(candidates)-j)
			k, err := s.ask(ctx, budget, candidate, c)
			if err == nil {
				return k, nil
			}
			var refused *ServerError
			if errors.As(err, &refused) && !refused.Temporary() {
				return nil, errRefused(c.name, candidate.address, refused)
			}
			failures = append(failures, attempt{candidate.address, err})
		}
		if interrupted(ctx) {
			return nil, errInterrupted(ctx, c.name)
		}
	}
	return nil, errUnreachable(c.name, failures)
}

// candidate is one address that is worth a connection.
type candidate struct {
	address string
	// host is whom the certificate must name.
	host string
}

func (s *settings) lookUp(ctx context.Context, budget time.Duration, server string) ([]candidate, error) {
	host, port, err := net.SplitHostPort(server)
	if s.transport.resolver == nil {
		// The dialer takes what it is given.
		return []candidate{{server, host}}, nil
	}
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	addresses, err := s.transport.resolver.LookupNetIP(limited, "ip", host)
	if err != nil {
		return nil, inTime(limited, budget, err)
	}
	candidates := make([]candidate, len(addresses))
	for i, address := range addresses {
		candidates[i] = candidate{net.JoinHostPort(address.Unmap().String(), port), host}
	}
	return candidates, nil
}

// ask connects to one address and waits for the first answer.
func (s *settings) ask(ctx context.Context, budget time.Duration, to candidate, c claim) (*connection, error) {
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	conn, err := s.transport.connect(limited, to)
	if err != nil {
		return nil, inTime(limited, budget, err)
	}
	k := open(conn, s.clock, c)
	select {
	case <-k.answered:
	case <-limited.Done():
		k.hangUp()
		return nil, noTimeError{budget}
	}
	if loss := k.refused(); loss != nil {
		k.hangUp()
		return nil, refusal(loss)
	}
	return k, nil
}

// transport makes connections: bare ones, and TLS over them.
type transport struct {
	dialer Dialer
	// resolver is nil where the dialer resolves names by itself.
	resolver *net.Resolver
	tls      *tls.Config
}

func (t transport) connect(ctx context.Context, to candidate) (net.Conn, error) {
	conn, err := t.dialer.DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Where it fails, so does the first write.
		_ = tcp.SetNoDelay(true)
	}
	if t.tls == nil {
		return conn, nil
	}
	config := t.tls
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config = config.Clone()
		config.ServerName = to.host
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// share is what of remaining the next of so many candidates gets.
func share(remaining time.Duration, candidates int) time.Duration {
	return remaining / time.Duration(max(candidates, 1))
}

// inTime is err, unless the time was up. A timeout of another's making is not to be taken for one of the caller's context.
func inTime(ctx context.Context, budget time.Duration, err error) error {
	switch {
	case interrupted(ctx):
		return noTimeError{budget}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errors.New(err.Error())
	default:
		return err
	}
}

// interrupted says whether ctx has ended. The network may notice its deadline a moment before the context does.
func interrupted(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}
