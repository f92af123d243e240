//! The kube source against canned responses, without sockets.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use parking_lot::Mutex;

use super::*;
use crate::source::{BodyError, BoxError};

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A client whose server responds to each request with `answer`.
fn client(answer: impl Fn(Request<()>) -> Answer + Send + Sync + 'static) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer(request.map(|_| ()));
        async move { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

/// A response whose body arrives in these chunks.
fn chunks(code: u16, chunks: Vec<Bytes>) -> Answer {
    let frames = chunks
        .into_iter()
        .map(|chunk| Ok(http_body::Frame::data(chunk)));
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

fn whole(code: u16, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync();
    Response::builder().status(code).body(body).unwrap()
}

/// A response that starts and then stalls.
fn hanging(beginning: &'static [u8]) -> Answer {
    let first = stream::iter([Ok(http_body::Frame::data(Bytes::from_static(beginning)))]);
    let body = StreamBody::new(first.chain(stream::pending())).boxed_unsync();
    Response::new(body)
}

fn source(answer: impl Fn(Request<()>) -> Answer + Send + Sync + 'static) -> KubeSource<ConfigMap> {
    KubeSource::new(client(answer), Scope::all())
}

async fn list(source: &impl ListWatch) -> Result<(Vec<String>, Page), SourceError> {
    let mut items = Vec::new();
    let mut on_item = |item: RawItem<'_>| {
        items.push(match item {
            RawItem::Json(json) => String::from_utf8_lossy(json).into_owned(),
            RawItem::TooLarge { .. } => "too large".into(),
        });
    };
    let page = source.list(ListOptions::default(), &mut on_item).await?;
    Ok((items, page))
}

async fn watch(source: &impl ListWatch) -> Vec<Result<WatchEvent, SourceError>> {
    source
        .watch(ListOptions::default())
        .await
        .unwrap()
        .collect()
        .await
}

/// Returns the requests of a list, a watch and a streaming list: path and query, Accept,
/// Accept-Encoding.
async fn requests<K: 'static>(make: impl FnOnce(Client) -> KubeSource<K>) -> Vec<[String; 3]> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let client = client(move |request| {
        let header = |name| {
            request
                .headers()
                .get(name)
                .map_or("", |value| value.to_str().unwrap())
                .to_owned()
        };
        log.lock().push([
            request.uri().to_string(),
            header(ACCEPT),
            header(ACCEPT_ENCODING),
        ]);
        whole(200, r#"{"items":[]}"#)
    });
    let source = make(client);
    let options = ListOptions {
        resource_version: Some("7".into()),
        timeout: Some(Duration::from_secs(301)),
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    source.list(options.clone(), &mut |_| {}).await.unwrap();
    drop(source.watch(options.clone()).await.unwrap());
    let streaming = ListOptions {
        send_initial_events: true,
        resource_version: None,
        ..options
    };
    drop(source.watch(streaming).await.unwrap());
    seen.lock().clone()
}

/// Proves reflector/watch-request, reflector/watchlist-request, source/requests.
#[tokio::test]
async fn requests_carry_the_options() {
    let seen = requests(|client| KubeSource::<ConfigMap>::new(client, Scope::all())).await;
    assert_eq!(
        seen[0],
        [
            "/api/v1/configmaps?&resourceVersion=7",
            "application/json",
            ""
        ]
        .map(String::from)
    );
    assert_eq!(
        seen[1][0],
        "/api/v1/configmaps?&watch=true&timeoutSeconds=301&allowWatchBookmarks=true\
         &resourceVersion=7"
    );
    assert_eq!(
        seen[2][0],
        "/api/v1/configmaps?&watch=true&timeoutSeconds=301&allowWatchBookmarks=true\
         &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
    );
    assert_eq!(
        (seen[1][2].as_str(), seen[2][2].as_str()),
        ("identity", "identity")
    );
}

/// Proves source/requests.
#[tokio::test]
async fn requests_carry_scope_selectors_and_kind() {
    let scope = || {
        Scope::namespace("shop")
            .labels("app=web")
            .fields("metadata.name=a")
    };
    let seen = requests(|client| KubeSource::<Deployment>::new(client, scope())).await;
    let path = "/apis/apps/v1/namespaces/shop/deployments?";
    let selectors = "fieldSelector=metadata.name%3Da&labelSelector=app%3Dweb";
    assert_eq!(seen[0][0], format!("{path}&{selectors}&resourceVersion=7"));
    assert!(seen[1][0].starts_with(path) && seen[1][0].contains(selectors));

    let foo = ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", "Foo"));
    let seen = requests(|client| {
        KubeSource::<DynamicObject>::dynamic(client, &foo, Scope::namespace("a"))
    })
    .await;
    assert!(seen[0][0].starts_with("/apis/example.io/v1/namespaces/a/foos?"));

    let seen =
        requests(|client| KubeSource::<PartialObjectMeta<ConfigMap>>::new(client, Scope::all()))
            .await;
    assert_eq!(
        seen[0][1],
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    );
    assert_eq!(
        seen[1][1],
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    );

    let seen = requests(|client| {
        KubeSource::<ConfigMap>::new(client, Scope::all())
            .tweak_list_options(|options| options.label_selector = Some("late=yes".into()))
    })
    .await;
    assert!(
        seen.iter()
            .all(|[uri, ..]| uri.contains("labelSelector=late%3Dyes"))
    );
}

#[tokio::test]
async fn source_describes_its_kind_and_scope() {
    let client = client(|_| whole(200, ""));
    let source = KubeSource::<Deployment>::new(client.clone(), Scope::namespace("shop"));
    assert_eq!(source.describe(), "deployments.apps in namespace shop");
    assert_eq!(source.expected_type(), Some(("apps/v1", "Deployment")));
    let source = KubeSource::<PartialObjectMeta<ConfigMap>>::new(client, Scope::all());
    assert_eq!(source.describe(), "configmaps at cluster scope");
    assert_eq!(source.expected_type(), None);
}

/// Proves reflector/items-stream.
#[tokio::test(start_paused = true)]
async fn items_are_emitted_before_the_list_is_complete() {
    let source = source(|_| hanging(br#"{"items":[{"a":1},{"b"#));
    let seen = AtomicUsize::new(0);
    let mut on_item = |_: RawItem<'_>| {
        seen.fetch_add(1, Ordering::SeqCst);
    };
    let outcome = source.list(ListOptions::default(), &mut on_item).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    // A stalled list times out.
    assert!(matches!(outcome, Err(SourceError::IdleTimeout(time)) if time == IDLE_TIMEOUT));
}

/// Proves reflector/status.
#[tokio::test]
async fn server_errors_keep_the_servers_message() {
    let forbidden = |_| {
        whole(
            403,
            r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"configmaps is forbidden"}"#,
        )
    };
    let error = list(&source(forbidden)).await.unwrap_err();
    assert_eq!(error.to_string(), "403 Forbidden: configmaps is forbidden");

    let busy = |_| {
        let mut answer = whole(429, "<html>slow down</html>");
        answer
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("7"));
        answer
    };
    let error = source(busy)
        .watch(ListOptions::default())
        .await
        .unwrap_err();
    assert!(error.is_too_many_requests());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(
        error.to_string(),
        "429 Too Many Requests: <html>slow down</html>"
    );

    let endless = |_| {
        let chunk = Bytes::from(vec![b'x'; 1000]);
        chunks(500, vec![chunk; 1000])
    };
    let error = list(&source(endless)).await.unwrap_err();
    assert_eq!(error.api().unwrap().message.len(), 200);
}

/// Proves reflector/watch-errors.
#[tokio::test]
async fn refused_connection_differs_from_other_failures() {
    let fails = |kind| {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            Err::<Response<Body>, _>(std::io::Error::from(kind))
        });
        KubeSource::<ConfigMap>::new(Client::new(service, "default"), Scope::all())
    };
    let error = list(&fails(std::io::ErrorKind::ConnectionRefused))
        .await
        .unwrap_err();
    assert!(
        matches!(error, SourceError::ConnectionRefused(_)),
        "{error:?}"
    );
    let error = list(&fails(std::io::ErrorKind::ConnectionReset))
        .await
        .unwrap_err();
    assert!(matches!(error, SourceError::Transport(_)), "{error:?}");
}

/// Proves reflector/not-a-list.
#[tokio::test]
async fn truncated_list_is_a_typed_error() {
    let error = list(&source(|_| whole(200, r#"{"items":[{"a":1},{"b":"#)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            SourceError::Body(BodyError::CutOff {
                at: 23,
                inside: "an item"
            })
        ),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "response body ended after 23 bytes, inside an item"
    );
}

/// Proves reflector/not-a-list.
#[tokio::test]
async fn table_is_an_error() {
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[]}"#;
    let error = list(&source(move |_| whole(200, table))).await.unwrap_err();
    assert!(
        matches!(error, SourceError::Body(BodyError::Table(_))),
        "{error:?}"
    );
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Proves reflector/object-size-limit.
#[tokio::test]
async fn large_object_passes_through_list_and_watch() {
    let object = format!(r#"{{"data":"{}"}}"#, "x".repeat(1_500_000));
    let line = event("ADDED", &object);
    let body = Bytes::from(line);
    let pieces: Vec<Bytes> = body.chunks(8192).map(Bytes::copy_from_slice).collect();
    let events = watch(&source(move |_| chunks(200, pieces.clone()))).await;
    assert_eq!(events.len(), 1);
    assert!(matches!(&events[0], Ok(WatchEvent::Added(json)) if json.len() == object.len()));

    let body = Bytes::from(format!(r#"{{"items":[{object},{object}]}}"#));
    let pieces: Vec<Bytes> = body.chunks(8192).map(Bytes::copy_from_slice).collect();
    let (items, _) = list(&source(move |_| chunks(200, pieces.clone())))
        .await
        .unwrap();
    assert_eq!(
        items.iter().map(String::len).collect::<Vec<_>>(),
        [object.len(); 2]
    );
}

/// Proves reflector/object-size-limit.
#[tokio::test]
async fn endless_line_ends_the_watch() {
    let first = Bytes::from(event("ADDED", "{}"));
    let endless = move |_: Request<()>| {
        let chunk = Bytes::from_static(&[b'x'; 1024]);
        let frames = stream::iter([first.clone()])
            .chain(stream::repeat(chunk))
            .map(|chunk| Ok(http_body::Frame::data(chunk)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    };
    let events = watch(&source(endless).object_limit(100_000)).await;
    assert_eq!(events.len(), 2);
    assert!(matches!(
        events[1],
        Err(SourceError::Body(BodyError::TooLarge {
            limit: 100_000,
            ..
        }))
    ));
}

/// Proves reflector/resume-after-disconnect.
#[tokio::test]
async fn truncated_watch_ends_and_broken_watch_fails() {
    let cut = event("ADDED", "{}") + r#"{"type":"ADDED","obj"#;
    let events = watch(&source(move |_| whole(200, cut.clone()))).await;
    assert_eq!(events.len(), 1);
    assert!(events[0].is_ok());

    let broken = |_: Request<()>| {
        let frames = stream::iter([
            Ok(http_body::Frame::data(Bytes::from(event("DELETED", "{}")))),
            Err(BoxError::from("reset by peer")),
        ]);
        Response::new(StreamBody::new(frames).boxed_unsync())
    };
    let events = watch(&source(broken)).await;
    assert!(matches!(events[0], Ok(WatchEvent::Deleted(_))));
    assert!(matches!(events[1], Err(SourceError::Transport(_))));
    assert_eq!(events.len(), 2);

    let events = watch(&source(|_| whole(200, "no event\n{}\n"))).await;
    assert!(matches!(
        events[..],
        [Err(SourceError::Body(BodyError::NotAnEvent))]
    ));
}
