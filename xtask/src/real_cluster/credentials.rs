//! The credentials of a control plane: a CA and certificates, a service-account key, tokens.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::run_dir::write_private;

/// Files in one directory, regenerated at each start.
pub(crate) struct Credentials {
    folder: PathBuf,
    ca: String,
    admin_token: String,
    manager_token: String,
}

impl Credentials {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let ca_key = KeyPair::generate()?;
        let mut ca_params = CertificateParams::default();
        ca_params
            .distinguished_name
            .push(DnType::CommonName, "pintle-real-cluster");
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca_params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = ca_params.self_signed(&ca_key)?.pem();
        write_private(&folder.join("ca.crt"), &ca)?;
        write_private(&folder.join("ca.key"), &ca_key.serialize_pem())?;

        // One certificate for everything: etcd and the API server serve with it, and the API server
        // presents it to etcd.
        let key = KeyPair::generate()?;
        let names = [
            "localhost",
            "127.0.0.1",
            "kubernetes",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(String::from).to_vec())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "control-plane");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let issuer = Issuer::new(ca_params, ca_key);
        write_private(
            &folder.join("tls.crt"),
            &params.signed_by(&key, &issuer)?.pem(),
        )?;
        write_private(&folder.join("tls.key"), &key.serialize_pem())?;

        let accounts = KeyPair::generate()?;
        write_private(
            &folder.join("service-accounts.key"),
            &accounts.serialize_pem(),
        )?;
        write_private(
            &folder.join("service-accounts.pub"),
            &accounts.public_key_pem(),
        )?;

        let (admin_token, manager_token) = (token()?, token()?);
        let tokens = format!(
            "{admin_token},admin,admin,system:masters\n\
             {manager_token},system:kube-controller-manager,system:kube-controller-manager\n"
        );
        write_private(&folder.join("tokens.csv"), &tokens)?;
        Ok(Self {
            folder: folder.to_owned(),
            ca,
            admin_token,
            manager_token,
        })
    }

    /// Returns the path of one of the files, for a command-line flag.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Writes the admin's kubeconfig to `admin`, and the controller manager's next to the keys.
    pub(crate) fn write_kubeconfigs(&self, admin: &Path, port: u16) -> Result<()> {
        write_private(admin, &self.kubeconfig(port, "admin", &self.admin_token))?;
        let manager = self.kubeconfig(port, "kube-controller-manager", &self.manager_token);
        write_private(&self.folder.join("controller-manager.kubeconfig"), &manager)
    }

    fn kubeconfig(&self, port: u16, user: &str, token: &str) -> String {
        let ca = STANDARD.encode(&self.ca);
        format!(
            "apiVersion: v1
kind: Config
clusters:
- name: pintle-real-cluster
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    token: {token}
contexts:
- name: pintle-real-cluster
  context:
    cluster: pintle-real-cluster
    user: {user}
current-context: pintle-real-cluster
"
        )
    }
}

/// Returns a random token of 256 bits.
fn token() -> Result<String> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
