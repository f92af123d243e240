package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const byNode = "spec.nodeName"

// podCache returns a cache of all Pods with an index by node; the one by namespace is built in.
func podCache(ctx context.Context, config *rest.Config, options cache.Options) (cache.Cache, cache.Informer, error) {
	pods, err := cache.New(config, options)
	if err != nil {
		return nil, nil, err
	}
	err = pods.IndexField(ctx, &corev1.Pod{}, byNode, func(object client.Object) []string {
		return []string{object.(*corev1.Pod).Spec.NodeName}
	})
	if err != nil {
		return nil, nil, err
	}
	informer, err := pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	return pods, informer, err
}

// serverCache returns a cache of a server's Pods.
func serverCache(ctx context.Context, f *harness.Flags) (cache.Cache, cache.Informer, error) {
	config, err := kube.Config(f)
	if err != nil {
		return nil, nil, err
	}
	var options cache.Options
	if f.Strip() {
		options.DefaultTransform = cache.TransformStripManagedFields()
	}
	return podCache(ctx, config, options)
}

// smallCache returns a cache of small Pods without a server: its informer lists from memory.
func smallCache(ctx context.Context, objects int) (cache.Cache, error) {
	if err := kube.PinStreaming(false); err != nil {
		return nil, err
	}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range objects {
		list.Items = append(list.Items, *kube.SmallPod(i, 1))
	}
	memory := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewFake(), nil
		},
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	pods, _, err := podCache(ctx, &rest.Config{Host: "http://127.0.0.1:1"}, cache.Options{
		Mapper: mapper,
		NewInformer: func(_ toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(memory, example, resync, indexers)
		},
	})
	if err != nil {
		return nil, err
	}
	start(ctx, pods)
	if !pods.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the cache did not sync")
	}
	return pods, nil
}

func start(ctx context.Context, pods cache.Cache) {
	go func() {
		if err := pods.Start(ctx); err != nil {
			panic(err)
		}
	}()
}

// holds reads without copies, because this check is not measured.
func holds(ctx context.Context, pods cache.Cache, objects int) error {
	var list corev1.PodList
	if err := pods.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	if held := len(list.Items); held != objects {
		return fmt.Errorf("the cache holds %d Pods, not %d", held, objects)
	}
	return nil
}

// synced runs a cache with f.Handlers handlers until it and they have every Pod.
func synced(ctx context.Context, f *harness.Flags, handler toolscache.ResourceEventHandler) (cache.Cache, error) {
	pods, informer, err := serverCache(ctx, f)
	if err != nil {
		return nil, err
	}
	var synced []toolscache.InformerSynced
	for range f.Handlers {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registration.HasSynced)
	}
	start(ctx, pods)
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, fmt.Errorf("the cache did not sync")
	}
	return pods, nil
}

// syncPods lists and watches all Pods until the cache holds them and the handler has seen each.
func syncPods(f *harness.Flags) (*harness.Phase, error) {
	ctx := context.Background()
	pods, informer, err := serverCache(ctx, f)
	if err != nil {
		return nil, err
	}
	seen := harness.NewCountdown(f.Objects * f.Handlers)
	for range f.Handlers {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen.Decrement() }})
		if err != nil {
			return nil, err
		}
	}
	phase := harness.Begin()
	start(ctx, pods)
	if err := harness.Await(f, seen.Done, "the handler has seen every Pod"); err != nil {
		return nil, err
	}
	phase.End()
	phase.Keep = func() { informer.HasSynced() }
	phase.Check = func() error { return holds(ctx, pods, f.Objects) }
	return phase, nil
}

// relist ends the watch of a synced cache with 410 and waits for the relist.
func relist(f *harness.Flags) (*harness.Phase, error) {
	ctx := context.Background()
	marked := harness.NewCountdown(f.Handlers)
	pods, err := synced(ctx, f, toolscache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if object.(*corev1.Pod).Name == "relist-marker" {
			marked.Decrement()
		}
	}})
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
	phase.Check = func() error { return holds(ctx, pods, f.Objects+1) }
	return phase, nil
}

// watchEvents sends updates through watch and cache to every handler.
func watchEvents(f *harness.Flags) (*harness.Phase, error) {
	ctx := context.Background()
	seen := harness.NewCountdown(f.Count * f.Handlers)
	pods, err := synced(ctx, f, toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) { seen.Decrement() }})
	if err != nil {
		return nil, err
	}
	// The watch opens after the list.
	time.Sleep(500 * time.Millisecond)
	phase := harness.Begin()
	if err := harness.Post(f, fmt.Sprintf("/_bench/events?count=%d", f.Count)); err != nil {
		return nil, err
	}
	if err := harness.Await(f, seen.Done, "every handler has seen every update"); err != nil {
		return nil, err
	}
	phase.End()
	phase.Check = func() error { return holds(ctx, pods, f.Objects) }
	return phase, nil
}

// reads queries the cache by index and by selector. The cache returns copies by default; the first
// two figures include them.
func reads(f *harness.Flags) (*harness.Phase, error) {
	ctx := context.Background()
	pods, err := smallCache(ctx, f.Objects)
	if err != nil {
		return nil, err
	}
	nodes := make([]client.MatchingFields, (f.Objects+19)/20)
	for i := range nodes {
		nodes[i] = client.MatchingFields{byNode: fmt.Sprintf("node-%d", i)}
	}
	byIndex := func(times int, options ...client.ListOption) (found int, err error) {
		for i := range times {
			var list corev1.PodList
			asked := append([]client.ListOption{nodes[i*7919%len(nodes)]}, options...)
			if err := pods.List(ctx, &list, asked...); err != nil {
				return 0, err
			}
			found += len(list.Items)
		}
		return found, nil
	}
	bySelector := func(times int, options ...client.ListOption) (found int, err error) {
		asked := append([]client.ListOption{client.MatchingLabels{"app": "web-7"}}, options...)
		for range times {
			var list corev1.PodList
			if err := pods.List(ctx, &list, asked...); err != nil {
				return 0, err
			}
			found += len(list.Items)
		}
		return found, nil
	}
	phase := harness.Begin()
	measure := func(name string, times, warm int, read func(int, ...client.ListOption) (int, error), options ...client.ListOption) error {
		if _, err := read(warm, options...); err != nil {
			return err
		}
		start := harness.CPU()
		found, err := read(times, options...)
		if err != nil {
			return err
		}
		phase.Extra[name+"_ns"] = (harness.CPU() - start) / float64(times) * 1e9
		phase.Extra[name+"_found"] = float64(found) / float64(times)
		return nil
	}
	scans := max(f.Count/10_000, 10)
	for _, err := range []error{
		measure("by_index", f.Count, len(nodes), byIndex),
		measure("selector", scans, 1, bySelector),
		measure("by_index_uncopied", f.Count, len(nodes), byIndex, client.UnsafeDisableDeepCopy),
		measure("selector_uncopied", scans, 1, bySelector, client.UnsafeDisableDeepCopy),
	} {
		if err != nil {
			return nil, err
		}
	}
	phase.End()
	phase.Check = func() error { return holds(ctx, pods, f.Objects) }
	return phase, nil
}
