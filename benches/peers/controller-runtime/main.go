// Command bench-controller-runtime runs the benchmarks with controller-runtime.
package main

import (
	"github.com/go-logr/logr"
	"pintle.dev/bench/harness"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	log.SetLogger(logr.Discard())
	harness.Main("controller-runtime", "sigs.k8s.io/controller-runtime", map[string]harness.Work{
		"sync":      syncPods,
		"relist":    relist,
		"watch":     watchEvents,
		"pipeline":  pipeline,
		"reads":     reads,
		"queue":     queue,
		"reconcile": reconciles,
	})
}

// pipeline would measure client-go's informer again.
func pipeline(*harness.Flags) (*harness.Phase, error) {
	return nil, harness.CannotDo("its informers are those of client-go")
}
