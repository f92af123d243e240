// Package harness is shared by the Go programs: flags, CPU and memory measurements, and the JSON line
// they print.
package harness

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Flags are the flags of every program.
type Flags struct {
	Work          string
	Kubeconfig    string
	URL           string
	Objects       int
	Handlers      int
	Workers       int
	Encoding      string
	ManagedFields string
	Streaming     string
	Settle        float64
	Count         int
	Keys          string
	Reads         string
	Timeout       time.Duration
}

// Stream returns whether to use a streaming list.
func (f *Flags) Stream() bool { return f.Streaming == "on" }

// Strip returns whether to remove managedFields before an object is cached.
func (f *Flags) Strip() bool { return f.ManagedFields == "strip" }

// CannotDo says why a library does not support a benchmark; the program exits with code 3.
type CannotDo string

func (c CannotDo) Error() string { return string(c) }

// Extra holds figures of some benchmarks only.
type Extra map[string]any

// Result is the line a program prints.
type Result struct {
	Peer          string  `json:"peer"`
	Version       string  `json:"version"`
	Work          string  `json:"work"`
	Encoding      string  `json:"encoding"`
	ManagedFields string  `json:"managed_fields"`
	Streaming     bool    `json:"streaming"`
	Objects       int     `json:"objects"`
	Handlers      int     `json:"handlers"`
	Workers       int     `json:"workers"`
	Count         int     `json:"count"`
	UserS         float64 `json:"user_s"`
	SystemS       float64 `json:"system_s"`
	WallS         float64 `json:"wall_s"`
	PeakKiB       int64   `json:"peak_kib"`
	SteadyKiB     int64   `json:"steady_kib"`
	BaseKiB       int64   `json:"base_kib"`
	BytesReceived int64   `json:"bytes_received"`
	Extra         Extra   `json:"extra"`
}

// Work runs one benchmark and returns its measurements.
type Work func(*Flags) (*Phase, error)

// Main parses the flags, runs the benchmark and prints its result. module is the Go module whose
// version is reported.
func Main(peer, module string, works map[string]Work) {
	flags, err := parse(os.Args[1:])
	if err != nil {
		fail(2, err)
	}
	work, known := works[flags.Work]
	if !known {
		fail(3, fmt.Errorf("%s has no benchmark %q", peer, flags.Work))
	}
	phase, err := work(flags)
	var cannot CannotDo
	switch {
	case errors.As(err, &cannot):
		fail(3, err)
	case err != nil:
		fail(1, err)
	}
	if flags.Settle > 0 {
		time.Sleep(time.Duration(flags.Settle * float64(time.Second)))
	}
	result := &Result{
		Peer: peer, Version: moduleVersion(module), Work: flags.Work,
		Encoding: flags.Encoding, ManagedFields: flags.ManagedFields, Streaming: flags.Stream(),
		Objects: flags.Objects, Handlers: flags.Handlers, Workers: flags.Workers, Count: flags.Count,
		UserS: phase.userS, SystemS: phase.systemS, WallS: phase.wallS,
		BaseKiB: phase.baseKiB, PeakKiB: Peak(), SteadyKiB: RSS(),
		BytesReceived: phase.bytes, Extra: phase.Extra,
	}
	if flags.Work == "relist" {
		result.Extra["peak_kib"] = result.PeakKiB
	}
	debug.FreeOSMemory()
	result.Extra["steady_gc_kib"] = RSS()
	// Keep what the benchmark built alive during both readings above.
	if phase.Keep != nil {
		phase.Keep()
	}
	if phase.Check != nil {
		if err := phase.Check(); err != nil {
			fail(1, err)
		}
	}
	line, err := json.Marshal(result)
	if err != nil {
		fail(1, err)
	}
	fmt.Println(string(line))
}

func parse(args []string) (*Flags, error) {
	if len(args) == 0 {
		return nil, errors.New("name a benchmark: sync, relist, watch, pipeline, reads, queue, reconcile")
	}
	f := &Flags{Work: args[0]}
	set := flag.NewFlagSet(f.Work, flag.ContinueOnError)
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "live: the kubeconfig of the API server")
	set.StringVar(&f.URL, "url", "", "replay: the address of the server, plain HTTP")
	set.IntVar(&f.Objects, "objects", 1000, "objects in the cache, or keys")
	set.IntVar(&f.Handlers, "handlers", 1, "event handlers")
	set.IntVar(&f.Workers, "workers", 1, "workers")
	set.StringVar(&f.Encoding, "encoding", "json", "json or protobuf")
	set.StringVar(&f.ManagedFields, "managed-fields", "keep", "keep or strip")
	set.StringVar(&f.Streaming, "streaming", "off", "on: the first list is streamed over the watch")
	set.Float64Var(&f.Settle, "settle", 0, "seconds to wait before the steady memory is read")
	set.IntVar(&f.Count, "count", 0, "events, keys or look-ups; 0: as many as objects")
	set.StringVar(&f.Keys, "keys", "distinct", "distinct or duplicate")
	set.StringVar(&f.Reads, "reads", "off", "on: a reconcile takes its object from the cache")
	set.DurationVar(&f.Timeout, "timeout", 5*time.Minute, "give up after this long")
	if err := set.Parse(args[1:]); err != nil {
		return nil, err
	}
	if f.Count == 0 {
		f.Count = f.Objects
	}
	for _, choice := range []struct{ flag, value, a, b string }{
		{"encoding", f.Encoding, "json", "protobuf"},
		{"managed-fields", f.ManagedFields, "keep", "strip"},
		{"streaming", f.Streaming, "on", "off"},
		{"keys", f.Keys, "distinct", "duplicate"},
		{"reads", f.Reads, "on", "off"},
	} {
		if choice.value != choice.a && choice.value != choice.b {
			return nil, fmt.Errorf("--%s must be %s or %s, not %q", choice.flag, choice.a, choice.b, choice.value)
		}
	}
	if f.Objects < 1 || f.Handlers < 1 || f.Workers < 1 || f.Count < 1 {
		return nil, errors.New("--objects, --handlers, --workers and --count must be at least 1")
	}
	return f, nil
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

func moduleVersion(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return strings.TrimPrefix(dep.Version, "v")
			}
		}
	}
	return "unknown"
}

// Phase is the measured part of a run.
type Phase struct {
	// Extra is added to the result.
	Extra Extra
	// Keep is called after the last reading, to keep its captures alive until then.
	Keep func()
	// Check is called after the last reading and verifies the outcome.
	Check func() error

	start   time.Time
	usage   syscall.Rusage
	bytes0  int64
	userS   float64
	systemS float64
	wallS   float64
	baseKiB int64
	bytes   int64
}

// Begin starts the measured phase.
func Begin() *Phase {
	p := &Phase{Extra: Extra{}, baseKiB: RSS(), bytes0: received.Load()}
	p.start = time.Now()
	p.usage = usage()
	return p
}

// End ends the measured phase.
func (p *Phase) End() *Phase {
	end := usage()
	p.wallS = time.Since(p.start).Seconds()
	p.userS = seconds(end.Utime) - seconds(p.usage.Utime)
	p.systemS = seconds(end.Stime) - seconds(p.usage.Stime)
	p.bytes = received.Load() - p.bytes0
	return p
}

// CPU returns the CPU time of this process in seconds.
func CPU() float64 {
	u := usage()
	return seconds(u.Utime) + seconds(u.Stime)
}

func usage() syscall.Rusage {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fail(1, err)
	}
	return u
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// RSS returns the resident memory in KiB.
func RSS() int64 { return status("VmRSS:") }

// Peak returns the peak resident memory since start or ResetPeak, in KiB.
func Peak() int64 { return status("VmHWM:") }

// ResetPeak resets Peak.
func ResetPeak() error { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

func status(field string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(1, err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				fail(1, err)
			}
			return kib
		}
	}
	fail(1, fmt.Errorf("no %s in /proc/self/status", field))
	return 0
}

// Await waits for the signal; a timeout is an error that says what did not happen.
func Await(f *Flags, done <-chan struct{}, what string) error {
	select {
	case <-done:
		return nil
	case <-time.After(f.Timeout):
		return fmt.Errorf("not within %s: %s", f.Timeout, what)
	}
}

// Countdown closes Done when Decrement was called as often as expected.
type Countdown struct {
	Done chan struct{}
	left atomic.Int64
}

// NewCountdown expects n calls of Decrement.
func NewCountdown(n int) *Countdown {
	c := &Countdown{Done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

// Decrement counts one call.
func (c *Countdown) Decrement() {
	if c.left.Add(-1) == 0 {
		close(c.Done)
	}
}

// Post sends a request to the replay server.
func Post(f *Flags, path string) error {
	if f.URL == "" {
		return CannotDo(f.Work + " needs the replay server (--url)")
	}
	response, err := http.Post(strings.TrimSuffix(f.URL, "/")+path, "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("POST %s: %s %s", path, response.Status, body)
	}
	return nil
}

var received atomic.Int64

// CountBytes wraps a transport to count the bytes of response bodies.
func CountBytes(inner http.RoundTripper) http.RoundTripper { return &counter{inner} }

type counter struct{ inner http.RoundTripper }

func (c *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.inner.RoundTrip(request)
	if err == nil {
		response.Body = &countedBody{response.Body}
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport inside.
func (c *counter) WrappedRoundTripper() http.RoundTripper { return c.inner }

type countedBody struct{ io.ReadCloser }

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	received.Add(int64(n))
	return n, err
}
