//! Watches over WebSocket.

use std::time::Duration;

use crate::support::{
    tls::{admin_token, tls},
    *,
};
use pintle_apiserver::{ApiServer, Bound};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// A deadline for events that should arrive immediately.
const SOON: Duration = Duration::from_secs(10);
/// The example key of RFC 6455, and the expected response to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct Socket {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

/// Sends an upgrade request and returns the head of the response.
async fn request(bound: &Bound, path: &str, headers: &[&str]) -> (Socket, String) {
    let mut stream = tls(bound, None).await.unwrap();
    let token = admin_token(bound);
    let mut request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut socket = Socket {
        stream,
        buffer: Vec::new(),
    };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(socket.take(1).await);
    }
    (socket, String::from_utf8(head).unwrap().to_lowercase())
}

/// Opens a watch over WebSocket.
async fn open(bound: &Bound, path: &str) -> Socket {
    let (socket, head) = request(bound, path, &upgrade()).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    let accept = format!("sec-websocket-accept: {}", ACCEPT.to_lowercase());
    assert!(head.contains(&accept), "{head}");
    assert!(head.contains("upgrade: websocket"), "{head}");
    socket
}

fn upgrade() -> [&'static str; 5] {
    const KEY_HEADER: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    assert!(KEY_HEADER.ends_with(KEY));
    [
        "connection: keep-alive, Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "origin: https://localhost",
        KEY_HEADER,
    ]
}

impl Socket {
    async fn take(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            let read = self.stream.read_buf(&mut self.buffer);
            let read = tokio::time::timeout(SOON, read)
                .await
                .expect("no data in time");
            assert_ne!(read.unwrap(), 0, "the server closed the connection");
        }
        self.buffer.drain(..count).collect()
    }

    /// Returns the first byte and the payload of the next frame.
    async fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.take(2).await;
        let length = match head[1] {
            126 => {
                let length = self.take(2).await;
                u64::from(u16::from_be_bytes(length.try_into().unwrap()))
            }
            127 => u64::from_be_bytes(self.take(8).await.try_into().unwrap()),
            length => u64::from(length),
        };
        (head[0], self.take(usize::try_from(length).unwrap()).await)
    }

    /// Returns the next event, which must be one text message.
    async fn event(&mut self) -> Value {
        let (first, payload) = self.frame().await;
        assert_eq!(first, 0x81, "not an unfragmented text message");
        serde_json::from_slice(&payload).unwrap()
    }

    /// Sends a frame with a zero mask, which leaves the payload unchanged.
    async fn send(&mut self, opcode: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0x80 | opcode, 0x80 | length, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await.unwrap();
    }
}

/// Proves watch/requests, watch/complete-and-ordered, wire/watches.
#[tokio::test]
async fn websocket_watch_sends_text_messages() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let http = http(&server);
    let path = format!("{CONFIG_MAPS}?watch=true");
    http.post(CONFIG_MAPS, &config_map("a")).await;
    let mut socket = open(&bound, &path).await;
    let event = socket.event().await;
    assert_eq!(event["type"], "ADDED");
    assert_eq!(event["object"]["metadata"]["name"], "a");
    let mut large = config_map("b");
    large["data"] = json!({"k": "v".repeat(100_000)});
    http.post(CONFIG_MAPS, &large).await;
    assert_eq!(socket.event().await["object"]["data"], large["data"]);

    socket.send(0x9, b"hello").await;
    assert_eq!(socket.frame().await, (0x8a, b"hello".to_vec()));
    socket.send(0x1, b"ignored").await;
    socket.send(0x8, &1000_u16.to_be_bytes()).await;
    assert_eq!(socket.frame().await, (0x88, vec![3, 232]));
    bound.shutdown().await;
}

/// Proves wire/watches.
#[tokio::test]
async fn websocket_watch_ends_with_a_close_frame() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let over = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    let mut socket = open(&bound, &over).await;
    assert_eq!(socket.frame().await, (0x88, vec![3, 232]));
    let mut socket = open(&bound, &format!("{CONFIG_MAPS}?watch=true")).await;
    let shutdown = tokio::spawn(bound.shutdown());
    assert_eq!(socket.frame().await, (0x88, vec![3, 233]));
    tokio::time::timeout(SOON, shutdown).await.unwrap().unwrap();
}

/// Proves wire/watches.
#[tokio::test]
async fn invalid_websocket_handshake_is_rejected() {
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let path = format!("{CONFIG_MAPS}?watch=true");
    for (missing, code) in [
        ("sec-websocket-version", "400"),
        ("sec-websocket-key", "400"),
        ("origin", "403"),
    ] {
        let headers = upgrade();
        let headers = headers.iter().filter(|header| !header.starts_with(missing));
        let headers: Vec<&str> = headers.copied().collect();
        let (_, head) = request(&bound, &path, &headers).await;
        let status = format!("http/1.1 {code} ");
        assert!(head.starts_with(&status), "without {missing}: {head}");
    }
    let offer = ["sec-websocket-protocol: base64.binary.k8s.io"];
    let (_, head) = request(&bound, &path, &[&upgrade()[..], &offer].concat()).await;
    assert!(
        head.contains(offer[0]),
        "the protocol was not confirmed: {head}"
    );
}

#[tokio::test]
async fn in_process_watch_cannot_be_upgraded() {
    let server = server();
    let mut request = http::Request::get(format!("{CONFIG_MAPS}?watch=true"));
    for header in upgrade() {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let body = http_body_util::Full::new(bytes::Bytes::new());
    let response = http(&server).send(request.body(body).unwrap()).await;
    assert_eq!(response.status(), 400);
}
