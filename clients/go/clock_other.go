//go:build !linux

package monolock

import "time"

func systemClock() clock { return runtimeClock{time.Now()} }
