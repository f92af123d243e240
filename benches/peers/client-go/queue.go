package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
)

// newQueue returns the queue that controllers use.
func newQueue() workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
}

func makeKeys(count int) []cache.ObjectName {
	keys := make([]cache.ObjectName, count)
	for i := range keys {
		keys[i] = cache.NewObjectName("default", fmt.Sprintf("key-%d", i))
	}
	return keys
}

// queue adds, dequeues and finishes keys.
func queue(f *harness.Flags) (*harness.Phase, error) {
	if f.Keys == "duplicate" {
		return duplicateKeys(f), nil
	}
	keys := makeKeys(f.Count)
	queue := newQueue()
	done := harness.NewCountdown(f.Count)
	for range f.Workers {
		go func() {
			for {
				key, shutdown := queue.Get()
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
func duplicateKeys(f *harness.Flags) *harness.Phase {
	keys := makeKeys(1000)
	queue := newQueue()
	for _, key := range keys {
		queue.Add(key)
	}
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
	return phase.End()
}

// controller is the worker loop that users of client-go write, around a no-op reconcile.
type controller struct {
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// pods is the indexer the reconcile reads from, if it reads at all.
	pods corelisters.PodLister
	// left is the number of reconciles left in a round.
	left  atomic.Int64
	round chan struct{}
}

func (c *controller) run(ctx context.Context) {
	for c.processNext(ctx) {
	}
}

func (c *controller) processNext(ctx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	// Last: the round ends when the key is done.
	defer c.finished()
	defer c.queue.Done(key)
	if err := c.reconcile(ctx, key); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Error syncing; requeuing", "key", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

func (c *controller) reconcile(_ context.Context, key cache.ObjectName) error {
	if c.pods == nil {
		return nil
	}
	_, err := c.pods.Pods(key.Namespace).Get(key.Name)
	return err
}

func (c *controller) finished() {
	if c.left.Add(-1) == 0 {
		c.round <- struct{}{}
	}
}

// reconcile runs every key through the workers in several rounds.
func reconcile(f *harness.Flags) (*harness.Phase, error) {
	c := &controller{queue: newQueue(), round: make(chan struct{}, 1)}
	keys := makeKeys(f.Objects)
	if f.Reads == "on" {
		indexer, err := filledIndexer(f.Objects)
		if err != nil {
			return nil, err
		}
		c.pods = corelisters.NewPodLister(indexer)
		for i := range keys {
			keys[i] = cache.MetaObjectToName(kube.SmallPod(i, 1))
		}
	}
	ctx := context.Background()
	for range f.Workers {
		go c.run(ctx)
	}
	rounds := max(f.Count/f.Objects, 1)
	f.Count = rounds * f.Objects
	phase := harness.Begin()
	for range rounds {
		c.left.Store(int64(len(keys)))
		for _, key := range keys {
			c.queue.Add(key)
		}
		if err := harness.Await(f, c.round, "every key is reconciled"); err != nil {
			return nil, err
		}
	}
	phase.End()
	phase.Keep = func() { c.queue.Len() }
	return phase, nil
}
