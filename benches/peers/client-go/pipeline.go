package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
)

// recorded is a watch with prepared events. Its channel is buffered, unlike that of a watch over HTTP,
// so the reflector does not wait for a second goroutine at each event.
type recorded struct{ events chan watch.Event }

func (r *recorded) Stop()                          {}
func (r *recorded) ResultChan() <-chan watch.Event { return r.events }

// pipeline sends decoded updates to the reflector and waits until every handler has them.
func pipeline(f *harness.Flags) (*harness.Phase, error) {
	if err := kube.PinStreaming(false); err != nil {
		return nil, err
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range f.Objects {
		list.Items = append(list.Items, *kube.SmallPod(i, 1))
	}
	updates := make([]*corev1.Pod, f.Count)
	for i := range updates {
		updates[i] = kube.SmallPod(i%f.Objects, i+2)
	}
	stream := &recorded{events: make(chan watch.Event, 1024)}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return stream, nil
		},
	}, &corev1.Pod{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		byNode:               indexers[byNode],
	})
	seen := harness.NewCountdown(f.Count * f.Handlers)
	var synced []cache.InformerSynced
	for range f.Handlers {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { seen.Decrement() },
		})
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	ctx := context.Background()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("the cache did not sync")
	}
	phase := harness.Begin()
	for _, pod := range updates {
		stream.events <- watch.Event{Type: watch.Modified, Object: pod}
	}
	if err := harness.Await(f, seen.Done, "every handler has seen every update"); err != nil {
		return nil, err
	}
	phase.End()
	phase.Check = func() error { return holds(informer.GetStore(), f.Objects) }
	return phase, nil
}
