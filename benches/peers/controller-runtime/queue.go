package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func makeKeys(count int) []reconcile.Request {
	keys := make([]reconcile.Request, count)
	for i := range keys {
		keys[i].NamespacedName = types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("key-%d", i)}
	}
	return keys
}

// queue adds, dequeues and finishes keys, with the default queue of controllers.
func queue(f *harness.Flags) (*harness.Phase, error) {
	queue := priorityqueue.New[reconcile.Request]("bench")
	if f.Keys == "duplicate" {
		return duplicateKeys(f, queue), nil
	}
	keys := makeKeys(f.Count)
	done := harness.NewCountdown(f.Count)
	for range f.Workers {
		go func() {
			for {
				key, _, shutdown := queue.GetWithPriority()
				if shutdown {
					return
				}
				queue.Done(key)
				done.Decrement()
			}
		}()
	}
	phase := harness.Begin()
	for _, key := range keys {
		queue.Add(key)
	}
	if err := harness.Await(f, done.Done, "every key is done"); err != nil {
		return nil, err
	}
	return phase.End(), nil
}

// duplicateKeys adds keys that are already queued.
func duplicateKeys(f *harness.Flags, queue priorityqueue.PriorityQueue[reconcile.Request]) *harness.Phase {
	keys := makeKeys(1000)
	for _, key := range keys {
		queue.Add(key)
	}
	queue.Len()
	var producers sync.WaitGroup
	phase := harness.Begin()
	for producer := range f.Workers {
		producers.Go(func() {
			for i := producer; i < f.Count; i += f.Workers {
				queue.Add(keys[i%len(keys)])
			}
		})
	}
	producers.Wait()
	// Adds may still be buffered; Len flushes them.
	queue.Len()
	return phase.End()
}

// reconciler is a no-op that optionally reads its object.
type reconciler struct {
	pods client.Reader
	// left is the number of reconciles left in a round.
	left  atomic.Int64
	round chan struct{}
}

func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if r.pods != nil {
		var pod corev1.Pod
		if err := r.pods.Get(ctx, request.NamespacedName, &pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	if r.left.Add(-1) == 0 {
		r.round <- struct{}{}
	}
	return reconcile.Result{}, nil
}

// reconciles runs every key through a controller in several rounds.
func reconciles(f *harness.Flags) (*harness.Phase, error) {
	ctx := context.Background()
	r := &reconciler{round: make(chan struct{}, 1)}
	keys := makeKeys(f.Objects)
	if f.Reads == "on" {
		pods, err := smallCache(ctx, f.Objects)
		if err != nil {
			return nil, err
		}
		r.pods = pods
		for i := range keys {
			keys[i].NamespacedName = client.ObjectKeyFromObject(kube.SmallPod(i, 1))
		}
	}
	c, err := controller.NewUnmanaged("bench", controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: f.Workers,
	})
	if err != nil {
		return nil, err
	}
	queues := make(chan workqueue.TypedRateLimitingInterface[reconcile.Request], 1)
	err = c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queues <- queue
		return nil
	}))
	if err != nil {
		return nil, err
	}
	go func() {
		if err := c.Start(ctx); err != nil {
			panic(err)
		}
	}()
	queue := <-queues
	rounds := max(f.Count/f.Objects, 1)
	f.Count = rounds * f.Objects
	phase := harness.Begin()
	for range rounds {
		r.left.Store(int64(len(keys)))
		for _, key := range keys {
			queue.Add(key)
		}
		if err := harness.Await(f, r.round, "every key is reconciled"); err != nil {
			return nil, err
		}
	}
	phase.End()
	phase.Keep = func() { queue.Len() }
	return phase, nil
}
