package monolock

import "sync"

// claims counts which claims a client has open, so that a program can notice that it is about to queue behind itself. It never takes one
// claim for another.
type claims struct {
	mu sync.Mutex
	// open is bounded by the claims that are open.
	open map[string]int
}

// enter counts one in, and gives what counts it out, once.
func (c *claims) enter(name string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[string]int)
	}
	c.open[name]++
	var once sync.Once
	return func() { once.Do(func() { c.leave(name) }) }
}

func (c *claims) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[name]--; c.open[name] == 0 {
		delete(c.open, name)
	}
}

func (c *claims) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[name]
}
