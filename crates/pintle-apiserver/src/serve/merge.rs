//! A context of ours in a kubeconfig that holds others.
//!
//! Our cluster, user and context carry an extension that marks them, as minikube's do: only marked
//! entries are ever replaced or removed. Everything else is kept, except for comments, which kubectl
//! does not keep either.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{Bound, kubeconfig};

/// The extension that marks an entry as ours.
const MARK: &str = "pintle.dev/cluster";
/// The lists of a kubeconfig, and what the entries of each hold.
const LISTS: [(&str, &str); 3] = [
    ("clusters", "cluster"),
    ("users", "user"),
    ("contexts", "context"),
];

/// Why a context cannot be put into a kubeconfig or taken out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// The file cannot be read or written.
    #[error("cannot access {path}", path = .path.display())]
    Io {
        /// The kubeconfig.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another program is changing the file, or left its lock behind.
    #[error(
        "{path} is locked: {lock} exists; remove it if no other program is changing the file",
        path = .path.display(), lock = .lock.display()
    )]
    Locked {
        /// The kubeconfig.
        path: PathBuf,
        /// The lock, as kubectl and kind create it.
        lock: PathBuf,
    },
    /// The file is not a kubeconfig. It was left as it is.
    #[error("{path} is not a kubeconfig: {reason}", path = .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An entry with the same name belongs to another cluster. It was left as it is.
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
}

/// A context in a kubeconfig; see [`Bound::merge_kubeconfig`].
#[derive(Debug)]
#[must_use = "the context stays in the file until it is removed"]
pub struct MergedContext {
    /// With symbolic links followed.
    path: PathBuf,
    context: String,
    url: String,
    previous: Option<String>,
    is_new: bool,
}

impl Bound {
    /// Adds a context that leads to this listener to the kubeconfig at `path` and makes it the
    /// current one, as kind and minikube do. The file is created if there is none, and only its
    /// owner can read it afterwards.
    ///
    /// Other clusters, users, contexts and settings are kept. Entries of the same name are replaced
    /// if an earlier run left them behind.
    ///
    /// # Errors
    ///
    /// If the file is not a kubeconfig, if an entry of that name belongs to another cluster, or if
    /// the file cannot be written; it is then unchanged.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let bound = server.serve("127.0.0.1:0").await?;
    /// let context = bound.merge_kubeconfig("config", "pintle")?;
    /// // kubectl --kubeconfig config get namespaces
    /// context.remove()?;
    /// bound.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge_kubeconfig(
        &self,
        path: impl AsRef<Path>,
        context: &str,
    ) -> Result<MergedContext, KubeconfigError> {
        let path = followed(path.as_ref());
        let ours = self.entries(context);
        let (previous, is_new) = edit(&path, |config| {
            let is_new = config.is_null();
            let previous = merge(config, context, &ours)?;
            Ok((previous, is_new))
        })?;
        Ok(MergedContext {
            path,
            context: context.to_owned(),
            url: self.url(),
            previous,
            is_new,
        })
    }

    /// The cluster, the user and the context, in the order of [`LISTS`].
    fn entries(&self, context: &str) -> [Value; 3] {
        let marks = json!([{"name": MARK, "extension": {"version": env!("CARGO_PKG_VERSION")}}]);
        let authority = kubeconfig::base64(self.authority_pem());
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
    /// The file that holds the context.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The context that was current before, if there was one.
    pub fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    /// Takes the context out of the file again, and makes the one before it current if this one
    /// still is. A file that was created for it and holds nothing else is deleted. A context that
    /// another listener has replaced meanwhile stays.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written; it is then unchanged.
    pub fn remove(self) -> Result<(), KubeconfigError> {
        let is_empty = edit(&self.path, |config| {
            if config.is_null() || !leads_to(config, &self.context, &self.url) {
                return Ok(false);
            }
            unmerge(config, &self.context, self.previous.as_deref());
            Ok(LISTS.iter().all(|(list, _)| {
                let entries = config[*list].as_array();
                entries.is_none_or(Vec::is_empty)
            }))
        })?;
        if self.is_new && is_empty {
            return fs::remove_file(&self.path).map_err(|source| self.io(source));
        }
        Ok(())
    }

    fn io(&self, source: io::Error) -> KubeconfigError {
        KubeconfigError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

/// What is wrong with the content of a kubeconfig.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    Invalid(String),
    Taken { name: String, list: &'static str },
}

fn user_name(context: &str) -> String {
    format!("{context}-admin")
}

/// Puts our entries in, and says which context was current.
fn merge(config: &mut Value, context: &str, ours: &[Value; 3]) -> Result<Option<String>, Unusable> {
    if config.is_null() {
        *config = json!({"apiVersion": "v1", "kind": "Config", "preferences": {}});
    }
    let root = root(config)?;
    for ((list, holds), entry) in LISTS.into_iter().zip(ours) {
        let entries = root.entry(list).or_insert(Value::Null);
        if entries.is_null() {
            *entries = json!([]);
        }
        let Value::Array(entries) = entries else {
            return Err(Unusable::Invalid(format!("{list} is not a list")));
        };
        let old = entries.iter_mut().find(|old| old["name"] == entry["name"]);
        match old {
            Some(old) if !is_marked(&old[holds]) => {
                let name = entry["name"].as_str().unwrap_or_default().to_owned();
                return Err(Unusable::Taken { name, list });
            }
            Some(old) => *old = entry.clone(),
            None => entries.push(entry.clone()),
        }
    }
    let previous = root.insert("current-context".into(), context.into());
    let previous = previous.as_ref().and_then(Value::as_str);
    Ok(previous
        .filter(|name| !name.is_empty() && *name != context)
        .map(str::to_owned))
}

/// Takes our entries out.
fn unmerge(config: &mut Value, context: &str, previous: Option<&str>) {
    let user = user_name(context);
    for ((list, holds), name) in LISTS.into_iter().zip([context, &user, context]) {
        if let Value::Array(entries) = &mut config[list] {
            entries.retain(|entry| entry["name"] != name || !is_marked(&entry[holds]));
        }
    }
    if config["current-context"] == context {
        config["current-context"] = previous.unwrap_or_default().into();
    }
}

/// The kubeconfig as a map.
fn root(config: &mut Value) -> Result<&mut Map<String, Value>, Unusable> {
    let Value::Object(root) = config else {
        return Err(Unusable::Invalid("it holds no mapping".to_owned()));
    };
    match root.get("kind").unwrap_or(&Value::Null) {
        Value::Null => Ok(root),
        kind if kind == "Config" => Ok(root),
        kind => Err(Unusable::Invalid(format!(
            "its kind is {kind}, not \"Config\""
        ))),
    }
}

fn is_marked(holder: &Value) -> bool {
    let mut extensions = holder["extensions"].as_array().into_iter().flatten();
    extensions.any(|extension| extension["name"] == MARK)
}

/// Whether the cluster of that name is ours, and this listener's.
fn leads_to(config: &Value, name: &str, url: &str) -> bool {
    let clusters = config["clusters"].as_array().into_iter().flatten();
    let mut named = clusters.filter(|cluster| cluster["name"] == name);
    named.any(|named| named["cluster"]["server"] == url && is_marked(&named["cluster"]))
}

/// The file itself: replacing a symbolic link would leave its target behind.
fn followed(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads a kubeconfig, changes it, and writes it back as one step for everybody who locks it. No
/// file is `null`, and `null` is not written.
fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Value) -> Result<T, Unusable>,
) -> Result<T, KubeconfigError> {
    let failed = |source| KubeconfigError::Io {
        path: path.to_owned(),
        source,
    };
    let invalid = |reason: String| KubeconfigError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let _lock = Lock::new(path)?;
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(invalid("it is not UTF-8".to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut config = if text.trim().is_empty() {
        Value::Null
    } else {
        serde_saphyr::from_str(&text).map_err(|error| invalid(error.to_string()))?
    };
    let before = config.clone();
    let changed = change(&mut config).map_err(|problem| match problem {
        Unusable::Invalid(reason) => invalid(reason),
        Unusable::Taken { name, list } => KubeconfigError::Taken {
            path: path.to_owned(),
            name,
            list,
        },
    })?;
    if config != before {
        let text = serde_saphyr::to_string(&config).map_err(|error| invalid(error.to_string()))?;
        kubeconfig::write(path, &text).map_err(failed)?;
    }
    Ok(changed)
}

/// The lock that kubectl, kind and client-go take beside a kubeconfig.
struct Lock(PathBuf);

impl Lock {
    fn new(path: &Path) -> Result<Self, KubeconfigError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        match OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(KubeconfigError::Locked {
                    path: path.to_owned(),
                    lock,
                })
            }
            Err(source) => Err(KubeconfigError::Io {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(%error, lock = %self.0.display(), "cannot remove the lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(server: &str) -> [Value; 3] {
        let marks = json!([{"name": MARK, "extension": {}}]);
        [
            json!({"name": "pintle", "cluster": {"server": server, "extensions": marks}}),
            json!({"name": "pintle-admin", "user": {"token": "t", "extensions": marks}}),
            json!({"name": "pintle", "context": {"cluster": "pintle", "user": "pintle-admin",
                "extensions": marks}}),
        ]
    }

    fn foreign() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true},
            "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}],
            "users": [{"name": "me", "user": {"exec": {"command": "login", "args": ["007"]}}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
            "current-context": "prod",
        })
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn merging_and_removing_leaves_the_file_as_it_was() {
        let mut config = foreign();
        let previous = merge(&mut config, "pintle", &ours("https://a")).unwrap();
        assert_eq!(previous.as_deref(), Some("prod"));
        assert_eq!(config["current-context"], "pintle");
        assert_eq!(config["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(config["users"][0], foreign()["users"][0]);
        assert!(leads_to(&config, "pintle", "https://a"));
        unmerge(&mut config, "pintle", previous.as_deref());
        assert_eq!(config, foreign());
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn only_entries_of_ours_are_replaced() {
        let mut config = foreign();
        merge(&mut config, "pintle", &ours("https://a")).unwrap();
        let again = merge(&mut config, "pintle", &ours("https://b")).unwrap();
        assert_eq!(again, None, "it was ours already");
        assert_eq!(config["clusters"].as_array().unwrap().len(), 2);
        assert!(leads_to(&config, "pintle", "https://b"));

        let mut taken = foreign();
        taken["users"][0]["name"] = json!("pintle-admin");
        assert_eq!(
            merge(&mut taken, "pintle", &ours("https://a")),
            Err(Unusable::Taken {
                name: "pintle-admin".into(),
                list: "users"
            })
        );
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused() {
        for other in [
            json!({"kind": "Pod"}),
            json!([1]),
            json!("text"),
            json!({"clusters": {}}),
        ] {
            let refused = merge(&mut other.clone(), "pintle", &ours("https://a"));
            assert!(matches!(refused, Err(Unusable::Invalid(_))), "{other}");
        }
        let mut none = Value::Null;
        assert_eq!(merge(&mut none, "pintle", &ours("https://a")), Ok(None));
        assert_eq!(none["kind"], "Config");
    }

    #[test]
    fn current_context_somebody_chose_meanwhile_stays() {
        let mut config = foreign();
        let previous = merge(&mut config, "pintle", &ours("https://a")).unwrap();
        config["current-context"] = json!("other");
        unmerge(&mut config, "pintle", previous.as_deref());
        assert_eq!(config["current-context"], "other");
    }
}
