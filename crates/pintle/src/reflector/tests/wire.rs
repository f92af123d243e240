//! A reflector of the kube source with canned bytes: the effects of malformed input.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use kube::client::{Body, Client};

use super::*;
use crate::source::{BoxError, KubeSource, Scope};

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A response: its status code, the chunks of its body, and whether the body then stays open.
struct Canned {
    code: u16,
    chunks: Vec<Vec<u8>>,
    open: bool,
}

fn body(body: impl Into<Vec<u8>>) -> Canned {
    Canned {
        code: 200,
        chunks: vec![body.into()],
        open: false,
    }
}

/// A watch that stays open.
fn lines(lines: impl Into<Vec<u8>>) -> Canned {
    Canned {
        open: true,
        ..body(lines)
    }
}

impl Canned {
    fn response(self) -> Answer {
        let chunks = self.chunks.into_iter();
        let frames = stream::iter(chunks.map(|chunk| Ok(http_body::Frame::data(chunk.into()))));
        let body = if self.open {
            use futures::StreamExt;
            StreamBody::new(frames.chain(stream::pending())).boxed_unsync()
        } else {
            StreamBody::new(frames).boxed_unsync()
        };
        Response::builder().status(self.code).body(body).unwrap()
    }
}

struct Wire {
    sink: Arc<Recorder>,
    status: watch::Receiver<Status>,
    uris: Arc<Mutex<Vec<String>>>,
    _task: JoinHandle<()>,
}

impl Wire {
    /// Starts a reflector whose server sends these responses, and after them watches that stay
    /// open.
    fn start(answers: impl IntoIterator<Item = Canned>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let uris = Arc::new(Mutex::new(Vec::new()));
        let log = uris.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(request.uri().to_string());
            let canned = answers.lock().pop_front().unwrap_or_else(|| lines(""));
            async move { Ok::<_, Infallible>(canned.response()) }
        });
        let client = Client::new(service, "default");
        let source = KubeSource::<ConfigMap>::new(client, Scope::all()).object_limit(100_000);
        let sink = Arc::new(Recorder::default());
        let reflector = Reflector::new(source, Reader::new(), sink.clone())
            .rng(Rng::with_seed(7))
            .watch_list(false);
        let status = reflector.status();
        let task = tokio::spawn(async move { reflector.run(&CancellationToken::new()).await });
        Self {
            sink,
            status,
            uris,
            _task: task,
        }
    }

    async fn after(self, time: Duration) -> Self {
        sleep(time).await;
        self
    }

    /// Returns the number of unreadable objects and the last report.
    fn unreadable(&self) -> (u64, String) {
        let status = self.status.borrow();
        let last = status.last_unreadable.as_ref().map(ToString::to_string);
        (status.unreadable, last.unwrap_or_default())
    }

    fn status_line(&self) -> String {
        self.status.borrow().to_string()
    }
}

fn list_of(version: &str, items: &[&str]) -> Vec<u8> {
    let items = items.join(",");
    format!(r#"{{"kind":"ConfigMapList","metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#)
        .into_bytes()
}

fn event(kind: &str, name: &str, version: &str) -> String {
    let object = String::from_utf8(object(name, version).to_vec()).unwrap();
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

const A: &str = r#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"1"}}"#;

/// Proves reflector/not-a-list, reflector/watch-errors.
#[tokio::test(start_paused = true)]
async fn truncated_list_is_reported_and_retried() {
    let cut = &list_of("5", &[A])[..100];
    let wire = Wire::start([body(cut), body(list_of("5", &[A]))]);
    let wire = wire.after(SECOND / 2).await;
    assert!(
        wire.status_line().ends_with(
            "response body ended after 100 bytes, inside an item on configmaps at cluster scope (list)"
        ),
        "{}",
        wire.status_line()
    );
    let wire = wire.after(5 * SECOND).await;
    assert_eq!(
        wire.sink.events(),
        ["replace a@1 @5"],
        "nothing of the truncated list is applied"
    );
}

/// Proves reflector/unreadable-object.
#[tokio::test(start_paused = true)]
async fn malformed_items_are_reported_and_skipped() {
    let mut list = list_of("5", &[r#"{"data":{}}"#, A]);
    let wire = Wire::start([body(list.clone())]).after(SECOND).await;
    assert_eq!(wire.sink.events(), ["replace a@1 @5"]);
    let (count, last) = wire.unreadable();
    assert_eq!(count, 1);
    assert_eq!(last, "configmaps at cluster scope: object has no metadata");

    let bad = br#"{"metadata":{"name":"b","namespace":"n"},"data":{"k":"#;
    let at = list.len() - 2;
    list.splice(at..at, [b",", &bad[..], b"\"\xff\xfe\"}}"].concat());
    let wire = Wire::start([body(list)]).after(SECOND).await;
    assert_eq!(wire.sink.events(), ["replace a@1 @5"]);
    let (count, last) = wire.unreadable();
    assert_eq!(count, 2);
    assert!(
        last.starts_with("n/b of configmaps at cluster scope: "),
        "{last}"
    );
}

/// Proves reflector/unreadable-object, reflector/foreign-objects, reflector/version-follows-events.
#[tokio::test(start_paused = true)]
async fn watch_continues_after_unusable_events() {
    let events = [
        event("ADDED", "b", "6"),
        event("BLESSED", "b", "7"),
        "{\"type\":\"MODIFIED\",\"object\":{\"spec\":1}}\n".to_owned(),
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\"}}\n"
            .to_owned(),
        event("MODIFIED", "b", "8"),
    ];
    let wire = Wire::start([body(list_of("5", &[])), lines(events.concat())])
        .after(SECOND)
        .await;
    assert_eq!(wire.sink.events(), ["replace @5", "add b@6", "update b@8"]);
    assert_eq!(wire.unreadable().0, 3);
    assert_eq!(wire.uris.lock().len(), 2);
}

/// Proves reflector/object-size-limit.
#[tokio::test(start_paused = true)]
async fn endless_line_relists_and_oversized_item_is_skipped() {
    let endless = Canned {
        code: 200,
        chunks: vec![event("ADDED", "b", "6").into_bytes(), vec![b'x'; 200_000]],
        open: true,
    };
    let huge = format!(
        r#"{{"metadata":{{"name":"huge","namespace":"n"}},"data":"{}"}}"#,
        "x".repeat(100_000)
    );
    let answers = [
        body(list_of("5", &[])),
        endless,
        body(list_of("9", &[A, &huge])),
    ];
    let wire = Wire::start(answers).after(SECOND / 2).await;
    assert!(
        wire.status_line()
            .contains("a line of the watch is larger than 100000 bytes"),
        "{}",
        wire.status_line()
    );
    let wire = wire.after(5 * SECOND).await;
    assert_eq!(
        wire.sink.events(),
        ["replace @5", "add b@6", "replace a@1 @9"]
    );
    assert_eq!(
        wire.unreadable().1,
        "n/huge of configmaps at cluster scope: an item of the list is larger than 100000 bytes"
    );
}

/// Proves reflector/not-a-list.
#[tokio::test(start_paused = true)]
async fn table_is_reported_and_backs_off() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"rows":[]}"#;
    let wire = Wire::start([body(table)]).after(SECOND / 2).await;
    assert!(
        wire.status_line()
            .contains("because the server sent a Table instead of a list on configmaps")
    );
    assert!(wire.sink.events().is_empty());
}

/// Proves reflector/pages, cache/version.
#[tokio::test(start_paused = true)]
async fn tokens_and_versions_are_passed_verbatim() {
    let first = format!(
        r#"{{"metadata":{{"resourceVersion":"opaque-5","continue":"a b&c"}},"items":[{A}]}}"#
    );
    let wire = Wire::start([body(first), body(list_of("6", &[]))])
        .after(SECOND)
        .await;
    assert_eq!(wire.sink.events(), ["replace a@1 @opaque-5"]);
    let uris = wire.uris.lock().clone();
    assert_eq!(uris[1], "/api/v1/configmaps?&limit=500&continue=a+b%26c");
    assert!(
        uris[2].ends_with("&resourceVersion=opaque-5"),
        "{}",
        uris[2]
    );
}

/// Proves reflector/watch-errors, reflector/status.
#[tokio::test(start_paused = true)]
async fn forbidden_list_recovers_without_a_restart() {
    let forbidden = || Canned {
        code: 403,
        ..body(r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"you may not"}"#)
    };
    let wire = Wire::start([forbidden(), forbidden(), body(list_of("5", &[A]))]);
    let wire = wire.after(SECOND / 2).await;
    assert!(
        wire.status_line().ends_with(
            "s because 403 Forbidden on configmaps at cluster scope (list): you may not"
        ),
        "{}",
        wire.status_line()
    );
    let wire = wire.after(6 * SECOND).await;
    assert_eq!(wire.sink.events(), ["replace a@1 @5"]);
    assert_eq!(wire.status_line(), "watching from resourceVersion 5");
}
