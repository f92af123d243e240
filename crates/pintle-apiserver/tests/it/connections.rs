//! Limits on the resources that a client can hold on a listener, and on how long it can hold them.
//!
//! Tests wait for conditions, with deadlines that a working server never approaches.

use std::{io, time::Duration};

use crate::support::tls::{admin_token, tls};
use pintle_apiserver::{ApiServer, Bound, ServeOptions};
use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::client::TlsStream;

const DEADLINE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3600);

const HTTP1: &str = "http/1.1";
const HTTP2: &str = "h2";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Timeouts that no test runs into.
fn patient() -> ServeOptions {
    ServeOptions::default()
        .handshake_timeout(HOUR)
        .header_timeout(HOUR)
        .idle_timeout(HOUR)
        .body_timeout(HOUR)
        .write_timeout(HOUR)
        .keep_alive(HOUR, HOUR)
}

async fn serve(options: ServeOptions) -> (ApiServer, Bound) {
    let server = ApiServer::builder().build();
    let bound = server.serve_with("127.0.0.1:0", options).await.unwrap();
    (server, bound)
}

async fn tcp(bound: &Bound) -> TcpStream {
    TcpStream::connect(bound.address()).await.unwrap()
}

/// Reads until the server closes the connection, cleanly or not.
async fn until_closed(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    let closed = timeout(DEADLINE, stream.read_to_end(&mut bytes)).await;
    let _clean = closed.expect("the server did not close the connection");
    bytes
}

fn request(bound: &Bound, method: &str, path: &str, length: usize) -> String {
    let token = admin_token(bound);
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// Reads until `end` arrives.
async fn read_until(stream: &mut TlsStream<TcpStream>, end: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if text.contains(end) {
            return Ok(text);
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Requests `/readyz` and returns the connection, which stays open.
async fn probe(bound: &Bound) -> io::Result<TlsStream<TcpStream>> {
    let probe = async {
        let mut stream = tls(bound, Some(HTTP1)).await?;
        let request = request(bound, "GET", "/readyz", 0);
        stream.write_all(request.as_bytes()).await?;
        read_until(&mut stream, "\r\n\r\nok").await?;
        Ok(stream)
    };
    timeout(DEADLINE, probe)
        .await
        .expect("neither a response nor a close")
}

/// Probes until it succeeds.
async fn wait_until_served(bound: &Bound) {
    let served = async {
        while probe(bound).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, served)
        .await
        .expect("not served again in time");
}

/// Opens an HTTP/2 connection, sends one GET, and allows the server to send `window` bytes of each
/// response body.
async fn http2_get(bound: &Bound, path: &str, token: &str, window: u32) -> TlsStream<TcpStream> {
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let settings = [
        &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4][..],
        &window.to_be_bytes(),
    ]
    .concat();
    let literal = |name: &[u8], value: &str| {
        let length = u8::try_from(value.len()).expect("value too long");
        assert!(length < 127, "longer strings need a second length byte");
        [name, &[length], value.as_bytes()].concat()
    };
    // The static table of HPACK has GET, https and the names of the other headers.
    let mut block = vec![0x82, 0x87];
    block.extend(literal(&[0x04], path));
    block.extend(literal(&[0x01], "localhost"));
    if !token.is_empty() {
        block.extend(literal(&[0x0f, 0x08], &format!("Bearer {token}")));
    }
    let length = u8::try_from(block.len()).expect("head too long");
    // END_STREAM and END_HEADERS, on stream 1.
    let head = [0, 0, length, 1, 5, 0, 0, 0, 1];
    let mut stream = tls(bound, Some(HTTP2)).await.unwrap();
    stream
        .write_all(&[PREFACE, &settings, &head, &block].concat())
        .await
        .unwrap();
    stream
}

/// Reads frames until the head of a response arrives.
async fn read_head(stream: &mut TlsStream<TcpStream>) {
    let read = async {
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == 1 {
                return;
            }
        }
    };
    timeout(DEADLINE, read).await.expect("no response");
}

/// Opens a watch and reads its first event.
async fn watch(bound: &Bound) -> TlsStream<TcpStream> {
    let mut stream = tls(bound, Some(HTTP1)).await.unwrap();
    let request = request(bound, "GET", "/api/v1/namespaces?watch=1", 0);
    stream.write_all(request.as_bytes()).await.unwrap();
    read_until(&mut stream, "ADDED").await.unwrap();
    stream
}

fn config_map(name: &str, size: usize) -> http::Request<String> {
    let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}});
    http::Request::post("/api/v1/namespaces/default/configmaps")
        .header("content-type", "application/json")
        .body(map.to_string())
        .unwrap()
}

/// Proves serve/timeouts.
#[tokio::test]
async fn connection_without_a_handshake_is_closed() {
    let (_server, bound) = serve(patient().handshake_timeout(SHORT)).await;
    until_closed(tcp(&bound).await).await;
}

/// Proves serve/timeouts.
#[tokio::test]
async fn tls_connection_that_sends_nothing_is_closed() {
    let (_server, bound) = serve(patient().header_timeout(SHORT)).await;
    for protocol in [None, Some(HTTP1), Some(HTTP2)] {
        until_closed(tls(&bound, protocol).await.unwrap()).await;
    }
}

/// Proves serve/timeouts.
#[tokio::test]
async fn partial_request_head_times_out() {
    let (_server, bound) = serve(patient().header_timeout(SHORT)).await;
    let mut stream = tls(&bound, Some(HTTP1)).await.unwrap();
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: l")
        .await
        .unwrap();
    until_closed(stream).await;
    let mut stream = tls(&bound, Some(HTTP2)).await.unwrap();
    stream.write_all(&PREFACE[..10]).await.unwrap();
    until_closed(stream).await;
}

/// Proves serve/timeouts.
#[tokio::test]
async fn idle_connection_is_closed_but_a_watch_is_not() {
    let options = patient()
        .idle_timeout(SHORT)
        .body_timeout(SHORT)
        .write_timeout(SHORT);
    let (server, bound) = serve(options).await;
    let mut watch = watch(&bound).await;
    let path = "/api/v1/namespaces?watch=1";
    let mut http2_watch = http2_get(&bound, path, &admin_token(&bound), 1 << 20).await;
    read_until(&mut http2_watch, "ADDED").await.unwrap();
    // By the time two idle connections have timed out in sequence, a watch subject to the timeout
    // would have ended.
    for _ in 0..2 {
        until_closed(probe(&bound).await.unwrap()).await;
    }
    let namespace = json!({"metadata": {"name": "later"}}).to_string();
    let create = http::Request::post("/api/v1/namespaces")
        .header("content-type", "application/json")
        .body(namespace)
        .unwrap();
    let created = tower::ServiceExt::oneshot(server.service(), create).await;
    assert_eq!(created.unwrap().status(), 201);
    for watch in [&mut watch, &mut http2_watch] {
        let event = timeout(DEADLINE, read_until(watch, "later")).await;
        event.unwrap().expect("the watch ended");
    }
}

/// Proves serve/timeouts.
#[tokio::test]
async fn slow_request_body_gets_408() {
    let (_server, bound) = serve(patient().body_timeout(SHORT)).await;
    let mut stream = tls(&bound, Some(HTTP1)).await.unwrap();
    let head = request(&bound, "POST", "/api/v1/namespaces", 10);
    stream
        .write_all(format!("{head}{{").as_bytes())
        .await
        .unwrap();
    let response = String::from_utf8(until_closed(stream).await).unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(response.contains("\"reason\":\"Timeout\""), "{response}");
}

/// Proves serve/timeouts.
#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let options = patient().write_timeout(SHORT).max_connections(1);
    let (server, bound) = serve(options).await;
    for number in 0..12 {
        let create = config_map(&format!("big-{number}"), 1_000_000);
        let created = tower::ServiceExt::oneshot(server.service(), create).await;
        assert_eq!(created.unwrap().status(), 201);
    }
    let mut stalled = tls(&bound, Some(HTTP1)).await.unwrap();
    let list = request(&bound, "GET", "/api/v1/configmaps", 0);
    stalled.write_all(list.as_bytes()).await.unwrap();
    // The response has started, so the connection is busy and cannot be evicted by a probe.
    stalled.read_u8().await.unwrap();
    wait_until_served(&bound).await;
    drop(stalled);
}

/// Proves serve/timeouts.
#[tokio::test]
async fn unread_http2_stream_ends_its_connection() {
    let options = patient().write_timeout(SHORT).max_connections(1);
    let (_server, bound) = serve(options).await;
    let mut stalled = http2_get(&bound, "/readyz", &admin_token(&bound), 0).await;
    read_head(&mut stalled).await;
    wait_until_served(&bound).await;
    drop(stalled);
}

/// Proves serve/connection-limit.
#[tokio::test]
async fn unauthenticated_connection_is_evicted() {
    let (_server, bound) = serve(patient().max_connections(1)).await;
    // The socket is read but the stream is not, so only the body of the 401 is stuck.
    let mut unauthenticated = http2_get(&bound, "/readyz", "", 0).await;
    read_head(&mut unauthenticated).await;
    probe(&bound).await.expect("not evicted");
    until_closed(unauthenticated).await;
}

/// Proves serve/timeouts.
#[tokio::test]
async fn peer_that_does_not_answer_pings_is_closed() {
    let (_server, bound) = serve(patient().keep_alive(SHORT, SHORT)).await;
    let mut stream = tls(&bound, Some(HTTP2)).await.unwrap();
    stream
        .write_all(&[PREFACE, SETTINGS].concat())
        .await
        .unwrap();
    let frames = until_closed(stream).await;
    let mut rest = &frames[..];
    let mut kinds = Vec::new();
    while let [a, b, c, kind, ..] = rest {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        rest = &rest[9 + length..];
    }
    assert!(kinds.contains(&6), "no PING frame: {kinds:?}");
}

/// Proves serve/connection-limit.
#[tokio::test]
async fn silent_connections_are_evicted() {
    let options = patient().max_connections(8).max_handshakes(4);
    let (_server, bound) = serve(options).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tcp(&bound).await);
    }
    probe(&bound)
        .await
        .expect("half-open connections were not evicted");
    until_closed(silent.swap_remove(0)).await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(tls(&bound, Some(HTTP2)).await.unwrap());
    }
    probe(&bound)
        .await
        .expect("idle connections were not evicted");
    until_closed(idle.swap_remove(0)).await;
}

/// Proves serve/connection-limit.
#[tokio::test]
async fn full_listener_resets_new_connections() {
    let (_server, bound) = serve(patient().max_connections(2)).await;
    let watches = [watch(&bound).await, watch(&bound).await];
    until_closed(tcp(&bound).await).await;
    assert!(probe(&bound).await.is_err());
    drop(watches);
    wait_until_served(&bound).await;
}

/// Proves wire/formats.
#[tokio::test]
async fn alpn_selects_the_protocol() {
    let (_server, bound) = serve(patient()).await;
    for protocol in [None, Some(HTTP1)] {
        let mut stream = tls(&bound, protocol).await.unwrap();
        stream
            .write_all(&[PREFACE, SETTINGS].concat())
            .await
            .unwrap();
        let response = until_closed(stream).await;
        assert!(
            response.is_empty() || response.starts_with(b"HTTP/1.1 4"),
            "{response:?}"
        );
    }
    let mut stream = tls(&bound, Some(HTTP2)).await.unwrap();
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(!until_closed(stream).await.starts_with(b"HTTP/1.1"));
    // HTTP/1.1 is the default without ALPN.
    let mut stream = tls(&bound, None).await.unwrap();
    let ready = request(&bound, "GET", "/readyz", 0);
    stream.write_all(ready.as_bytes()).await.unwrap();
    read_until(&mut stream, "\r\n\r\nok").await.unwrap();
}
