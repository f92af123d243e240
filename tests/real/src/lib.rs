//! What every test against the real control plane needs: a client, a namespace of its own, and a
//! way to wait for what others do.
//!
//! The tests find the control plane through one variable, [`VARIABLE`], and never through
//! `KUBECONFIG`, which may name a cluster somebody cares about. Without it they fail and say what to
//! do; they are never skipped.

// Support for tests: what goes wrong here fails the test that called it.
#![allow(clippy::expect_used, clippy::panic)]

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

/// The path of the kubeconfig of the control plane to test against.
pub const VARIABLE: &str = "PINTLE_REAL_CLUSTER";

/// The path of the program that can restart the control plane's parts: xtask.
pub const XTASK_VARIABLE: &str = "PINTLE_XTASK";

/// Held by every test while it uses the control plane: together with others, or alone by one that
/// disrupts it.
static CONTROL_PLANE: RwLock<()> = RwLock::const_new(());

/// The path of the kubeconfig of an API server without a controller manager.
pub const BARE_VARIABLE: &str = "PINTLE_REAL_API_SERVER";

/// How long [`eventually`] waits. Generous: on a busy machine the controller manager takes its time.
const PATIENCE: Duration = Duration::from_mins(1);

/// The path of the kubectl of the pinned version.
pub const KUBECTL_VARIABLE: &str = "PINTLE_REAL_KUBECTL";

/// The path in a variable.
///
/// # Panics
/// If there is none.
pub fn from_environment(variable: &str) -> PathBuf {
    kubeconfig_path(variable, std::env::var_os(variable)).unwrap_or_else(|why| panic!("{why}"))
}

fn kubeconfig_path(name: &str, value: Option<OsString>) -> Result<PathBuf, String> {
    match value {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err(format!(
            "this test needs a real control plane, and {name} does not name one: \
             start it with cargo xtask real-cluster up, or run cargo xtask test-real"
        )),
    }
}

/// A client of the real control plane, as its admin. It belongs to the runtime that calls this.
///
/// Every answer reaches the caller: the client does not repeat refused requests by itself.
///
/// # Panics
/// If no control plane is named, or it cannot be reached.
pub async fn client() -> Client {
    client_with(|_| {}).await
}

/// A client that acts as `user`, who may do nothing until somebody grants it.
///
/// # Panics
/// As [`client`].
pub async fn client_as(user: &str) -> Client {
    client_with(|config| config.auth_info.impersonate = Some(user.to_owned())).await
}

/// A client whose connections all go through `link`.
///
/// # Panics
/// As [`client`].
pub async fn client_through(link: &Link) -> Client {
    let address = link.address();
    client_with(|config| {
        let url = format!("https://{address}");
        config.cluster_url = url.parse().expect("a URL");
    })
    .await
}

/// Where the API server listens.
pub async fn api_server_address() -> std::net::SocketAddr {
    let mut address = None;
    client_with(|config| address = config.cluster_url.authority().cloned()).await;
    let address = address.expect("a server in the kubeconfig");
    address.as_str().parse().expect("an address and a port")
}

/// A client, as its admin, of the API server that has no controller manager beside it: nothing
/// changes there but by requests.
///
/// # Panics
/// As [`client`].
pub async fn bare_client() -> Client {
    let path = from_environment(BARE_VARIABLE);
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig of the API server");
    client_from(kubeconfig, |_| {}).await
}

/// A client of the server this kubeconfig names.
///
/// # Panics
/// If it is no kubeconfig.
pub async fn client_of(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    client_from(kubeconfig, |_| {}).await
}

/// As [`bare_client`], but nobody: no token, no certificate.
///
/// # Panics
/// As [`client`].
pub async fn bare_stranger() -> Client {
    let path = from_environment(BARE_VARIABLE);
    let kubeconfig = Kubeconfig::read_from(path).expect("the kubeconfig of the API server");
    client_from(kubeconfig, |config| config.auth_info = AuthInfo::default()).await
}

/// As [`client_of`], but nobody.
///
/// # Panics
/// As [`client_of`].
pub async fn stranger_of(kubeconfig: &str) -> Client {
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

/// The kubeconfig of the control plane.
///
/// # Panics
/// If no control plane is named.
pub fn kubeconfig() -> PathBuf {
    from_environment(VARIABLE)
}

/// kubectl of the version of the control plane.
///
/// # Panics
/// If none is named.
pub fn kubectl() -> PathBuf {
    from_environment(KUBECTL_VARIABLE)
}

/// A namespace that belongs to one test, and goes with it, whether the test passes or fails.
#[derive(Debug)]
pub struct TestNamespace {
    object: Namespace,
    client: NoDebug<Client>,
    #[allow(dead_code, reason = "others wait for its end")]
    turn: Turn,
}

/// How a test shares the control plane.
#[derive(Debug)]
#[allow(dead_code, reason = "others wait for their end")]
enum Turn {
    Together(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// What can be done to the control plane by a test that has it [alone](TestNamespace::alone).
#[derive(Clone, Copy, Debug)]
pub struct ControlPlane(());

impl ControlPlane {
    /// Stops the API server and starts it again, on the same port and with the same data. Returns
    /// when it is ready.
    ///
    /// # Panics
    /// If it does not come back.
    pub async fn restart_api_server(self) {
        xtask("restart").await;
    }

    /// Makes etcd forget all versions before the present one.
    ///
    /// # Panics
    /// If it refuses.
    pub async fn compact(self) {
        xtask("compact").await;
    }
}

async fn xtask(command: &'static str) {
    let path = kubeconfig();
    let xtask = std::env::var_os(XTASK_VARIABLE)
        .unwrap_or_else(|| panic!("{XTASK_VARIABLE} does not name the program of cargo xtask"));
    let run = move || {
        std::process::Command::new(xtask)
            .args(["real-cluster", command, "--dir"])
            .arg(path.parent().expect("a kubeconfig in a directory"))
            .output()
    };
    let run = tokio::task::spawn_blocking(run).await;
    let output = run.expect("no panic").expect("xtask");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot {command}: {said}");
}

impl TestNamespace {
    /// Creates a namespace, with a name the server makes up.
    pub async fn create() -> Self {
        Self::create_in(Turn::Together(CONTROL_PLANE.read().await)).await
    }

    /// Creates a namespace when no other test uses the control plane, and keeps all others waiting,
    /// so that this one may disrupt it.
    pub async fn alone() -> (Self, ControlPlane) {
        let turn = Turn::Alone(CONTROL_PLANE.write().await);
        (Self::create_in(turn).await, ControlPlane(()))
    }

    async fn create_in(turn: Turn) -> Self {
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
            turn,
        }
    }

    /// The name the server gave it.
    pub fn name(&self) -> String {
        self.object.name_any()
    }

    /// The client that created it.
    pub fn client(&self) -> Client {
        self.client.0.clone()
    }

    /// Objects of a kind known to k8s-openapi, in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client(), &self.name())
    }

    /// Objects of any kind, in this namespace.
    pub fn dynamic_api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), &self.name(), resource)
    }

    /// For objects outside the namespace that shall go with it, such as a CRD of the test's own: the
    /// control plane's garbage collector sees to it.
    pub fn owner_reference(&self) -> OwnerReference {
        self.object
            .owner_ref(&())
            .expect("the server gave the namespace a uid")
    }
}

impl Drop for TestNamespace {
    /// Asks for the deletion and does not wait for its end. The test's runtime may be going away, so
    /// this happens on a thread and a runtime of its own.
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
            deleted
                .expect("a thread that deletes")
                .expect("the namespace deleted");
        }
    }
}

/// A field that says nothing of itself.
struct NoDebug<T>(T);

impl<T> Debug for NoDebug<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Asks again and again until there is an answer, and returns it. In real time: what is waited for
/// happens in other processes.
///
/// # Panics
/// After a minute, with `what` was waited for.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited {PATIENCE:?} for {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_control_plane_a_test_fails_and_says_how_to_start_one() {
        for missing in [None, Some(OsString::new())] {
            let why = kubeconfig_path(VARIABLE, missing).unwrap_err();
            assert!(why.contains("cargo xtask real-cluster up"), "{why}");
            assert!(why.contains("cargo xtask test-real"), "{why}");
        }
        assert_eq!(
            kubeconfig_path(VARIABLE, Some("a/b".into())),
            Ok(PathBuf::from("a/b"))
        );
    }
}
