package monolock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	monolock "github.com/monolock-dev/monolock-go"
	"github.com/monolock-dev/monolock-go/internal/testserver"
)

// Against the real server.

// patience is how long a test waits for what must come. Only a failing test waits so long.
const patience = time.Minute

func client(address string) *monolock.Client {
	return monolock.New(monolock.Config{Address: address, ConnectTimeout: patience})
}

func start(t *testing.T, listen string) *testserver.Server {
	t.Helper()
	s, err := testserver.Start(listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func TestTwoClientsAndAPush(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	first, err := client(server()).Acquire(ctx, t.Name(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	second := client(server())
	if _, err := second.TryAcquire(ctx, t.Name(), time.Minute); !errors.Is(err, monolock.ErrContended) {
		t.Fatal(err)
	}
	promoted := make(chan error, 1)
	go func() {
		promoted <- second.Do(ctx, t.Name(), time.Minute, func(_ context.Context, token uint64) error {
			if token <= first.Token() {
				return fmt.Errorf("token %d after %d", token, first.Token())
			}
			return nil
		})
	}()
	first.Release()
	if err := <-promoted; err != nil {
		t.Fatal(err)
	}
}

func TestAHoldOutlastsItsLease(t *testing.T) {
	t.Parallel()
	lock, err := client(server()).AcquireRetry(context.Background(), t.Name(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	select {
	case <-lock.Lost():
		t.Fatal(lock.Err())
	case <-time.After(11 * time.Second):
	}
	if !lock.Held() {
		t.Fatal(lock.Err())
	}
}

// The network stops under a holder: all sockets stay open, and nothing arrives. It has lost the lock before the next one has it.
func TestB01_TheNetworkStopsUnderAHolder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	network := newNetwork(t, server())
	// The lease is short, since the test waits for its end; a slow first answer may miss it.
	holder, err := client(network.address).AcquireRetry(ctx, t.Name(), 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Release()
	type turn struct {
		token          uint64
		holderBelieved bool
		err            error
	}
	next := make(chan turn, 1)
	go func() {
		lock, err := client(server()).Acquire(ctx, t.Name(), time.Minute)
		if err != nil {
			next <- turn{err: err}
			return
		}
		next <- turn{token: lock.Token(), holderBelieved: holder.Held()}
		lock.Release()
	}()
	network.goDark()
	granted := <-next
	if granted.err != nil {
		t.Fatal(granted.err)
	}
	if granted.holderBelieved {
		t.Fatal("two clients believe at once")
	}
	if granted.token <= holder.Token() {
		t.Fatalf("token %d after %d", granted.token, holder.Token())
	}
	<-holder.Lost()
	var loss *monolock.LossError
	if !errors.As(holder.Err(), &loss) || loss.Reason != monolock.LossTimeout {
		t.Fatal(holder.Err())
	}
}

// A network between clients and a server.
type network struct {
	address string
	dark    atomic.Bool
}

func newNetwork(t *testing.T, server string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	n := &network{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				return
			}
			t.Cleanup(func() { client.Close(); upstream.Close() })
			go n.carry(upstream, client)
			go n.carry(client, upstream)
		}
	}()
	return n
}

func (n *network) goDark() { n.dark.Store(true) }

// carry passes bytes on, and swallows them, the end of the stream too, once the network is dark.
func (n *network) carry(to, from net.Conn) {
	bytes := make([]byte, 512)
	for {
		read, err := from.Read(bytes)
		if n.dark.Load() {
			if err != nil {
				return
			}
			continue
		}
		if read > 0 {
			to.Write(bytes[:read])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// A waiter leaves in the very moment of its promotion: it has the lock and releases it, or it never had it. The next one is promoted.
func TestB18_LeavingInTheMomentOfThePromotion(t *testing.T) {
	client := client(server())
	had := 0
	leaves := func(round int) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		holder, err := client.Acquire(ctx, t.Name(), time.Minute)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		waiting, leave := context.WithCancel(ctx)
		left := make(chan error, 1)
		go func() {
			lock, err := client.Acquire(waiting, t.Name(), time.Minute)
			if err == nil {
				had++
				lock.Release()
			}
			left <- err
		}()
		for client.Claims(t.Name()) < 2 && ctx.Err() == nil {
			time.Sleep(10 * time.Microsecond)
		}
		go leave()
		holder.Release()
		if err := <-left; err != nil && !errors.Is(err, monolock.ErrCancelled) {
			t.Fatal(err)
		}
		if claims := client.Claims(t.Name()); claims != 0 {
			t.Fatalf("%d claims are open", claims)
		}
	}
	for round := 0; round < 500; round++ {
		leaves(round)
	}
	t.Logf("had the lock %d times of 500", had)
}

func TestTheServerRestartsUnderAWaiter(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	client := client(s.Address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	holder, err := client.Acquire(ctx, "jobs", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Release()
	runs := 0
	done := make(chan error, 1)
	go func() {
		done <- client.DoRetry(ctx, "jobs", time.Minute, func(ctx context.Context, _ uint64) error {
			runs++
			return ctx.Err()
		})
	}()
	for client.Claims("jobs") < 2 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	s.Stop()
	<-holder.Lost()
	var said *monolock.ServerError
	if !errors.As(holder.Err(), &said) || said.Code != 0x01 || !said.Temporary() {
		t.Fatal(holder.Err())
	}
	start(t, s.Address)
	if err := <-done; err != nil || runs != 1 {
		t.Fatalf("%v, %d runs", err, runs)
	}
}

func TestANameOf300Bytes(t *testing.T) {
	client := client(server())
	_, err := client.Acquire(context.Background(), strings.Repeat("x", 300), time.Minute)
	if !errors.Is(err, monolock.ErrInvalid) {
		t.Fatal(err)
	}
	lock, err := client.Acquire(context.Background(), strings.Repeat("x", 255), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	lock.Release()
}

// unhurried is a sample as it stands, but for the server's address and two limits that a slow machine keeps as well.
func unhurried(sample, address string) string {
	return strings.NewReplacer(
		`"127.0.0.1:7070"`, address+", ConnectTimeout: time.Minute",
		"2*time.Second", "time.Minute",
	).Replace(sample)
}

// The quick start's program; a second one waits until the first is killed.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	source, err := filepath.Abs("examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	here := unhurried(string(text), strconv.Quote(server()))
	replaced := filepath.Join(directory, "main.go")
	overlay := filepath.Join(directory, "overlay.json")
	replacements, err := json.Marshal(map[string]any{"Replace": map[string]string{source: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{replaced: []byte(here), overlay: replacements} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(directory, "quickstart")
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, ".")
	build.Dir = filepath.Dir(source)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	run := func() (*exec.Cmd, <-chan uint64) {
		command := exec.Command(program)
		output, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		tokens := make(chan uint64, 1)
		go func() {
			for lines := bufio.NewScanner(output); lines.Scan(); {
				var token uint64
				if _, err := fmt.Sscanf(lines.Text(), "working under token %d", &token); err == nil {
					tokens <- token
				}
			}
		}()
		return command, tokens
	}
	token := func(of <-chan uint64) uint64 {
		t.Helper()
		select {
		case token := <-of:
			return token
		case <-time.After(patience):
			t.Fatal("never had the lock")
			return 0
		}
	}
	first, firstTokens := run()
	before := token(firstTokens)
	_, secondTokens := run()
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if after := token(secondTokens); after <= before {
		t.Fatalf("token %d after %d", after, before)
	}
}

// The page shows the two files of the example, word for word.
func TestThePageShowsTheQuickstart(t *testing.T) {
	page, err := os.ReadFile("../../docs/quick-start.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Fatalf("%d blocks: main.go, work.go", len(blocks))
	}
	for i, file := range []string{"main.go", "work.go"} {
		source, err := os.ReadFile(filepath.Join("examples", "quickstart", file))
		if err != nil {
			t.Fatal(err)
		}
		_, program, _ := strings.Cut(string(source), "package main\n")
		shown, _, _ := strings.Cut(blocks[i], "```")
		if shown != "package main\n"+program {
			t.Errorf("the page does not show %s:\n%s", file, shown)
		}
	}
}

// Every Go sample of the README is an example that runs, or stands in the runnable fencing sample.
func TestREADME(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	sources := words(read("example_test.go") + read("examples/fencing/main.go"))
	blocks := strings.Split(read("README.md"), "```go\n")[1:]
	if len(blocks) != 4 {
		t.Errorf("%d samples: hold, try, wait limit, fenced write", len(blocks))
	}
	for _, block := range blocks {
		sample, _, _ := strings.Cut(block, "```")
		if !strings.Contains(sources, words(unhurried(sample, "server()"))) {
			t.Errorf("runs nowhere:\n%s", sample)
		}
	}
}
