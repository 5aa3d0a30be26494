package runnertest

import (
	"sync"
	"testing"
	"time"

	"github.com/fnloop/fnloop"
)

// each calls f n times, at most atOnce side by side, or as often as there is
// time for where that is less, but no fewer than fewest times.
func each(t *testing.T, n, atOnce int, f func()) {
	t.Helper()
	const (
		fewest = 30
		enough = 4 * time.Second
	)
	begin := time.Now()
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for range work {
				f()
			}
		})
	}
	for i := range n {
		if t.Failed() || i >= fewest && time.Since(begin) > enough {
			break
		}
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
}

// service has the cases about many calls.
var service = []testCase{
	{
		name: "service/clean", why: "no program finds anything of the one before it", lack: []string{"isolation"},
		do: func(t *testing.T, r fnloop.Runner) {
			for range 4 {
				res, err := r.Run(t.Context(), fnloop.Program{Source: `import os, time
print(sorted(os.listdir('/tmp')), os.listdir('/dev/shm'), os.environ.get('LEFT'), len([p for p in os.listdir('/proc') if p.isdigit()]))
open('/tmp/left', 'w'); open('/dev/shm/left', 'w'); os.environ['LEFT'] = '1'
if os.fork() == 0:
    os.setsid()
    while True: time.sleep(1)
`})
				if err != nil || res.Stdout != "['main.py'] [] None 2\n" {
					t.Errorf("Run() = %+v, %v", res, err)
				}
			}
		},
	},
	{
		name: "service/many", why: "of hundreds of calls at once each is answered", lack: []string{"fast"},
		do: func(t *testing.T, r fnloop.Runner) {
			n := 200
			if testing.Short() {
				n = 40
			}
			each(t, n, 16, func() {
				res, err := r.Run(t.Context(), fnloop.Program{Source: "print(1)", Limits: fnloop.Limits{Time: 60 * time.Second}})
				if err != nil || res.Stdout != "1\n" || res.Stderr != "" {
					t.Errorf("Run() = %+v, %v", res, err)
				}
			})
		},
	},
}
