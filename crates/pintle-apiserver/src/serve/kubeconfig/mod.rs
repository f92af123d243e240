//! Kubeconfig files for clients of a listener: new ones, and contexts in existing ones.

mod file;
mod merge;

use std::{
    io,
    net::TcpStream,
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

pub(super) use self::file::write;
use self::{
    file::{edit, follow_links},
    merge::{MARK, Unusable, merge, merged_url, unmerge, user_name},
};
use super::Bound;

/// How long another listener may take to accept a connection. It is on this machine.
const PROBE: Duration = Duration::from_millis(200);

/// Why a context could not be added to or removed from a kubeconfig.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// The file could not be read or written.
    #[error("cannot access {path}", path = .path.display())]
    Io {
        /// The kubeconfig.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Another program held the lock for a second, or left its lock file behind.
    #[error(
        "{path} is locked: {lock} exists; remove it if no other program is changing the file",
        path = .path.display(), lock = .lock.display()
    )]
    Locked {
        /// The kubeconfig.
        path: PathBuf,
        /// The lock file, as kubectl and kind create it.
        lock: PathBuf,
    },
    /// The file is not a kubeconfig. It was not changed.
    #[error("{path} is not a kubeconfig: {reason}", path = .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
    /// An entry with the same name belongs to another cluster. The file was not changed.
    #[error(
        "{path} has an entry {name:?} in its {list} that belongs to another cluster; choose \
         another context name",
        path = .path.display()
    )]
    Taken {
        /// The kubeconfig.
        path: PathBuf,
        /// The name of the entry.
        name: String,
        /// `clusters`, `users` or `contexts`.
        list: &'static str,
    },
    /// The context belongs to another listener that is still running. The file was not changed.
    #[error(
        "{path} already has this context for a cluster running at {url}; choose another \
         context name",
        path = .path.display()
    )]
    InUse {
        /// The kubeconfig.
        path: PathBuf,
        /// The URL of the other listener.
        url: String,
    },
}

/// A context that was added to a kubeconfig; see [`Bound::merge_kubeconfig`].
#[derive(Debug)]
#[must_use = "the context stays in the file until it is removed"]
pub struct MergedContext {
    /// Symbolic links are resolved.
    path: PathBuf,
    context: String,
    url: String,
    previous: Option<String>,
}

impl Bound {
    /// Adds a context for this listener to the kubeconfig at `path` and makes it the current one,
    /// as kind and minikube do. Creates the file if necessary, and sets its mode to 0600.
    ///
    /// Other clusters, users, contexts and settings are preserved. Entries of the same name that an
    /// earlier run left behind are replaced; the context that was current before that run counts as
    /// the previous one.
    ///
    /// Waits up to a second for another program that has locked the file.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a kubeconfig, if an entry of the same name belongs to another
    /// cluster or to a listener that is still running, or if the file cannot be locked, read or
    /// written. The file is unchanged in all these cases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for the lock leaves the file unchanged.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let bound = server.serve("127.0.0.1:0").await?;
    /// let context = bound.merge_kubeconfig("config", "pintle").await?;
    /// // kubectl --kubeconfig config get namespaces
    /// context.remove().await?;
    /// bound.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn merge_kubeconfig(
        &self,
        path: impl AsRef<Path>,
        context: &str,
    ) -> Result<MergedContext, KubeconfigError> {
        let path = follow_links(path.as_ref());
        let ours = self.entries(context);
        let url = self.url();
        let previous = edit(&path, |config| {
            // Check under the lock, so that only one of two clusters that start at the same time
            // succeeds.
            let other = merged_url(config.as_ref(), context).filter(|other| *other != url);
            if let Some(other) = other.filter(|other| is_running(other)) {
                return Err(Unusable::InUse {
                    url: other.to_owned(),
                });
            }
            merge(config, context, ours)
        })
        .await?;
        Ok(MergedContext {
            path,
            context: context.to_owned(),
            url,
            previous,
        })
    }

    /// Returns the cluster, user and context entries, in the order of [`merge::LISTS`].
    fn entries(&self, context: &str) -> [Value; 3] {
        let marks = json!([{"name": MARK, "extension": {"version": env!("CARGO_PKG_VERSION")}}]);
        let authority = base64(self.authority_pem());
        let user = user_name(context);
        [
            json!({"name": context, "cluster": {
                "server": self.url(), "certificate-authority-data": authority,
                "extensions": marks}}),
            json!({"name": user, "user": {"token": self.token.reveal(), "extensions": marks}}),
            json!({"name": context, "context": {
                "cluster": context, "user": user, "extensions": marks}}),
        ]
    }
}

impl MergedContext {
    /// Returns the file that holds the context.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the context that was current before, if any.
    pub fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    /// Removes the context from the file. If it is still the current one, the previous context
    /// becomes current again. A file that was created for this context and holds nothing else is
    /// deleted. A context that another listener has replaced is not removed.
    ///
    /// Waits up to a second for another program that has locked the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be locked, read or written. The file is unchanged in that case.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for the lock leaves the context in the file. The next
    /// [`merge_kubeconfig`](Bound::merge_kubeconfig) under the same name replaces it.
    pub async fn remove(self) -> Result<(), KubeconfigError> {
        edit(&self.path, |config| {
            unmerge(config, &self.context, &self.url);
            Ok(())
        })
        .await
    }
}

/// Returns true if something accepts connections at a URL that an earlier merge wrote.
fn is_running(url: &str) -> bool {
    let address = url.strip_prefix("https://").and_then(|it| it.parse().ok());
    address.is_some_and(|address| TcpStream::connect_timeout(&address, PROBE).is_ok())
}

fn base64(pem: &str) -> String {
    STANDARD.encode(pem)
}

/// Returns a kubeconfig for the administrator.
pub(super) fn text(url: &str, authority_pem: &str, token: &str) -> String {
    let authority = base64(authority_pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: pintle\n\
         \x20 cluster:\n\
         \x20   server: {url}\n\
         \x20   certificate-authority-data: {authority}\n\
         users:\n\
         - name: pintle-admin\n\
         \x20 user:\n\
         \x20   token: {token}\n\
         contexts:\n\
         - name: pintle\n\
         \x20 context:\n\
         \x20   cluster: pintle\n\
         \x20   user: pintle-admin\n\
         current-context: pintle\n"
    )
}

/// Returns a kubeconfig whose user has a client certificate.
pub(super) fn user_text(
    url: &str,
    authority_pem: &str,
    user: &str,
    certificate_pem: &str,
    key_pem: &str,
) -> String {
    let [authority, certificate, key] = [authority_pem, certificate_pem, key_pem].map(base64);
    // JSON is valid YAML and escapes any user name.
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "pintle",
            "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user,
            "user": {"client-certificate-data": certificate, "client-key-data": key}}],
        "contexts": [{"name": "pintle", "context": {"cluster": "pintle", "user": user}}],
        "current-context": "pintle",
    })
    .to_string()
}
