// The conformance-driver lets the conformance suite drive this client: operations come as JSON objects on standard input, one a line, and
// events go out on standard output likewise. It uses the client's public API alone.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	monolock "github.com/monolock-dev/monolock-go"
)

func main() {
	d := &driver{jobs: make(map[int64]*job), clients: make(map[string]*monolock.Client), out: json.NewEncoder(os.Stdout)}
	d.out.SetEscapeHTML(false)
	d.emit(event{"event": "ready", "client": "monolock-go", "version": "0.1.0"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fmt.Fprintf(os.Stderr, "conformance-driver: no operation: %v: %s\n", err, lines.Bytes())
			os.Exit(2)
		}
		if op.Op == "exit" {
			break
		}
		d.handle(op)
	}
	d.exit()
}

type operation struct {
	Op               string          `json:"op"`
	ID               int64           `json:"id"`
	Addresses        []string        `json:"addresses"`
	Name             string          `json:"name"`
	LeaseMS          json.RawMessage `json:"lease_ms"`
	Mode             string          `json:"mode"`
	WaitMS           *int64          `json:"wait_ms"`
	ConnectTimeoutMS *int64          `json:"connect_timeout_ms"`
	MaxHoldMS        *int64          `json:"max_hold_ms"`
	TLS              *tlsFiles       `json:"tls"`
	Client           string          `json:"client"`
	Result           string          `json:"result"`
}

type tlsFiles struct {
	CA         string `json:"ca"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"server_name"`
}

type event map[string]any

// job is one acquire or do.
type job struct {
	cancel context.CancelFunc
	// finish tells the work of a do how to end.
	finish chan error
	// released is closed when an acquired lock has been released.
	released chan struct{}
	release  sync.Once
	// ended is closed when nothing runs any more for this job.
	ended chan struct{}

	mu   sync.Mutex
	lock *monolock.Lock
}

type driver struct {
	mu      sync.Mutex
	out     *json.Encoder
	jobs    map[int64]*job
	clients map[string]*monolock.Client
}

func (d *driver) emit(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.out.Encode(e); err != nil {
		os.Exit(1)
	}
}

func (d *driver) handle(op operation) {
	switch op.Op {
	case "acquire":
		d.start(op, d.acquire)
	case "do":
		d.start(op, d.do)
	case "release":
		if j := d.jobs[op.ID]; j != nil {
			j.letGo()
		}
		d.emit(event{"event": "released", "id": op.ID})
	case "is_held":
		j := d.jobs[op.ID]
		d.emit(event{"event": "is_held", "id": op.ID, "held": j != nil && j.held()})
	case "cancel":
		if j := d.jobs[op.ID]; j != nil {
			j.cancel()
		}
	case "finish":
		if j := d.jobs[op.ID]; j != nil {
			var result error
			if op.Result == "fail" {
				result = errWorkFailed
			}
			select {
			case j.finish <- result:
			default:
			}
		}
	case "block":
		// There is no loop to block.
		d.emit(event{"event": "unblocked"})
	default:
		fmt.Fprintf(os.Stderr, "conformance-driver: unknown operation %q\n", op.Op)
		os.Exit(2)
	}
}

var errWorkFailed = errors.New("the work failed")

func (d *driver) start(op operation, run func(context.Context, operation, *job, *monolock.Client, time.Duration)) {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{cancel: cancel, finish: make(chan error, 1), released: make(chan struct{}), ended: make(chan struct{})}
	d.jobs[op.ID] = j
	lease, client, err := d.prepare(op)
	go func() {
		defer close(j.ended)
		if err != nil {
			fmt.Fprintf(os.Stderr, "conformance-driver: %v\n", err)
			if op.Op == "do" {
				d.emit(event{"event": "done", "id": op.ID, "outcome": "error", "kind": monolock.KindInvalid, "work_failed": false, "lost": nil, "code": nil})
			} else {
				d.emit(event{"event": "error", "id": op.ID, "kind": monolock.KindInvalid, "code": nil})
			}
			return
		}
		run(ctx, op, j, client, lease)
	}()
}

func (d *driver) prepare(op operation) (time.Duration, *monolock.Client, error) {
	lease, err := duration(op.LeaseMS)
	if err != nil {
		return 0, nil, err
	}
	client, err := d.client(op)
	if err != nil {
		return 0, nil, err
	}
	if op.WaitMS != nil {
		client = client.WithWaitLimit(time.Duration(*op.WaitMS) * time.Millisecond)
	}
	return lease, client, nil
}

// duration is what the API takes; not every number of milliseconds can be one.
func duration(ms json.RawMessage) (time.Duration, error) {
	text := string(ms)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || math.Abs(number) >= (1<<63)/1e6 {
		return 0, fmt.Errorf("%s ms is no time.Duration", text)
	}
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(whole) * time.Millisecond, nil
	}
	return time.Duration(number * 1e6), nil
}

func (d *driver) client(op operation) (*monolock.Client, error) {
	if client := d.clients[op.Client]; op.Client != "" && client != nil {
		return client, nil
	}
	config := monolock.Config{Addresses: op.Addresses}
	if op.ConnectTimeoutMS != nil {
		config.ConnectTimeout = time.Duration(*op.ConnectTimeoutMS) * time.Millisecond
	}
	if op.MaxHoldMS != nil {
		config.MaxHold = time.Duration(*op.MaxHoldMS) * time.Millisecond
	}
	if op.TLS != nil {
		secured, err := op.TLS.config()
		if err != nil {
			return nil, err
		}
		config.TLS = secured
	}
	client := monolock.New(config)
	if op.Client != "" {
		d.clients[op.Client] = client
	}
	return client, nil
}

func (f *tlsFiles) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: no certificate", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (d *driver) acquire(ctx context.Context, op operation, j *job, client *monolock.Client, lease time.Duration) {
	obtain := client.Acquire
	switch op.Mode {
	case "try":
		obtain = client.TryAcquire
	case "retry":
		obtain = client.AcquireRetry
	}
	lock, err := obtain(ctx, op.Name, lease)
	if err != nil {
		kind, _, code := describe(err)
		d.emit(event{"event": "error", "id": op.ID, "kind": kind, "code": code})
		return
	}
	j.mu.Lock()
	j.lock = lock
	j.mu.Unlock()
	d.emit(event{"event": "acquired", "id": op.ID, "token": strconv.FormatUint(lock.Token(), 10)})
	select {
	case <-j.released:
		lock.Release()
	case <-lock.Lost():
		_, reason, code := describe(lock.Err())
		d.emit(event{"event": "lost", "id": op.ID, "reason": reason, "code": code})
		<-j.released
	}
}

func (d *driver) do(ctx context.Context, op operation, j *job, client *monolock.Client, lease time.Duration) {
	run := client.Do
	switch op.Mode {
	case "try":
		run = client.TryDo
	case "retry":
		run = client.DoRetry
	}
	workFailed := false
	err := run(ctx, op.Name, lease, func(ctx context.Context, token uint64) error {
		d.emit(event{"event": "started", "id": op.ID, "token": strconv.FormatUint(token, 10)})
		var result error
		select {
		case result = <-j.finish:
		case <-ctx.Done():
			d.emit(event{"event": "stop_requested", "id": op.ID})
			result = <-j.finish
		}
		workFailed = result != nil
		return result
	})
	if err == nil {
		d.emit(event{"event": "done", "id": op.ID, "outcome": "ok"})
		return
	}
	kind, reason, code := describe(err)
	d.emit(event{
		"event": "done", "id": op.ID, "outcome": "error", "kind": kind, "work_failed": workFailed, "lost": reason, "code": code,
	})
}

// describe takes an error apart; what it does not have is nil.
func describe(err error) (kind, reason, code any) {
	var failed *monolock.Error
	if errors.As(err, &failed) {
		kind = failed.Kind()
	}
	var loss *monolock.LossError
	if errors.As(err, &loss) {
		reason = loss.Reason
	}
	var server *monolock.ServerError
	if errors.As(err, &server) {
		code = int(server.Code)
	}
	return kind, reason, code
}

func (j *job) held() bool {
	j.mu.Lock()
	lock := j.lock
	j.mu.Unlock()
	return lock != nil && lock.Held()
}

// letGo releases the lock, if there is one, and returns when it is released.
func (j *job) letGo() {
	j.mu.Lock()
	lock := j.lock
	j.mu.Unlock()
	j.release.Do(func() { close(j.released) })
	if lock != nil {
		lock.Release()
	}
}

func (d *driver) exit() {
	for _, j := range d.jobs {
		j.cancel()
		j.letGo()
		select {
		case j.finish <- nil:
		default:
		}
	}
	for _, j := range d.jobs {
		<-j.ended
	}
}
