// Fencing shows a resource that checks the token: a row of an SQL database refuses a holder that lost its lock and does not know it yet.
//
// It needs a server:
//
//	go run . -server 127.0.0.1:7070
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	monolock "github.com/monolock-dev/monolock-go"
	_ "modernc.org/sqlite"
)

func main() {
	server := flag.String("server", "127.0.0.1:7070", "the monolock server, host:port")
	database := flag.String("database", ":memory:", "the SQLite database")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *server, *database); err != nil {
		log.Fatal(err)
	}
}

// errStale says that the row has seen a larger token.
var errStale = errors.New("stale token")

// write writes a report under a fencing token. The statement is as good for PostgreSQL. What decides is its last line, in the same
// statement as the write: a check before it would leave a gap.
func write(ctx context.Context, db *sql.DB, name, body string, token uint64) error {
	result, err := db.ExecContext(ctx, `
		INSERT INTO reports (name, body, token) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET body = excluded.body, token = excluded.token
		WHERE reports.token <= excluded.token`, name, body, token)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 1 {
		return err
	}
	return errStale
}

func run(ctx context.Context, out io.Writer, server, database string) error {
	const (
		name  = "nightly-report"
		lease = 30 * time.Second
	)
	db, err := sql.Open("sqlite", database)
	if err != nil {
		return err
	}
	defer db.Close()
	// A database in memory lives in its one connection.
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS reports (name TEXT PRIMARY KEY, body TEXT NOT NULL, token BIGINT NOT NULL)`)
	if err != nil {
		return err
	}

	// Worker A's connection can be cut under it.
	var line net.Conn
	a := monolock.New(monolock.Config{Address: server, Dialer: monolock.DialerFunc(
		func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			line, err = new(net.Dialer).DialContext(ctx, network, address)
			return line, err
		})})
	b := monolock.New(monolock.Config{Address: server})

	lockA, err := a.AcquireRetry(ctx, name, lease)
	if err != nil {
		return err
	}
	defer lockA.Release()
	fmt.Fprintf(out, "A has the lock:  %s\n", tell(write(ctx, db, name, "A's first page", lockA.Token())))

	if err := line.Close(); err != nil {
		return err
	}
	fmt.Fprintln(out, "A is cut off, and does not look")
	lockB, err := b.AcquireRetry(ctx, name, lease)
	if err != nil {
		return err
	}
	defer lockB.Release()
	fmt.Fprintf(out, "B has the lock:  %s\n", tell(write(ctx, db, name, "B's report", lockB.Token())))

	stale := write(ctx, db, name, "A's second page", lockA.Token())
	fmt.Fprintf(out, "A writes on:     %s\n", tell(stale))
	if !errors.Is(stale, errStale) {
		return fmt.Errorf("a stale holder was not refused: %v", stale)
	}

	var body string
	if err := db.QueryRowContext(ctx, `SELECT body FROM reports WHERE name = $1`, name).Scan(&body); err != nil {
		return err
	}
	fmt.Fprintf(out, "The row says:    %s\n", body)
	return nil
}

func tell(err error) string {
	if err != nil {
		return "refused, " + err.Error()
	}
	return "written"
}
