//! The program under more clients than it was made for: idle ones, silent ones, slow ones, and many
//! that write. In the real tier, because it takes a socket and a minute.

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

/// How many slow watchers read everything in the end; the others just go.
const LATE_READERS: usize = 10;

/// How many clients connect at a time, well below the server's limit for handshakes.
const CONNECTING: usize = 64;

/// How much the server may have resident at its peak. Unoptimized, it needs about 370 MiB.
const MEMORY: u64 = 512 << 20;

/// How much more may be resident after the second load than after the first.
///
/// Freed memory stays with the allocator, so a second load shows whether it was freed: its clients
/// would need another 250 MiB. What does grow is the bounded history for watches, which one load
/// does not fill.
const GROWTH: u64 = 128 << 20;

/// How long anything may take that should take a moment. Only a server that hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often an idle client lets the server know that it is there, within its idle timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(40);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

type Sender = SendRequest<Full<Bytes>>;

/// The program, and how to talk to it.
struct Server {
    program: Program,
    address: SocketAddr,
    tls: TlsConnector,
    token: String,
}

/// What the server holds.
#[derive(Debug, Clone, Copy)]
struct Vitals {
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

    fn vitals(&self) -> Vitals {
        let process = format!("/proc/{}", self.program.id());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let size = line.unwrap().split_whitespace().next().unwrap();
            size.parse::<u64>().unwrap() * 1024
        };
        Vitals {
            resident: kib("VmRSS:"),
            peak: kib("VmHWM:"),
            files: fs::read_dir(format!("{process}/fd")).unwrap().count(),
        }
    }

    /// A connection, after its TLS handshake.
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
        timeout(PATIENCE, connected).await.unwrap()
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
        let answer = timeout(PATIENCE, sender.send_request(request)).await;
        answer.expect("the server answers").unwrap()
    }

    /// Sends a request and reads the whole answer, whose status has to be `expected`.
    async fn call(
        &self,
        sender: &mut Sender,
        method: Method,
        path: &str,
        body: &Value,
        expected: StatusCode,
    ) {
        let answer = self.send(sender, method, path, body).await;
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, expected, "{}", String::from_utf8_lossy(&body));
    }

    async fn get(&self, sender: &mut Sender) {
        let path = "/api/v1/namespaces/default";
        self.call(sender, Method::GET, path, &Value::Null, StatusCode::OK)
            .await;
    }
}

fn raise_file_limit(wanted: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let allowed = limit.maximum.is_none_or(|maximum| maximum >= wanted);
        assert!(
            allowed,
            "the test needs {wanted} file descriptors: raise `ulimit -Hn`"
        );
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}

/// Connects and says nothing, or begins a TLS record and never ends it.
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

/// Connections that had one request and wait for the next. None of them may be lost.
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

/// Watches of every `ConfigMap` that nobody reads.
async fn slow_watchers(server: &Server) -> Vec<(Sender, Incoming)> {
    let mut watchers = Vec::new();
    for _ in 0..SLOW_WATCHERS {
        // The less the kernel takes in, the sooner the server has to hold back.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut sender = server
            .connect(socket.connect(server.address).await.unwrap())
            .await;
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0");
        let answer = server
            .send(&mut sender, Method::GET, &path, &Value::Null)
            .await;
        assert_eq!(answer.status(), StatusCode::OK);
        watchers.push((sender, answer.into_body()));
    }
    watchers
}

/// Each client creates an object of its own, changes it twice and deletes it, over a connection of
/// its own, all at once.
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

/// Reads what a watch missed. It gets every change in order, or is told that it is too late: a gap
/// in the middle would be a lie.
async fn catch_up(mut body: Incoming) {
    let mut line = Vec::new();
    let (mut seen, mut last) = (0, 0);
    while seen < 4 * WRITERS {
        let frame = timeout(PATIENCE, body.frame())
            .await
            .expect("the watch goes on");
        let Some(Ok(frame)) = frame else {
            // Closed for not reading: its client opens another from the last version it saw.
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

/// Asks the server again and again, over old and over new connections, until it is told to stop.
fn probe(server: &Arc<Server>, stop: &CancellationToken) -> JoinHandle<usize> {
    let (server, stop) = (Arc::clone(server), stop.clone());
    tokio::spawn(async move {
        let mut old = server.open().await;
        let mut answers = 0;
        while !stop.is_cancelled() {
            server.get(&mut old).await;
            server.get(&mut server.open().await).await;
            answers += 2;
            sleep(Duration::from_millis(50)).await;
        }
        answers
    })
}

async fn settled(server: &Server, files: usize) -> Vitals {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let vitals = server.vitals();
        if vitals.files <= files {
            return vitals;
        }
        assert!(
            Instant::now() < deadline,
            "connections stay open: {vitals:?}, not {files}"
        );
        sleep(Duration::from_millis(100)).await;
    }
}

/// One load from beginning to end. Returns what the server holds afterwards.
async fn load(server: &Arc<Server>) -> Vitals {
    let before = server.vitals();
    let stop = CancellationToken::new();
    let idle = idle(server, &stop).await;
    let mut watchers = slow_watchers(server).await;
    let half_open = half_open(server).await;
    let crowded = server.vitals();
    assert!(crowded.files >= IDLE + SLOW_WATCHERS, "{crowded:?}");
    writes(server).await;

    let late = watchers.split_off(SLOW_WATCHERS - LATE_READERS);
    drop(watchers);
    for (_sender, body) in late {
        catch_up(body).await;
    }
    stop.cancel();
    idle.join_all().await;
    // The server has given up on these by itself.
    for mut stream in half_open {
        let end = timeout(PATIENCE, stream.read(&mut [0; 64])).await;
        end.expect("a half-open connection is closed")
            .unwrap_or_default();
    }
    // The probe has one or two connections of its own.
    settled(server, before.files + 4).await
}

/// Proves serve/load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_clients_leave_nothing_behind() {
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
