// Command bench-client-go runs the benchmarks with k8s.io/client-go.
package main

import "pintle.dev/bench/harness"

func main() {
	harness.Main("client-go", "k8s.io/client-go", map[string]harness.Work{
		"sync":      syncPods,
		"relist":    relist,
		"watch":     watchEvents,
		"pipeline":  pipeline,
		"reads":     reads,
		"queue":     queue,
		"reconcile": reconcile,
	})
}
