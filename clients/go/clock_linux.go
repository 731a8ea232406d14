package monolock

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime is CLOCK_BOOTTIME: monotonic, and running on while the machine sleeps, as the lease does at the server.
const clockBoottime = 7

// bootClock reads CLOCK_BOOTTIME.
//
// The standard library has no call for it, so this is the one place with unsafe: a pointer handed to a system call in the call itself, which
// is pattern 4 of package unsafe's documentation.
type bootClock struct{}

func (bootClock) now() instant {
	var ts syscall.Timespec
	// It was tried when the clock was chosen, and what can fail (an unknown clock, a filter that forbids the call) does not change.
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return instant(ts.Nano())
}

func (bootClock) countsSuspend() bool { return true }

func systemClock() clock {
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return runtimeClock{time.Now()}
	}
	return bootClock{}
}
