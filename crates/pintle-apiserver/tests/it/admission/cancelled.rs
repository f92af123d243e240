//! Writes whose client disconnects.

use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Counts the calls of a webhook in progress.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn start(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers a mutating and a validating webhook that wait several times during each call.
fn wait_often(server: &ApiServer) -> (Arc<AtomicUsize>, [WebhookRegistration; 2]) {
    let running = Arc::new(AtomicUsize::new(0));
    let handler = |patch: bool| {
        let running = Arc::clone(&running);
        move |request: AdmissionRequest| {
            let call = Running::start(&running);
            async move {
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                drop(call);
                let answer = AdmissionResponse::allow();
                if patch && request.operation() == "CREATE" {
                    answer.patch(json!([label("webhook")]))
                } else {
                    answer
                }
            }
        }
    };
    let webhooks = [
        Webhook::mutating("mutating.example.com", handler(true)),
        Webhook::validating("validating.example.com", handler(false)),
    ];
    let registrations = webhooks.map(|webhook| {
        let webhook = webhook.rule(["*"], [""], ["v1"], ["services"]);
        server.register_webhook(&webhook).unwrap()
    });
    (running, registrations)
}

/// Polls a request at most this many times, then drops it. Returns true if it completed.
async fn polled<F: Future>(request: F, times: usize) -> bool {
    let mut request = Box::pin(request);
    for _ in 0..times {
        if futures::poll!(request.as_mut()).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// If a client disconnects at any point, its write is either complete or absent. No address stays
/// reserved, and no webhook call keeps running.
///
/// Proves admission/bounds.
#[tokio::test(start_paused = true)]
async fn write_dropped_at_any_await_is_whole_or_absent() {
    let service = json!({"metadata": {"name": "s"},
        "spec": {"clusterIP": "10.96.0.77", "ports": [{"port": 80}]}});
    let one = format!("{SERVICES}/s");
    let mut absent = [0; 2];
    for times in 0.. {
        let server = server();
        let http = http(&server);
        let (running, _webhooks) = wait_often(&server);
        let created = polled(http.post(SERVICES, &service), times).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.load(Ordering::SeqCst), 0, "after {times} polls");
        match http.get(&one).await {
            (200, stored) => assert_eq!(stored["metadata"]["labels"]["by"], "webhook"),
            (404, _) => {
                absent[0] += 1;
                let (code, status) = http.post(SERVICES, &service).await;
                assert_eq!(code, 201, "after {times} polls: {status}");
            }
            other => panic!("{other:?}"),
        }
        let deleted = polled(http.delete(&one), times).await;
        if http.get(&one).await.0 == 200 {
            absent[1] += 1;
            assert_eq!(http.delete(&one).await.0, 200, "after {times} polls");
        }
        let (code, status) = http.post(SERVICES, &service).await;
        assert_eq!(code, 201, "the address is free again: {status}");
        if created && deleted {
            break;
        }
    }
    assert!(absent.iter().all(|times| *times > 5), "{absent:?}");
}
