package monolock

import (
	"context"
	"testing"
	"time"

	"github.com/monolock-dev/monolock-go/protocol"
)

func lostBy(code protocol.ErrorCode) error {
	return errLost("jobs", &LossError{LossServerError, &ServerError{Code: code}})
}

func longest(t *testing.T, b *backoff, code protocol.ErrorCode) time.Duration {
	t.Helper()
	delay, ok := b.delay(lostBy(code), 0, 1)
	if !ok {
		t.Fatal("not tried again")
	}
	return delay / time.Millisecond
}

func TestB48_DelaysDoubleFrom100msTo5s(t *testing.T) {
	b := newBackoff()
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		if got := longest(t, &b, 0x02); got != want {
			t.Fatalf("%d ms, want %d", got, want)
		}
	}
}

func TestB47_AShutdownIsAnsweredAtOnceButOnlyOnce(t *testing.T) {
	b := newBackoff()
	for _, want := range []time.Duration{100, 100, 200, 400} {
		if got := longest(t, &b, 0x01); got != want {
			t.Fatalf("%d ms, want %d", got, want)
		}
	}
}

func TestB47_TheJitterIsFull(t *testing.T) {
	for _, code := range []protocol.ErrorCode{0x01, 0x02} {
		for random, want := range map[float64]time.Duration{0: 0, 0.5: 50 * time.Millisecond} {
			b := newBackoff()
			if got, ok := b.delay(lostBy(code), 0, random); !ok || got != want {
				t.Errorf("%v at %v: %v, want %v", code, random, got, want)
			}
		}
	}
}

func TestAnAttemptThatLastedBeginsAnew(t *testing.T) {
	b := newBackoff()
	for i := 0; i < 8; i++ {
		longest(t, &b, 0x02)
	}
	if got, _ := b.delay(lostBy(0x02), time.Hour, 1); got != firstBackoffCeiling {
		t.Fatal(got)
	}
}

func TestB48_WhatIsFinalIsNotTriedAgain(t *testing.T) {
	for _, err := range []error{
		errRefused("jobs", "", &ServerError{Code: 0x10}),
		errRefused("jobs", "", &ServerError{Code: 0x18}),
		lostBy(0x13),
		errCancelled("jobs", context.Canceled),
		errContended("jobs"),
		errWaitTimeout("jobs"),
		errInvalid("no"),
		errLost("jobs", &LossError{Reason: LossMaxHold}),
	} {
		b := newBackoff()
		if _, ok := b.delay(err, 0, 1); ok {
			t.Errorf("tried again: %v", err)
		}
	}
}
