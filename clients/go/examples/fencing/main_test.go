package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolock-dev/monolock-go/internal/testserver"
)

func TestAStaleHolderIsRefused(t *testing.T) {
	server, err := testserver.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	var out strings.Builder
	if err := run(context.Background(), &out, server.Address, filepath.Join(t.TempDir(), "reports.db")); err != nil {
		t.Fatal(err)
	}
	const want = `A has the lock:  written
A is cut off, and does not look
B has the lock:  written
A writes on:     refused, stale token
The row says:    B's report
`
	if out.String() != want {
		t.Errorf("it told:\n%s", out.String())
	}
}
