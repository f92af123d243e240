// Command bench-client-go does the works of the comparison with k8s.io/client-go.
package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pintle.dev/bench/harness"
)

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

// smallPod is Pod number i of the works without a server.
func smallPod(i, version int) *corev1.Pod {
	group := i / 20
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("pod-%d", i),
			Namespace:       fmt.Sprintf("ns-%d", i%50),
			UID:             types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", i)),
			ResourceVersion: fmt.Sprint(version),
			Labels: map[string]string{
				"app":               fmt.Sprintf("web-%d", group),
				"tier":              "backend",
				"pod-template-hash": fmt.Sprintf("%08x", group),
			},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", group),
			Containers: []corev1.Container{{
				Name:  "web",
				Image: "registry.example/web:1.0",
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}
