package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
)

const byNode = "spec.nodeName"

var indexers = cache.Indexers{byNode: func(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("%T is not a Pod", object)
	}
	return []string{pod.Spec.NodeName}, nil
}}

func stripManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// podInformer returns a shared informer of all Pods with indices by namespace and node.
func podInformer(f *harness.Flags) (informers.SharedInformerFactory, cache.SharedIndexInformer, error) {
	config, err := kube.Config(f)
	if err != nil {
		return nil, nil, err
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	var options []informers.SharedInformerOption
	if f.Strip() {
		options = append(options, informers.WithTransform(stripManagedFields))
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, options...)
	// The generated informer includes the index by namespace.
	informer := factory.Core().V1().Pods().Informer()
	return factory, informer, informer.AddIndexers(indexers)
}

// syncedInformer runs an informer with f.Handlers handlers until it holds f.Objects Pods.
func syncedInformer(f *harness.Flags, handler func() cache.ResourceEventHandler) (cache.SharedIndexInformer, error) {
	factory, informer, err := podInformer(f)
	if err != nil {
		return nil, err
	}
	var synced []cache.InformerSynced
	for range f.Handlers {
		registration, err := informer.AddEventHandler(handler())
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	ctx := context.Background()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("the cache did not sync")
	}
	return informer, nil
}

func holds(store cache.Store, objects int) error {
	if held := len(store.ListKeys()); held != objects {
		return fmt.Errorf("the cache holds %d Pods, not %d", held, objects)
	}
	return nil
}

// syncPods lists and watches all Pods until the cache holds them and the handler has seen each.
func syncPods(f *harness.Flags) (*harness.Phase, error) {
	factory, informer, err := podInformer(f)
	if err != nil {
		return nil, err
	}
	seen := harness.NewCountdown(f.Objects * f.Handlers)
	for range f.Handlers {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen.Decrement() }})
		if err != nil {
			return nil, err
		}
	}
	phase := harness.Begin()
	factory.StartWithContext(context.Background())
	if err := harness.Await(f, seen.Done, "the handler has seen every Pod"); err != nil {
		return nil, fmt.Errorf("%w; the cache holds %d", err, len(informer.GetStore().ListKeys()))
	}
	phase.End()
	phase.Check = func() error { return holds(informer.GetStore(), f.Objects) }
	return phase, nil
}

// relist ends the watch of a synced cache with 410 and waits for the relist.
func relist(f *harness.Flags) (*harness.Phase, error) {
	marked := harness.NewCountdown(f.Handlers)
	informer, err := syncedInformer(f, func() cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
			if object.(*corev1.Pod).Name == "relist-marker" {
				marked.Decrement()
			}
		}}
	})
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(f.Settle * float64(time.Second)))
	if err := harness.ResetPeak(); err != nil {
		return nil, err
	}
	phase := harness.Begin()
	phase.Extra["steady_before_kib"] = harness.RSS()
	if err := harness.Post(f, "/_bench/expire"); err != nil {
		return nil, err
	}
	if err := harness.Await(f, marked.Done, "the cache holds relist-marker"); err != nil {
		return nil, err
	}
	phase.End()
	phase.Check = func() error { return holds(informer.GetStore(), f.Objects+1) }
	return phase, nil
}

// watchEvents sends updates through watch and cache to every handler.
func watchEvents(f *harness.Flags) (*harness.Phase, error) {
	seen := harness.NewCountdown(f.Count * f.Handlers)
	informer, err := syncedInformer(f, func() cache.ResourceEventHandler {
		return cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { seen.Decrement() }}
	})
	if err != nil {
		return nil, err
	}
	// Wait for the watch, which opens after the list: the server only sends to open watches.
	time.Sleep(500 * time.Millisecond)
	phase := harness.Begin()
	if err := harness.Post(f, fmt.Sprintf("/_bench/events?count=%d", f.Count)); err != nil {
		return nil, err
	}
	if err := harness.Await(f, seen.Done, "every handler has seen every update"); err != nil {
		return nil, err
	}
	phase.End()
	phase.Check = func() error { return holds(informer.GetStore(), f.Objects) }
	return phase, nil
}
