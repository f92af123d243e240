//! Connections to a listener: raw TLS streams and clients of a kubeconfig.

use std::{io, sync::Arc};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use pintle_apiserver::Bound;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects and completes the handshake, with this ALPN protocol if any.
pub async fn tls(bound: &Bound, protocol: Option<&str>) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(bound.authority_pem().as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocol
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, TcpStream::connect(bound.address()).await?)
        .await
}

/// Returns the administrator's token.
pub fn admin_token(bound: &Bound) -> String {
    let kubeconfig = bound.kubeconfig();
    let token = kubeconfig.split_once("token: ").unwrap().1.lines().next();
    token.unwrap().to_owned()
}

/// Returns the client configuration of a kubeconfig.
pub async fn config_of(kubeconfig: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.unwrap()
}

/// Returns a client of a kubeconfig.
pub async fn client_of(kubeconfig: &str) -> Client {
    Client::try_from(config_of(kubeconfig).await).unwrap()
}

/// Returns a certificate signing request in PEM for a user in a group.
pub fn signing_request(user: &str, group: &str) -> String {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, user);
    name.push(DnType::OrganizationName, group);
    let request = params.serialize_request(&KeyPair::generate().unwrap());
    request.unwrap().pem().unwrap()
}

/// Returns a certificate in PEM.
pub fn certificate() -> String {
    let params = CertificateParams::default();
    let made = params.self_signed(&KeyPair::generate().unwrap());
    made.unwrap().pem()
}
