//! Which cluster a program talks to.

use std::{fmt, path::Path};

use http::Uri;
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{ClientError, build, build_limited};
use crate::limits::RateLimit;

/// A cluster that somebody named.
///
/// A controller changes things, so it works only where it was told to: by a flag, by `KUBECONFIG`,
/// or by running inside a Pod. `~/.kube/config` is never picked up by itself.
///
/// ```no_run
/// use pintle::client::Target;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// match Target::named(None, None).await? {
///     Some(target) => {
///         println!("working on {target}");
///         let client = target.client("shop-controller/1.2")?;
///     }
///     None => println!("no cluster was named"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    config: Config,
    origin: String,
}

/// Why a named cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// A kubeconfig cannot be read, or does not describe a cluster.
    #[error("the kubeconfig {path} cannot be used: {source}")]
    Kubeconfig {
        /// The file, or the files that `KUBECONFIG` lists.
        path: String,
        /// What is wrong with it.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// `KUBECONFIG` is set, and names nothing that exists.
    #[error("KUBECONFIG={0} names no file")]
    NoSuchFile(String),
    /// The environment of a Pod is incomplete.
    #[error("the configuration inside the cluster cannot be used: {0}")]
    InCluster(#[from] InClusterError),
}

impl Target {
    /// The cluster named by a kubeconfig file, else by `KUBECONFIG`, else by running inside one;
    /// `master` overrides its address, or names a cluster by address alone.
    pub async fn named(
        kubeconfig: Option<&Path>,
        master: Option<&Uri>,
    ) -> Result<Option<Self>, TargetError> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut target = if let Some(path) = kubeconfig {
            Some(Self::from_file(path).await?)
        } else if let Some(paths) = set("KUBECONFIG") {
            Some(Self::from_variable(&paths.to_string_lossy()).await?)
        } else if set("KUBERNETES_SERVICE_HOST").is_some() {
            let config = Config::incluster()?;
            Some(Self {
                config,
                origin: "the cluster this runs in".to_owned(),
            })
        } else {
            None
        };
        if let Some(address) = master {
            target = Some(Self::at(address, target));
        }
        Ok(target)
    }

    /// The same cluster under another address; an address alone comes without credentials.
    fn at(address: &Uri, named: Option<Self>) -> Self {
        let mut target = named.unwrap_or_else(|| Self {
            config: Config::new(address.clone()),
            origin: "no credentials".to_owned(),
        });
        target.config.cluster_url = address.clone();
        target
    }

    /// A client of the cluster, built as [`build`] does.
    pub fn client(&self, user_agent: &str) -> Result<Client, ClientError> {
        build(self.config.clone(), user_agent)
    }

    /// A client of the cluster that keeps to `limit`, built as [`build_limited`] does.
    pub fn limited_client(
        &self,
        user_agent: &str,
        limit: &RateLimit,
    ) -> Result<Client, ClientError> {
        build_limited(self.config.clone(), user_agent, limit)
    }

    /// How the cluster is reached.
    pub fn config(&self) -> &Config {
        &self.config
    }

    async fn from_file(path: &Path) -> Result<Self, TargetError> {
        let shown = path.display().to_string();
        match Kubeconfig::read_from(path) {
            Ok(kubeconfig) => Self::from_kubeconfig(kubeconfig, shown).await,
            Err(error) => Err(unusable(shown, error)),
        }
    }

    async fn from_variable(paths: &str) -> Result<Self, TargetError> {
        match Kubeconfig::from_env() {
            Ok(Some(kubeconfig)) => Self::from_kubeconfig(kubeconfig, paths.to_owned()).await,
            Ok(None) => Err(TargetError::NoSuchFile(paths.to_owned())),
            Err(error) => Err(unusable(paths.to_owned(), error)),
        }
    }

    async fn from_kubeconfig(kubeconfig: Kubeconfig, path: String) -> Result<Self, TargetError> {
        let context = kubeconfig.current_context.clone().unwrap_or_default();
        let options = KubeConfigOptions::default();
        match Config::from_custom_kubeconfig(kubeconfig, &options).await {
            Ok(config) => Ok(Self {
                config,
                origin: format!("context {context:?} of {path}"),
            }),
            Err(error) => Err(unusable(path, error)),
        }
    }
}

fn unusable(path: String, error: KubeconfigError) -> TargetError {
    TargetError::Kubeconfig {
        path,
        source: Box::new(error),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.config.cluster_url, self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named_in_the_error() {
        let missing = Path::new("/nowhere/kubeconfig");
        let error = Target::named(Some(missing), None).await.unwrap_err();
        assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
    }

    #[tokio::test]
    async fn the_address_overrides_what_the_kubeconfig_says() {
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
            "users": [{ "name": "a", "user": { "token": "t" } }],
        }))
        .unwrap();
        let target = Target::from_kubeconfig(kubeconfig, "file".into())
            .await
            .unwrap();
        assert_eq!(
            target.to_string(),
            "https://127.0.0.1:1/ (context \"a\" of file)"
        );

        let other: Uri = "https://127.0.0.1:2/".parse().unwrap();
        let moved = Target::at(&other, Some(target));
        assert_eq!(
            moved.to_string(),
            "https://127.0.0.1:2/ (context \"a\" of file)"
        );
        let bare = Target::at(&other, None);
        assert_eq!(bare.to_string(), "https://127.0.0.1:2/ (no credentials)");
    }
}
