package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"pintle.dev/bench/harness"
	"pintle.dev/bench/harness/kube"
)

func filledIndexer(objects int) (cache.Indexer, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		byNode:               indexers[byNode],
	})
	for i := range objects {
		if err := indexer.Add(kube.SmallPod(i, 1)); err != nil {
			return nil, err
		}
	}
	return indexer, nil
}

// reads queries an indexer by index, and its lister by selector.
func reads(f *harness.Flags) (*harness.Phase, error) {
	indexer, err := filledIndexer(f.Objects)
	if err != nil {
		return nil, err
	}
	lister := corelisters.NewPodLister(indexer)
	nodes := make([]string, (f.Objects+19)/20)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node-%d", i)
	}
	byIndex := func(times int) (found int, err error) {
		for i := range times {
			pods, err := indexer.ByIndex(byNode, nodes[i*7919%len(nodes)])
			if err != nil {
				return 0, err
			}
			found += len(pods)
		}
		return found, nil
	}
	// Parsed once, as a controller would.
	selector, err := labels.Parse("app=web-7")
	if err != nil {
		return nil, err
	}
	bySelector := func(times int) (found int, err error) {
		for range times {
			pods, err := lister.List(selector)
			if err != nil {
				return 0, err
			}
			found += len(pods)
		}
		return found, nil
	}

	if _, err := byIndex(len(nodes)); err != nil {
		return nil, err
	}
	if _, err := bySelector(1); err != nil {
		return nil, err
	}
	phase := harness.Begin()
	start := harness.CPU()
	foundByIndex, err := byIndex(f.Count)
	if err != nil {
		return nil, err
	}
	middle := harness.CPU()
	scans := max(f.Count/10_000, 10)
	foundBySelector, err := bySelector(scans)
	if err != nil {
		return nil, err
	}
	end := harness.CPU()
	phase.End()
	phase.Extra["by_index_ns"] = (middle - start) / float64(f.Count) * 1e9
	phase.Extra["by_index_found"] = float64(foundByIndex) / float64(f.Count)
	phase.Extra["selector_ns"] = (end - middle) / float64(scans) * 1e9
	phase.Extra["selector_found"] = float64(foundBySelector) / float64(scans)
	phase.Keep = func() { indexer.ListKeys() }
	return phase, nil
}
