//! Determines which cluster a program works on.

use std::{fmt, path::Path};

use http::Uri;
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

#[cfg(feature = "limits")]
use super::build_limited;
use super::{ClientError, build};
#[cfg(feature = "limits")]
use crate::limits::RateLimit;

/// An explicitly named cluster.
///
/// A controller writes, so it must not connect to a cluster by accident. The cluster is named
/// by a flag, by `KUBECONFIG`, or by running inside a Pod; `~/.kube/config` is never picked up
/// implicitly.
///
/// # Examples
/// ```no_run
/// use pintle::client::Target;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// match Target::named(None, None).await? {
///     Some(target) => {
///         println!("working on {target}");
///         let client = target.client("shop-controller/1.2")?;
///     }
///     None => println!("no cluster named"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    config: Config,
    origin: String,
}

/// An error from resolving a [`Target`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// A kubeconfig cannot be read, or does not describe a cluster.
    #[error("cannot use kubeconfig {path}: {source}")]
    Kubeconfig {
        /// The file, or the files that `KUBECONFIG` lists.
        path: String,
        /// Why the kubeconfig cannot be used.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// `KUBECONFIG` is set, but names no existing file.
    #[error("no file found for KUBECONFIG={0}")]
    NoSuchFile(String),
    /// The address of a cluster lacks its scheme or host.
    #[error("cannot use address {0}: write it as https://host:port")]
    Address(Uri),
    /// Nothing names a cluster.
    #[error("no cluster named: set KUBECONFIG, or run in a Pod")]
    NotNamed,
    /// The environment of a Pod is incomplete.
    #[error("cannot use the in-cluster configuration: {0}")]
    InCluster(#[from] InClusterError),
}

impl Target {
    /// Returns the cluster named by a kubeconfig file, by `KUBECONFIG`, or the one this process
    /// runs in, in that order; `None` if no cluster is named. `master` overrides the address, or
    /// names a cluster by address alone.
    ///
    /// # Errors
    ///
    /// Fails if a named kubeconfig does not exist or is unusable, `master` has no scheme or host,
    /// or the environment of a Pod is incomplete.
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
            if address.scheme().is_none() || address.host().is_none() {
                return Err(TargetError::Address(address.clone()));
            }
            target = Some(Self::at(address, target));
        }
        Ok(target)
    }

    /// Returns the cluster named by `KUBECONFIG`, else the one this process runs in.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = pintle::client::Target::from_env().await?.client("shop-controller/1.2")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if no cluster is named, or as [`named`](Self::named) does.
    pub async fn from_env() -> Result<Self, TargetError> {
        let target = Self::named(None, None).await?;
        target.ok_or(TargetError::NotNamed)
    }

    /// Replaces the address; an address alone comes without credentials.
    fn at(address: &Uri, named: Option<Self>) -> Self {
        let mut target = named.unwrap_or_else(|| Self {
            config: Config::new(address.clone()),
            origin: "no credentials".to_owned(),
        });
        target.config.cluster_url = address.clone();
        target
    }

    /// Builds a client for the cluster, like [`build`].
    ///
    /// # Errors
    ///
    /// Fails if [`build`] does.
    pub fn client(&self, user_agent: &str) -> Result<Client, ClientError> {
        build(self.config.clone(), user_agent)
    }

    /// Builds a client for the cluster, like [`build_limited`].
    ///
    /// # Errors
    ///
    /// Fails if [`build_limited`] does.
    #[cfg(feature = "limits")]
    pub fn limited_client(
        &self,
        user_agent: &str,
        limit: &RateLimit,
    ) -> Result<Client, ClientError> {
        build_limited(self.config.clone(), user_agent, limit)
    }

    /// Returns the configuration of the connection.
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
mod tests;
