//! The program under thousands of clients: idle, half-open, slow, and writing ones. This is in the
//! real tier because it needs sockets and a minute.

#![cfg(target_os = "linux")]
use std::{fs, net::SocketAddr, sync::Arc, time::Duration};

use crate::support::program::Program;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use kube::config::Kubeconfig;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const IDLE: usize = 5000;
const HALF_OPEN: usize = 500;
const SLOW_WATCHERS: usize = 200;
const WRITERS: usize = 1000;

/// The number of slow watchers that eventually read everything; the others disconnect.
const LATE_READERS: usize = 10;

/// The number of concurrent connects, well below the handshake limit of the server.
const CONNECTING: usize = 64;

/// The maximum peak resident memory. A debug build needs about 370 MiB.
const MEMORY: u64 = 512 << 20;

/// The maximum growth of resident memory from the first load to the second.
///
/// The allocator retains freed memory, so a leak shows only in a second load, whose clients would
/// need another 250 MiB. The bounded watch history grows legitimately, because one load does not
/// fill it.
const GROWTH: u64 = 128 << 20;

/// The timeout of any operation. Only a hanging server takes this long.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The interval of requests of an idle client, below the idle timeout of the server.
const KEEP_ALIVE: Duration = Duration::from_secs(40);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Sender = SendRequest<Full<Bytes>>;

/// The program and what is needed to connect to it.
struct Server {
    program: Program,
    address: SocketAddr,
    tls: TlsConnector,
    token: String,
}

/// The resource usage of the server.
#[derive(Debug, Clone, Copy)]
struct Usage {
    resident: u64,
    peak: u64,
    files: usize,
}

impl Server {
    fn start() -> Self {
        let program = Program::start(&[]);
        let kubeconfig = Kubeconfig::read_from(&program.kubeconfig).unwrap();
        let kubeconfig = serde_json::to_value(kubeconfig).unwrap();
        let text = |pointer: &str| kubeconfig.pointer(pointer).unwrap().as_str().unwrap();
        let address = text("/clusters/0/cluster/server").strip_prefix("https://");
        let authority = text("/clusters/0/cluster/certificate-authority-data");
        let authority =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, authority);
        let mut roots = RootCertStore::empty();
        for certificate in rustls::pki_types::pem::PemObject::pem_slice_iter(&authority.unwrap()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let tls = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address: address.unwrap().parse().unwrap(),
            tls: Arc::new(tls).into(),
            token: text("/users/0/user/token").to_owned(),
            program,
        }
    }

    fn usage(&self) -> Usage {
        let process = format!("/proc/{}", self.program.id());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let size = line.unwrap().split_whitespace().next().unwrap();
            size.parse::<u64>().unwrap() * 1024
        };
        Usage {
            resident: kib("VmRSS:"),
            peak: kib("VmHWM:"),
            files: fs::read_dir(format!("{process}/fd")).unwrap().count(),
        }
    }

    /// Performs the TLS handshake.
    async fn connect(&self, socket: TcpStream) -> Sender {
        let name = ServerName::from(self.address.ip());
        let tls = self.tls.connect(name, socket).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    async fn open(&self) -> Sender {
        let connected = async {
            self.connect(TcpStream::connect(self.address).await.unwrap())
                .await
        };
        timeout(TIMEOUT, connected).await.unwrap()
    }

    async fn send(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Response<Incoming> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        sender.ready().await.unwrap();
        let response = timeout(TIMEOUT, sender.send_request(request)).await;
        response.expect("timed out").unwrap()
    }

    /// Sends a request, reads the whole response, and asserts its status.
    async fn call(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: &Value,
        expected: StatusCode,
    ) {
        let response = self.send(sender, method, path, body).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, expected, "{}", String::from_utf8_lossy(&body));
    }

    async fn get(&self, sender: &mut Sender) {
        let path = "/api/v1/namespaces/default";
        self.call(sender, Method::GET, path, &Value::Null, StatusCode::OK)
            .await;
    }
}

fn raise_file_limit(needed: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let allowed = limit.maximum.is_none_or(|maximum| maximum >= needed);
        assert!(
            allowed,
            "the test needs {needed} file descriptors: raise `ulimit -Hn`"
        );
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

/// Opens connections that send nothing or an incomplete TLS record.
async fn half_open(server: &Server) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for n in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if n % 2 == 1 {
            stream.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
        }
        streams.push(stream);
    }
    streams
}

/// Opens keep-alive connections that send a request occasionally. None of them may be closed.
async fn idle(server: &Arc<Server>, stop: &CancellationToken) -> JoinSet<()> {
    let opening = stream::iter(0..IDLE).map(|_| async {
        let mut sender = server.open().await;
        server.get(&mut sender).await;
        sender
    });
    let mut clients = JoinSet::new();
    let mut opening = opening.buffer_unordered(CONNECTING);
    while let Some(mut sender) = opening.next().await {
        let (server, stop) = (Arc::clone(server), stop.clone());
        clients.spawn(async move {
            while timeout(KEEP_ALIVE, stop.cancelled()).await.is_err() {
                server.get(&mut sender).await;
            }
        });
    }
    clients
}

/// Opens watches that are not read.
async fn slow_watchers(server: &Server) -> Vec<(Sender, Incoming)> {
    let mut watchers = Vec::new();
    for _ in 0..SLOW_WATCHERS {
        // With a small receive buffer, the server soon has to buffer.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut sender = server
            .connect(socket.connect(server.address).await.unwrap())
            .await;
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
        let response = server
            .send(&mut sender, Method::GET, &path, &Value::Null)
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        watchers.push((sender, response.into_body()));
    }
    watchers
}

/// Creates, updates twice and deletes one object per client, concurrently over as many connections.
async fn writes(server: &Arc<Server>) {
    let opening = stream::iter(0..WRITERS).map(|_| server.open());
    let senders: Vec<Sender> = opening.buffer_unordered(CONNECTING).collect().await;
    let mut writers = JoinSet::new();
    for (n, mut sender) in senders.into_iter().enumerate() {
        let server = Arc::clone(server);
        writers.spawn(async move {
            let path = format!("{CONFIG_MAPS}/load-{n}");
            let body = |turn: usize| {
                json!({
                    "metadata": { "name": format!("load-{n}") },
                    "data": { "turn": turn.to_string(), "text": "0123456789abcdef".repeat(128) },
                })
            };
            server
                .call(
                    &mut sender,
                    Method::POST,
                    CONFIG_MAPS,
                    &body(0),
                    StatusCode::CREATED,
                )
                .await;
            for turn in 1..3 {
                server
                    .call(&mut sender, Method::PUT, &path, &body(turn), StatusCode::OK)
                    .await;
            }
            server
                .call(
                    &mut sender,
                    Method::DELETE,
                    &path,
                    &Value::Null,
                    StatusCode::OK,
                )
                .await;
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
}

/// Reads the backlog of a watch: every change in order, unless the server ends the watch with 410
/// or closes it. There must be no gap.
async fn catch_up(mut body: Incoming) {
    let mut line = Vec::new();
    let (mut seen, mut last) = (0, 0);
    while seen < 4 * WRITERS {
        let frame = timeout(TIMEOUT, body.frame()).await.expect("timed out");
        let Some(Ok(frame)) = frame else {
            // Closed because it is too slow; a client would resume from the last resourceVersion.
            return;
        };
        for byte in frame.into_data().unwrap_or_default() {
            line.push(byte);
            if byte != b'\n' {
                continue;
            }
            let event: Value = serde_json::from_slice(&line).unwrap();
            line.clear();
            if event["type"] == "ERROR" {
                assert_eq!(event["object"]["code"], 410, "{event}");
                return;
            }
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            let version: u64 = version.unwrap().parse().unwrap();
            assert!(version > last, "{version} after {last}");
            last = version;
            let name = event["object"]["metadata"]["name"].as_str().unwrap();
            seen += usize::from(name.starts_with("load-"));
        }
    }
}

/// Sends requests over old and new connections until `stop` is cancelled.
fn probe(server: &Arc<Server>, stop: &CancellationToken) -> JoinHandle<usize> {
    let (server, stop) = (Arc::clone(server), stop.clone());
    tokio::spawn(async move {
        let mut old = server.open().await;
        let mut responses = 0;
        while !stop.is_cancelled() {
            server.get(&mut old).await;
            server.get(&mut server.open().await).await;
            responses += 2;
            sleep(Duration::from_millis(50)).await;
        }
        responses
    })
}

/// Waits until the server has at most `files` open files.
async fn closed(server: &Server, files: usize) -> Usage {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let usage = server.usage();
        if usage.files <= files {
            return usage;
        }
        assert!(
            Instant::now() < deadline,
            "connections stay open: {usage:?}, not {files}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// Runs one load. Returns the resource usage afterwards.
async fn load(server: &Arc<Server>) -> Usage {
    let before = server.usage();
    let stop = CancellationToken::new();
    let idle = idle(server, &stop).await;
    let mut watchers = slow_watchers(server).await;
    let half_open = half_open(server).await;
    let loaded = server.usage();
    assert!(loaded.files >= IDLE + SLOW_WATCHERS, "{loaded:?}");
    writes(server).await;

    let late = watchers.split_off(SLOW_WATCHERS - LATE_READERS);
    drop(watchers);
    for (_sender, body) in late {
        catch_up(body).await;
    }
    stop.cancel();
    idle.join_all().await;
    // The server closes half-open connections by itself.
    for mut stream in half_open {
        let end = timeout(TIMEOUT, stream.read(&mut [0; 64])).await;
        end.expect("timed out").unwrap_or_default();
    }
    // The probe has one or two connections.
    closed(server, before.files + 4).await
}

/// Proves serve/load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_clients_leak_nothing() {
    raise_file_limit(8192);
    let server = Arc::new(Server::start());
    let stop = CancellationToken::new();
    let probe = probe(&server, &stop);

    let first = load(&server).await;
    let second = load(&server).await;
    println!("after the first load {first:?}, after the second {second:?}");
    assert!(second.peak <= MEMORY, "{second:?}");
    assert!(
        second.resident <= first.resident + GROWTH,
        "{first:?} {second:?}"
    );

    stop.cancel();
    assert!(probe.await.unwrap() > 0);
    let server = Arc::into_inner(server).unwrap();
    assert!(server.program.stop("TERM").await.success());
}
