//! Support for tests against a real control plane: clients, a namespace per test, and polling.
//!
//! Tests find the control plane through environment variables such as [`VARIABLE`], and never
//! through `KUBECONFIG`, which may point to a production cluster. Without the variables they fail
//! with instructions; they are never skipped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test support: a failure here fails the calling test"
)]

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Api, Client, Config, Resource, ResourceExt as _};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

mod link;
mod times;
mod world;

pub use link::Link;
pub use times::{is_about_now, is_in_a_year};
pub use world::Real;

/// Names the variable with the kubeconfig path of the control plane.
pub const VARIABLE: &str = "PINTLE_REAL_CLUSTER";

/// Names the variable with the path of xtask, which can restart the API server.
pub const XTASK_VARIABLE: &str = "PINTLE_XTASK";

/// Locked by every test: shared, or exclusively by a test that disrupts the control plane.
static CONTROL_PLANE: RwLock<()> = RwLock::const_new(());

/// Names the variable with the kubeconfig path of an API server without a controller manager.
pub const BARE_VARIABLE: &str = "PINTLE_REAL_API_SERVER";

/// How long [`eventually`] waits. On a busy machine the controller manager is slow.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Names the variable with the path of kubectl in the version of the control plane.
pub const KUBECTL_VARIABLE: &str = "PINTLE_REAL_KUBECTL";

/// Names the variable with the path of the replica that is elected by client-go.
pub const ELECTOR_VARIABLE: &str = "PINTLE_REAL_ELECTOR";

/// Names the variable with the kubeconfig path of the API server for the corpus of CRDs.
pub const CORPUS_SERVER_VARIABLE: &str = "PINTLE_REAL_CORPUS_SERVER";

/// Names the variable with the path of the corpus of CRDs.
pub const CORPUS_VARIABLE: &str = "PINTLE_CRD_CORPUS";

/// Names the variable that requests every object of the corpus instead of a selection.
pub const FULL_CORPUS_VARIABLE: &str = "PINTLE_CRD_CORPUS_FULL";

/// Returns the path in an environment variable.
///
/// # Panics
///
/// Panics if the variable is not set.
pub fn from_environment(variable: &str) -> PathBuf {
    kubeconfig_path(variable, std::env::var_os(variable)).unwrap_or_else(|error| panic!("{error}"))
}

fn kubeconfig_path(name: &str, value: Option<OsString>) -> Result<PathBuf, String> {
    match value {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(format!(
            "this test needs a real control plane, but {name} is not set: \
             run cargo xtask test-real, or start one with cargo xtask real-cluster up"
        )),
    }
}

/// Returns an administrator's client of the control plane, bound to the current runtime.
///
/// The client does not retry failed requests, so every response reaches the caller.
///
/// # Panics
///
/// Panics if no control plane is configured.
pub async fn client() -> Client {
    client_with(|_| {}).await
}

/// Returns a client that impersonates `user`, which has no permissions by default.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn client_as(user: &str) -> Client {
    client_with(|config| config.auth_info.impersonate = Some(user.to_owned())).await
}

/// Returns a client that connects through `link`.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn client_through(link: &Link) -> Client {
    let address = link.address();
    client_with(|config| {
        let url = format!("https://{address}");
        config.cluster_url = url.parse().expect("a URL");
    })
    .await
}

/// Returns the address of the API server.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn api_server_address() -> std::net::SocketAddr {
    let mut address = None;
    client_with(|config| address = config.cluster_url.authority().cloned()).await;
    let address = address.expect("a server in the kubeconfig");
    address.as_str().parse().expect("an address and a port")
}

/// Returns an administrator's client of the API server without a controller manager, where only
/// requests change objects.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn bare_client() -> Client {
    let path = from_environment(BARE_VARIABLE);
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig of the API server");
    client_from(kubeconfig, |_| {}).await
}

/// Returns an administrator's client of the API server for the corpus of CRDs.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn corpus_client() -> Client {
    let path = from_environment(CORPUS_SERVER_VARIABLE);
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig of the API server");
    client_from(kubeconfig, |_| {}).await
}

/// Returns a client for a kubeconfig, given as YAML.
///
/// # Panics
///
/// Panics if the kubeconfig is invalid.
pub async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    client_from(kubeconfig, |_| {}).await
}

/// Like [`bare_client`], without credentials.
///
/// # Panics
///
/// Panics like [`client`].
pub async fn bare_anonymous_client() -> Client {
    let path = from_environment(BARE_VARIABLE);
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig of the API server");
    client_from(kubeconfig, |config| config.auth_info = AuthInfo::default()).await
}

/// Like [`client_of`], without credentials.
///
/// # Panics
///
/// Panics if the kubeconfig is invalid.
pub async fn anonymous_client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    client_from(kubeconfig, |config| config.auth_info = AuthInfo::default()).await
}

async fn client_with(change: impl FnOnce(&mut Config)) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig()).expect("the control plane's kubeconfig");
    client_from(kubeconfig, change).await
}

async fn client_from(kubeconfig: Kubeconfig, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a usable kubeconfig");
    config.default_retry = false;
    config.proxy_url = None;
    change(&mut config);
    Client::try_from(config).expect("a client")
}

/// Returns the kubeconfig path of the control plane.
///
/// # Panics
///
/// Panics if no control plane is configured.
pub fn kubeconfig() -> PathBuf {
    from_environment(VARIABLE)
}

/// Returns the path of kubectl in the version of the control plane.
///
/// # Panics
///
/// Panics if none is configured.
pub fn kubectl() -> PathBuf {
    from_environment(KUBECTL_VARIABLE)
}

/// Returns the path of the API server's audit log, which has every new or updated Lease with its
/// contents, and every new ConfigMap.
///
/// # Panics
///
/// Panics if no control plane is configured.
pub fn audit_log() -> PathBuf {
    kubeconfig().with_file_name("logs").join("audit.log")
}

/// Returns the path of the audit log of the API server without a controller manager, which has every
/// request for a core object whose path ends in the name `audited`.
///
/// # Panics
///
/// Panics like [`client`].
pub fn bare_audit_log() -> PathBuf {
    from_environment(BARE_VARIABLE)
        .with_file_name("logs")
        .join("audit.log")
}

/// A namespace that is deleted at the end of its test, whether it passes or fails.
#[derive(Debug)]
pub struct TestNamespace {
    object: Namespace,
    client: NoDebug<Client>,
    #[allow(dead_code, reason = "a lock, released on drop")]
    access: Access,
}

/// How a test shares the control plane.
#[derive(Debug)]
#[allow(dead_code, reason = "locks, released on drop")]
enum Access {
    Shared(RwLockReadGuard<'static, ()>),
    Exclusive(RwLockWriteGuard<'static, ()>),
}

/// Disruptive operations, for tests with [exclusive access](TestNamespace::alone).
#[derive(Clone, Copy, Debug)]
pub struct ControlPlane(());

impl ControlPlane {
    /// Restarts the API server on the same port with the same data, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// Panics if the restart fails.
    pub async fn restart_api_server(self) {
        xtask("restart").await;
    }

    /// Compacts etcd up to the current revision.
    ///
    /// # Panics
    ///
    /// Panics if the compaction fails.
    pub async fn compact(self) {
        xtask("compact").await;
    }
}

async fn xtask(command: &'static str) {
    let path = kubeconfig();
    let xtask = std::env::var_os(XTASK_VARIABLE)
        .unwrap_or_else(|| panic!("{XTASK_VARIABLE} is not set: run cargo xtask test-real"));
    let run = move || {
        std::process::Command::new(xtask)
            .args(["real-cluster", command, "--dir"])
            .arg(path.parent().expect("a kubeconfig in a directory"))
            .output()
    };
    let run = tokio::task::spawn_blocking(run).await;
    let output = run.expect("no panic").expect("xtask");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} failed: {errors}");
}

impl TestNamespace {
    /// Creates a namespace with a generated name.
    pub async fn create() -> Self {
        Self::create_in(Access::Shared(CONTROL_PLANE.read().await)).await
    }

    /// Waits for exclusive access to the control plane, so that the test may disrupt it, and
    /// creates a namespace.
    pub async fn alone() -> (Self, ControlPlane) {
        let access = Access::Exclusive(CONTROL_PLANE.write().await);
        (Self::create_in(access).await, ControlPlane(()))
    }

    async fn create_in(access: Access) -> Self {
        let client = client().await;
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some("test-".into());
        let object = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .expect("a namespace");
        Self {
            object,
            client: NoDebug(client),
            access,
        }
    }

    /// Returns the name of the namespace.
    pub fn name(&self) -> String {
        self.object.name_any()
    }

    /// Returns an administrator's client.
    pub fn client(&self) -> Client {
        self.client.0.clone()
    }

    /// Returns the API of a static kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), &self.name())
    }

    /// Returns the API of a dynamic kind in this namespace.
    pub fn dynamic_api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), &self.name(), resource)
    }

    /// Returns an owner reference to the namespace, for cluster-scoped objects of the test. The
    /// garbage collector deletes them with the namespace.
    ///
    /// # Panics
    ///
    /// Panics if the namespace has no UID.
    pub fn owner_reference(&self) -> OwnerReference {
        self.object.owner_ref(&()).expect("a UID")
    }
}

impl Drop for TestNamespace {
    /// Requests the deletion without waiting for it to complete. The runtime of the test may be
    /// shutting down, so this uses another thread and runtime.
    fn drop(&mut self) {
        let name = self.name();
        let deleted = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let namespaces = Api::<Namespace>::all(client().await);
                namespaces
                    .delete(&name, &DeleteParams::background())
                    .await
                    .map(|_| ())
            })
        });
        let deleted = deleted.join();
        if !std::thread::panicking() {
            deleted.expect("no panic").expect("a deleted namespace");
        }
    }
}

/// A field left out of the debug output.
struct NoDebug<T>(T);

impl<T> Debug for NoDebug<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Polls until `poll` returns a value.
///
/// # Panics
///
/// Panics with "timed out waiting for `what`" after a minute.
pub async fn eventually<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "timed out waiting for {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests;
