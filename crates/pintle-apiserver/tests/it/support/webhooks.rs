//! A webhook server over TLS.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

/// A handler of requests: receives the path and query, and the body.
type Answer = dyn Fn(String, Value) -> Response<Full<Bytes>> + Send + Sync;

/// A running server.
pub struct WebhookServer {
    pub address: SocketAddr,
    /// The CA bundle, in base64.
    pub bundle: String,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    /// Whether responses may be sent.
    gate: watch::Sender<bool>,
}

/// A marker that makes the server close the connection without a response.
#[derive(Clone, Copy)]
struct HangUp;

/// Returns a response that makes the server close the connection.
pub fn hang_up() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    response.extensions_mut().insert(HangUp);
    response
}

/// Decrements a counter on drop.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl WebhookServer {
    /// Serves with a certificate for these names.
    pub async fn start(
        names: &[&str],
        answer: impl Fn(String, Value) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        Self::serve(&certificate, &key, &authority.pem(), answer).await
    }

    /// Serves with a self-signed CA certificate for a name.
    pub async fn self_signed(
        name: &str,
        answer: impl Fn(String, Value) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self::serve(&certificate, &key, &certificate.pem(), answer).await
    }

    async fn serve(
        certificate: &Certificate,
        key: &KeyPair,
        bundle: &str,
        answer: impl Fn(String, Value) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer: Arc<Answer> = Arc::new(answer);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let open = Arc::new(AtomicUsize::new(0));
        let opened = Arc::clone(&open);
        let (gate, opening) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                opened.fetch_add(1, Ordering::SeqCst);
                let open = Open(Arc::clone(&opened));
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                let opening = opening.clone();
                tokio::spawn(async move {
                    let _open = open;
                    let Ok(stream) = acceptor.accept(socket).await else {
                        return;
                    };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, mut opening) = (Arc::clone(&answer), opening.clone());
                        async move {
                            let path = request.uri().to_string();
                            let body = request.into_body().collect().await;
                            let body = body.map_err(io::Error::other)?.to_bytes();
                            let body = serde_json::from_slice(&body).unwrap_or_default();
                            let response = answer(path, body);
                            let _ = opening.wait_for(|open| *open).await;
                            match response.extensions().get::<HangUp>() {
                                Some(HangUp) => Err(io::ErrorKind::ConnectionAborted.into()),
                                None => Ok::<_, io::Error>(response),
                            }
                        }
                    });
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            bundle: STANDARD.encode(bundle),
            connections,
            open,
            gate,
        }
    }

    /// Returns a client configuration with a URL.
    pub fn url(&self, path: &str) -> Value {
        let port = self.address.port();
        json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": self.bundle})
    }

    /// Holds back all responses until [`release`](Self::release).
    pub fn hold(&self) {
        self.gate.send_replace(false);
    }

    pub fn release(&self) {
        self.gate.send_replace(true);
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Returns how many times a client connected.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Returns a response with a JSON body.
pub fn answer(body: &Value) -> Response<Full<Bytes>> {
    Response::new(Full::from(body.to_string()))
}

/// Returns a review that answers `asked`.
pub fn review(asked: &Value, mut response: Value) -> Value {
    response["uid"] = asked["request"]["uid"].clone();
    json!({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response})
}

/// Returns an admission response with a JSON patch.
pub fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch",
        "patch": STANDARD.encode(operations.to_string())})
}
