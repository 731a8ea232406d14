package monolock

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// B04: the clock is the one that counts suspend. /proc/uptime is read from the same clock.
func TestB04_TheClockIsBoottime(t *testing.T) {
	if !system.countsSuspend() {
		t.Fatal("the clock stands still during suspend")
	}
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	var uptime float64
	if _, err := fmt.Sscan(string(text), &uptime); err != nil {
		t.Fatal(err)
	}
	if ahead := system.now().since(instant(uptime * 1e9)); ahead < -time.Second || ahead > testPatience {
		t.Fatalf("%v ahead of the uptime", ahead)
	}
	for i, last := 0, system.now(); i < 10_000; i++ {
		now := system.now()
		if now < last {
			t.Fatal("it steps back")
		}
		last = now
	}
}
