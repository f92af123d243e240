use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::inspect::Settings;

fn server(token: Option<&str>) -> Arc<Server> {
    Arc::new(Server {
        inspector: Inspector::new("tests"),
        token: token.map(str::to_owned),
        streams: Arc::new(Semaphore::new(STREAMS)),
        traces: Arc::new(Semaphore::new(TRACES)),
    })
}

/// Returns the status of the error response if a request with these headers and this query is
/// rejected.
fn refused(server: &Server, headers: &[(&'static str, &'static str)], query: &str) -> Option<u16> {
    let pairs = headers.iter().map(|&(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    });
    let refusal = server.refuse(&pairs.collect(), &Parameters::of(query));
    refusal.map(|refusal| refusal.status().as_u16())
}

#[test]
fn queries_are_decoded() {
    let query = Parameters::of("key=a%2Fb&search=x+y&bad=%zz&limit=7&problems=true");
    assert_eq!(query.get("key"), Some("a/b"));
    assert_eq!(query.get("bad"), Some("%zz"));
    let list = query.list();
    assert_eq!(
        (list.search.as_str(), list.limit, list.problems),
        ("x y", 7, true)
    );
    assert!(query.key().is_err());
}

#[test]
fn tokens_are_compared_as_a_whole() {
    assert!(is_same(b"abc", b"abc"));
    for other in [&b"ab"[..], b"abcd", b"abd", b""] {
        assert!(!is_same(other, b"abc"));
    }
    assert_ne!(random_token().unwrap(), random_token().unwrap());
}

#[tokio::test]
async fn empty_token_is_rejected() {
    for token in ["", " \n"] {
        let inspector = Settings::new("tests").token(token).build();
        let error = inspector.serve("127.0.0.1:0").await.unwrap_err();
        assert!(matches!(error, ServeError::EmptyToken), "{error}");
    }
}

#[test]
fn absent_credential_matches_no_token() {
    assert_eq!(refused(&server(Some("")), &[], ""), Some(401));
    let server = server(Some("abc"));
    assert_eq!(refused(&server, &[], ""), Some(401));
    assert_eq!(refused(&server, &[], "token="), Some(401));
    assert_eq!(refused(&server, &[], "token=abc"), None);
    let bearer = [("authorization", "Bearer abc")];
    assert_eq!(refused(&server, &bearer, ""), None);
}

#[test]
fn without_a_token_the_host_has_to_be_local() {
    let server = server(None);
    assert_eq!(refused(&server, &[], ""), Some(403));
    for host in [
        "localhost",
        "LocalHost:80",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:80",
    ] {
        assert_eq!(refused(&server, &[("host", host)], ""), None, "{host}");
    }
    for host in [
        "",
        "evil.example.com",
        "localhost.example.com",
        "[::2]",
        "::1",
        "127.0.0.1.nip.io",
    ] {
        assert_eq!(refused(&server, &[("host", host)], ""), Some(403), "{host}");
    }
}

/// Sends a request to a server without a token over a connection that buffers only 64 bytes.
/// Returns the client's side, and a task that returns how long the connection lasted.
async fn request(server: Arc<Server>, path: &str) -> (DuplexStream, JoinHandle<Duration>) {
    let (mut client, stream) = duplex(64);
    let begun = Instant::now();
    let serving = tokio::spawn(async move {
        server.serve_connection(stream).await;
        begun.elapsed()
    });
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    (client, serving)
}

#[tokio::test(start_paused = true)]
async fn peers_that_never_read_are_disconnected() {
    for (path, limit) in [
        ("/", RESPONSE_TIMEOUT),
        ("/api/v1/stream", RESPONSE_TIMEOUT + STREAM_AGE),
    ] {
        let (_client, serving) = request(server(None), path).await;
        let lasted = timeout(Duration::from_hours(1), serving).await;
        let lasted = lasted.expect(path).unwrap();
        let expected = limit..=limit + Duration::from_secs(1);
        assert!(expected.contains(&lasted), "{path}: {lasted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_ends_at_its_maximum_age() {
    let server = server(None);
    let (mut client, serving) = request(Arc::clone(&server), "/api/v1/stream").await;
    let mut answer = String::new();
    let read = timeout(Duration::from_hours(1), client.read_to_string(&mut answer));
    read.await.expect("the stream ends").unwrap();
    assert!(answer.ends_with("\r\n0\r\n\r\n"), "the body is complete");
    assert!(answer.matches("event: now").count() > 200);
    let lasted = serving.await.unwrap();
    assert!(
        lasted >= STREAM_AGE && lasted < STREAM_AGE + REFRESH,
        "{lasted:?}"
    );
    assert_eq!(server.streams.available_permits(), STREAMS);
}

#[tokio::test]
async fn one_trace_is_taken_at_a_time() {
    let server = server(None);
    let status = async || {
        let (mut client, _serving) = request(Arc::clone(&server), "/api/v1/trace").await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).map(str::to_owned)
    };
    let running = Arc::clone(&server.traces).try_acquire_owned().unwrap();
    assert_eq!(status().await.as_deref(), Some("503"));
    drop(running);
    for _ in 0..2 {
        assert_eq!(status().await.as_deref(), Some("200"));
    }
}

#[tokio::test]
async fn token_of_the_operator_is_not_logged() {
    let inspector = Settings::new("tests").token("hunter2").build();
    let serving = inspector.serve("127.0.0.1:0").await.unwrap();
    assert_eq!(
        serving.logged_url(),
        format!("http://{}/", serving.address())
    );
    assert!(serving.url().ends_with("hunter2"));
    let serving = Inspector::new("tests").serve("127.0.0.1:0").await.unwrap();
    assert_eq!(serving.logged_url(), serving.url());
}
