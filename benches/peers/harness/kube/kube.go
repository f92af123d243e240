// Package kube is shared by the Go programs: the client configuration and the small Pod.
package kube

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"pintle.dev/bench/harness"
)

// Config returns a client configuration without rate limits and gzip, in the requested encoding.
func Config(f *harness.Flags) (*rest.Config, error) {
	if f.URL == "" && f.Kubeconfig == "" {
		return nil, errors.New("either --url or --kubeconfig is required")
	}
	config, err := clientcmd.BuildConfigFromFlags(f.URL, f.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.DisableCompression = true
	config.ContentType = runtime.ContentTypeJSON
	if f.Encoding == "protobuf" {
		// As the components of Kubernetes do.
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	config.Wrap(harness.CountBytes)
	return config, PinStreaming(f.Stream())
}

// PinStreaming sets WatchListClient, overriding its default and the environment.
func PinStreaming(on bool) error {
	gates, ok := clientfeatures.FeatureGates().(interface {
		Set(clientfeatures.Feature, bool) error
	})
	if !ok {
		return errors.New("cannot set the feature gates")
	}
	return gates.Set(clientfeatures.WatchListClient, on)
}

// SmallPod returns Pod number i of the benchmarks without a server.
func SmallPod(i, version int) *corev1.Pod {
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
