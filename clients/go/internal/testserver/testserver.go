// Package testserver runs the real server for tests.
package testserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// Server is a server process.
type Server struct {
	// Address is where it listens.
	Address string
	command *exec.Cmd
	drained chan struct{}
	stop    sync.Once
}

// Start starts a server on this address; port 0 takes a free one. The program is that of MONOLOCK_BIN, or the repository's own debug build.
func Start(listen string) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	// A client of a test may be slow with its first frame.
	command := exec.Command(program, "--listen", listen, "--log-format", "json", "--io-timeout", "30s")
	stderr, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	s := &Server{command: command, drained: make(chan struct{})}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct{ Message, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "listening" {
			s.Address = line.Address
			break
		}
		fmt.Fprintf(os.Stderr, "%s\n", lines.Bytes())
	}
	go func() {
		defer close(s.drained)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	if s.Address == "" {
		s.Stop()
		return nil, errors.New("the server does not listen")
	}
	return s, nil
}

// Stop stops it in good order, where the system can, and waits for its end. Twice is harmless.
func (s *Server) Stop() {
	s.stop.Do(func() {
		if s.command.Process.Signal(os.Interrupt) != nil {
			_ = s.command.Process.Kill()
		}
		<-s.drained
		_ = s.command.Wait()
	})
}

func find() (string, error) {
	if program := os.Getenv("MONOLOCK_BIN"); program != "" {
		return program, nil
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..", "..", "..")
	program := filepath.Join(root, "target", "debug", "monolock")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	build := exec.Command("cargo", "build", "--package", "monolock-bin")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("no server: set MONOLOCK_BIN, or build it: %w\n%s", err, output)
	}
	return program, nil
}
