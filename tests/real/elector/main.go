// A replica that is elected by client-go and writes while it leads: the peer of Pintle's replica.
//
// It creates ConfigMaps named <identity>.<number>, one every few milliseconds. On SIGTERM it stops
// writing, then releases the Lease if configured to, and exits. It also exits when its standard input is
// closed, so that it does not outlive the test.
//
// It prints "following" when it knows the leader, and "ended" when a term of its own is over and it
// has stopped writing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	namespace := flag.String("namespace", "", "namespace of the Lease and of the ConfigMaps")
	lease := flag.String("lease", "", "name of the Lease")
	identity := flag.String("identity", "", "name of this replica")
	leaseDuration := flag.Duration("lease-duration", 0, "lease duration")
	renewDeadline := flag.Duration("renew-deadline", 0, "renew deadline")
	retryPeriod := flag.Duration("retry-period", 0, "retry period")
	pause := flag.Duration("pause", 0, "pause between two writes")
	release := flag.Bool("release", true, "release the Lease on shutdown")
	flag.Parse()

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}

	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	writer := &writer{client: client, namespace: *namespace, identity: *identity, pause: *pause}
	elected, resign := context.WithCancel(context.Background())
	go func() {
		<-terminated.Done()
		writer.stop()
		resign()
	}()
	var following sync.Once
	for elected.Err() == nil {
		leaderelection.RunOrDie(elected, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *lease},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
			},
			LeaseDuration:   *leaseDuration,
			RenewDeadline:   *renewDeadline,
			RetryPeriod:     *retryPeriod,
			ReleaseOnCancel: *release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: writer.run,
				OnStoppedLeading: func() {},
				OnNewLeader: func(string) {
					following.Do(func() { fmt.Println("following") })
				},
			},
		})
	}
}

// writer creates ConfigMaps. Its lock is held during a write.
type writer struct {
	client    kubernetes.Interface
	namespace string
	identity  string
	pause     time.Duration

	lock    sync.Mutex
	stopped bool
	number  int
}

// run writes until the term has ended as far as client-go knows.
func (w *writer) run(term context.Context) {
	for w.write(term) {
		select {
		case <-term.Done():
		case <-time.After(w.pause):
		}
	}
	fmt.Println("ended")
}

func (w *writer) write(term context.Context) bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.stopped || term.Err() != nil {
		return false
	}
	w.number++
	name := fmt.Sprintf("%s.%d", w.identity, w.number)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	if _, err := maps.Create(term, object, metav1.CreateOptions{}); err != nil {
		log.Printf("cannot create %s: %v", name, err)
	}
	return true
}

// stop returns once no write is in flight and none will start.
func (w *writer) stop() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.stopped = true
}
