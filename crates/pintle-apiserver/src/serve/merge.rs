//! A context of ours in a kubeconfig that holds others.
//!
//! Our cluster, user and context carry an extension that marks them, as minikube's do: only marked
//! entries are ever replaced or removed. Everything else is kept, except for comments, which kubectl
//! does not keep either.
//!
//! The extension of the context also holds its [`Origin`]: which context was current before, and
//! whether the file was created for it. A process that crashes leaves its context behind, so the next
//! one has to find this in the file. Contexts of several clusters form a chain of previous contexts;
//! removing one closes the gap, whichever ends first.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Map, Value, json};

use tokio::time::{Instant, sleep};

use super::{Bound, kubeconfig};

/// The extension that marks an entry as ours.
const MARK: &str = "pintle.dev/cluster";
/// How long to wait for another program to release the lock. kubectl holds it for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// How many symbolic links to follow, as Linux does.
const MAX_LINKS: usize = 40;
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
    /// Another program held the lock for a second, or left it behind.
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
}

impl Bound {
    /// Adds a context that leads to this listener to the kubeconfig at `path` and makes it the
    /// current one, as kind and minikube do. The file is created if there is none, and only its
    /// owner can read it afterwards.
    ///
    /// Other clusters, users, contexts and settings are kept. Entries of the same name are replaced
    /// if an earlier run left them behind; the context that was current before that run is then the
    /// one to go back to.
    ///
    /// Waits up to a second for another program that has locked the file.
    ///
    /// # Errors
    ///
    /// If the file is not a kubeconfig, if an entry of that name belongs to another cluster, or if
    /// the file cannot be locked or written; it is then unchanged.
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
        let previous = edit(&path, |config| merge(config, context, ours)).await?;
        Ok(MergedContext {
            path,
            context: context.to_owned(),
            url: self.url(),
            previous,
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
    /// Waits up to a second for another program that has locked the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be locked, read or written; it is then unchanged.
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

/// What is wrong with the content of a kubeconfig.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    Invalid(String),
    Taken { name: String, list: &'static str },
}

fn user_name(context: &str) -> String {
    format!("{context}-admin")
}

/// What the file was like before a context of ours was added. Stored in the mark of the context.
#[derive(Debug, Default, PartialEq, Eq)]
struct Origin {
    /// The context that was current, if any.
    previous: Option<String>,
    /// Whether there was no file.
    created: bool,
}

impl Origin {
    /// Reads the origin of a context. `None` if the context is not ours.
    fn read(entry: &Value) -> Option<Self> {
        let mark = mark(&entry["context"])?;
        Some(Self {
            previous: mark["previous"].as_str().map(str::to_owned),
            created: mark["created"] == true,
        })
    }

    fn write(&self, entry: &mut Value) {
        let extensions = entry["context"]["extensions"].as_array_mut();
        let mut extensions = extensions.into_iter().flatten();
        let mark = extensions.find(|extension| extension["name"] == MARK);
        if let Some(Value::Object(mark)) = mark.map(|mark| &mut mark["extension"]) {
            mark.remove("previous");
            mark.remove("created");
            if let Some(previous) = &self.previous {
                mark.insert("previous".to_owned(), previous.as_str().into());
            }
            if self.created {
                mark.insert("created".to_owned(), true.into());
            }
        }
    }
}

/// Adds our entries and makes the context current. Returns the context to go back to.
fn merge(
    config: &mut Option<Value>,
    context: &str,
    mut ours: [Value; 3],
) -> Result<Option<String>, Unusable> {
    let created = config.is_none();
    let config = config.get_or_insert_default();
    if config.is_null() {
        *config = json!({"apiVersion": "v1", "kind": "Config", "preferences": {}});
    }
    let root = root(config)?;
    // An entry of the same name is replaced, which must not lose the context that came before it.
    let replaced = unlink(root, context).unwrap_or_default();
    let current = root.get("current-context").and_then(Value::as_str);
    let current = current.filter(|name| !name.is_empty() && *name != context);
    let origin = Origin {
        previous: current.map(str::to_owned),
        created: created || replaced.created,
    };
    origin.write(&mut ours[2]);
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
            Some(old) if mark(&old[holds]).is_none() => {
                let name = entry["name"].as_str().unwrap_or_default().to_owned();
                return Err(Unusable::Taken { name, list });
            }
            Some(old) => *old = entry,
            None => entries.push(entry),
        }
    }
    root.insert("current-context".into(), context.into());
    Ok(origin.previous)
}

/// Removes our entries if they still lead to `url`, and the file if it was created for them.
fn unmerge(config: &mut Option<Value>, context: &str, url: &str) {
    let Some(root) = config.as_mut().filter(|it| leads_to(it, context, url)) else {
        return;
    };
    let Value::Object(root) = root else {
        return;
    };
    let origin = unlink(root, context).unwrap_or_default();
    let user = user_name(context);
    for ((list, holds), name) in LISTS.into_iter().zip([context, &user, context]) {
        if let Some(Value::Array(entries)) = root.get_mut(list) {
            entries.retain(|entry| entry["name"] != name || mark(&entry[holds]).is_none());
        }
    }
    if !origin.created {
        return;
    }
    if is_blank(root) {
        *config = None;
    } else if let Some((mut other, entry)) = our_contexts(root).next() {
        // The last of our contexts to go deletes the file.
        other.created = true;
        other.write(entry);
    }
}

/// Closes the gap that a context leaves: whatever would go back to it goes back to the one before
/// it. Returns the context's origin, or `None` if there is no such context of ours.
fn unlink(root: &mut Map<String, Value>, context: &str) -> Option<Origin> {
    let mut ours = our_contexts(root);
    let (origin, _) = ours.find(|(_, entry)| entry["name"] == context)?;
    drop(ours);
    for (mut other, entry) in our_contexts(root) {
        if other.previous.as_deref() == Some(context) {
            other.previous.clone_from(&origin.previous);
            other.write(entry);
        }
    }
    let current = root.get_mut("current-context");
    if let Some(current) = current.filter(|current| **current == context) {
        *current = origin.previous.as_deref().unwrap_or_default().into();
    }
    Some(origin)
}

fn our_contexts(root: &mut Map<String, Value>) -> impl Iterator<Item = (Origin, &mut Value)> {
    let contexts = root.get_mut("contexts").and_then(Value::as_array_mut);
    let contexts = contexts.into_iter().flatten();
    contexts.filter_map(|entry| Some((Origin::read(entry)?, entry)))
}

/// Whether the kubeconfig holds nothing but what every kubeconfig holds.
fn is_blank(root: &Map<String, Value>) -> bool {
    root.iter().all(|(field, value)| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() || matches!(&**field, "apiVersion" | "kind"),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    })
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

/// Our extension, if the entry is ours.
fn mark(holder: &Value) -> Option<&Value> {
    let mut extensions = holder["extensions"].as_array().into_iter().flatten();
    let mark = extensions.find(|extension| extension["name"] == MARK)?;
    Some(&mark["extension"])
}

/// Whether the cluster of that name is ours, and this listener's.
fn leads_to(config: &Value, name: &str, url: &str) -> bool {
    let clusters = config["clusters"].as_array().into_iter().flatten();
    let mut named = clusters.filter(|cluster| cluster["name"] == name);
    named.any(|named| named["cluster"]["server"] == url && mark(&named["cluster"]).is_some())
}

/// Follows symbolic links, even to a file that does not exist yet: the rename that replaces the file
/// would otherwise replace the link.
fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path.pop();
        path.push(target);
    }
    path
}

/// Reads a kubeconfig, changes it, and writes it back or deletes it, all under its lock. `None` is no
/// file; a file without content is `null`.
async fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Option<Value>) -> Result<T, Unusable>,
) -> Result<T, KubeconfigError> {
    let failed = |source| KubeconfigError::Io {
        path: path.to_owned(),
        source,
    };
    let invalid = |reason: String| KubeconfigError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let _lock = Lock::acquire(path).await?;
    let text = match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(invalid("it is not UTF-8".to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut config = match text.as_deref().map(str::trim) {
        None => None,
        Some("") => Some(Value::Null),
        Some(text) => {
            Some(serde_saphyr::from_str(text).map_err(|error| invalid(error.to_string()))?)
        }
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
    if config == before {
        return Ok(changed);
    }
    match config {
        None => fs::remove_file(path).map_err(failed)?,
        Some(config) => {
            let text =
                serde_saphyr::to_string(&config).map_err(|error| invalid(error.to_string()))?;
            kubeconfig::write_durably(path, &text).map_err(failed)?;
        }
    }
    Ok(changed)
}

/// The lock that kubectl, kind and client-go take beside a kubeconfig.
struct Lock(PathBuf);

impl Lock {
    async fn acquire(path: &Path) -> Result<Self, KubeconfigError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match Self::try_acquire(path) {
                Err(KubeconfigError::Locked { .. }) if Instant::now() < deadline => {
                    sleep(LOCK_RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    fn try_acquire(path: &Path) -> Result<Self, KubeconfigError> {
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

    fn foreign() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "preferences": {"colors": true},
            "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}],
            "users": [{"name": "me", "user": {"exec": {"command": "login", "args": ["007"]}}}],
            "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "me"}}],
            "current-context": "prod",
        })
    }

    fn ours_named(context: &str, server: &str) -> [Value; 3] {
        let marks = json!([{"name": MARK, "extension": {}}]);
        let user = user_name(context);
        [
            json!({"name": context, "cluster": {"server": server, "extensions": marks}}),
            json!({"name": user, "user": {"token": "t", "extensions": marks}}),
            json!({"name": context, "context": {"cluster": context, "user": user,
                "extensions": marks}}),
        ]
    }

    fn ours(server: &str) -> [Value; 3] {
        ours_named("pintle", server)
    }

    fn current(config: Option<&Value>) -> &str {
        config.unwrap()["current-context"].as_str().unwrap()
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn merging_and_removing_leaves_the_file_as_it_was() {
        let mut config = Some(foreign());
        let previous = merge(&mut config, "pintle", ours("https://a")).unwrap();
        assert_eq!(previous.as_deref(), Some("prod"));
        let merged = config.as_ref().unwrap();
        assert_eq!(merged["current-context"], "pintle");
        assert_eq!(merged["clusters"].as_array().unwrap().len(), 2);
        assert_eq!(merged["users"][0], foreign()["users"][0]);
        assert!(leads_to(merged, "pintle", "https://a"));
        unmerge(&mut config, "pintle", "https://a");
        assert_eq!(config, Some(foreign()));
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn only_entries_of_ours_are_replaced() {
        let mut config = Some(foreign());
        merge(&mut config, "pintle", ours("https://a")).unwrap();
        let again = merge(&mut config, "pintle", ours("https://b")).unwrap();
        assert_eq!(again.as_deref(), Some("prod"), "as before the first");
        let merged = config.unwrap();
        assert_eq!(merged["clusters"].as_array().unwrap().len(), 2);
        assert!(leads_to(&merged, "pintle", "https://b"));

        let mut taken = foreign();
        taken["users"][0]["name"] = json!("pintle-admin");
        assert_eq!(
            merge(&mut Some(taken), "pintle", ours("https://a")),
            Err(Unusable::Taken {
                name: "pintle-admin".into(),
                list: "users"
            })
        );
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn overlapping_contexts_end_in_any_order() {
        for (first, second) in [("a", "b"), ("b", "a")] {
            for before in [Some(foreign()), None] {
                let mut config = before.clone();
                merge(&mut config, "a", ours_named("a", "a")).unwrap();
                let previous = merge(&mut config, "b", ours_named("b", "b")).unwrap();
                assert_eq!(previous.as_deref(), Some("a"));
                unmerge(&mut config, first, first);
                assert_eq!(current(config.as_ref()), second);
                unmerge(&mut config, second, second);
                assert_eq!(config, before, "{first} ended first");
            }
        }
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn context_replaced_under_another_leads_back_to_the_first() {
        let mut config = Some(foreign());
        merge(&mut config, "a", ours_named("a", "crashed")).unwrap();
        merge(&mut config, "b", ours_named("b", "b")).unwrap();
        merge(&mut config, "a", ours_named("a", "a")).unwrap();
        unmerge(&mut config, "b", "b");
        assert_eq!(current(config.as_ref()), "a");
        unmerge(&mut config, "a", "a");
        assert_eq!(config, Some(foreign()));
    }

    #[test]
    fn other_documents_are_refused() {
        for other in [
            json!({"kind": "Pod"}),
            json!([1]),
            json!("text"),
            json!({"clusters": {}}),
        ] {
            let refused = merge(&mut Some(other.clone()), "pintle", ours("https://a"));
            assert!(matches!(refused, Err(Unusable::Invalid(_))), "{other}");
        }
    }

    /// Proves auth/kubeconfig-merge.
    #[test]
    fn only_a_created_file_without_other_content_is_deleted() {
        for (before, added, deleted) in [
            (None, json!({}), true),
            (Some(Value::Null), json!({}), false),
            (None, json!({"preferences": {"colors": true}}), false),
            (None, json!({"contexts": [{"name": "new"}]}), false),
        ] {
            let mut config = before.clone();
            assert_eq!(merge(&mut config, "pintle", ours("a")), Ok(None));
            let fields = config.as_mut().unwrap();
            assert_eq!(fields["kind"], "Config");
            for (field, value) in added.as_object().unwrap() {
                match &mut fields[field] {
                    Value::Array(list) => list.extend(value.as_array().unwrap().iter().cloned()),
                    field => *field = value.clone(),
                }
            }
            unmerge(&mut config, "pintle", "a");
            assert_eq!(config.is_none(), deleted, "{before:?} {added}");
        }
    }

    #[test]
    fn context_chosen_meanwhile_stays_current() {
        let mut config = Some(foreign());
        merge(&mut config, "pintle", ours("https://a")).unwrap();
        config.as_mut().unwrap()["current-context"] = json!("other");
        unmerge(&mut config, "pintle", "https://a");
        assert_eq!(current(config.as_ref()), "other");
    }
}
