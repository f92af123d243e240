//! Users: the identity a request is made under.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::meta::NameRule;

/// The group of administrators, who may impersonate others.
pub(crate) const ADMINISTRATORS: &str = "system:masters";
/// The group of authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of unauthenticated users.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of unauthenticated requests.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// The extra field that names the credential a user authenticated with.
pub(crate) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The identity a request is made under.
///
/// Over TLS it comes from the client's certificate or token. In process the caller chooses it with
/// [`ApiServer::service_as`](crate::ApiServer::service_as) or
/// [`ApiServer::client_as`](crate::ApiServer::client_as):
///
/// ```
/// use pintle_apiserver::User;
///
/// let jane = User::new("jane").group("developers");
/// assert_eq!(jane.groups(), ["developers", "system:authenticated"]);
///
/// let robot = User::new("system:serviceaccount:shop:robot");
/// assert_eq!(
///     robot.groups(),
///     ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
/// );
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    pub(crate) name: String,
    /// Empty if the user has none.
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    /// Additional attributes, by name.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Creates a user with the groups derived from its name: `system:authenticated`, and the
    /// service account groups for `system:serviceaccount:NAMESPACE:NAME`.
    ///
    /// Requests with an empty user name are rejected with 401.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            groups: groups_of(&name, Vec::new()),
            name,
            ..Self::default()
        }
    }

    /// Returns a service account that has not authenticated: without `system:authenticated`.
    pub(crate) fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: service_account_groups(namespace).into(),
            ..Self::default()
        }
    }

    /// Returns the administrator: `kubernetes-admin` in `system:masters`, who may impersonate
    /// others.
    pub fn admin() -> Self {
        Self {
            name: "kubernetes-admin".to_owned(),
            groups: vec![ADMINISTRATORS.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Adds a group.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        let last = self.groups.len().saturating_sub(1);
        self.groups.insert(last, group.into());
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    pub(crate) fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == ADMINISTRATORS)
    }

    /// Returns the user as reviews show it.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.clone().into();
        }
        if !self.groups.is_empty() {
            info["groups"] = self.groups.clone().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

impl From<&str> for User {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for User {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

/// Completes the groups of a user: a service account without explicit groups gets its own, and
/// every user except `system:anonymous` is authenticated unless it is in `system:unauthenticated`.
pub(crate) fn groups_of(name: &str, mut groups: Vec<String>) -> Vec<String> {
    if let (Some((namespace, _)), true) = (service_account(name), groups.is_empty()) {
        groups.extend(service_account_groups(namespace));
    }
    let has = |group: &str| groups.iter().any(|other| other == group);
    let more = if name == ANONYMOUS {
        (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED)
    } else {
        (!has(UNAUTHENTICATED) && !has(AUTHENTICATED)).then_some(AUTHENTICATED)
    };
    groups.extend(more.map(str::to_owned));
    groups
}

fn service_account_groups(namespace: &str) -> [String; 2] {
    let all = "system:serviceaccounts";
    [all.to_owned(), format!("{all}:{namespace}")]
}

/// Splits the user name of a service account into namespace and name.
pub(crate) fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let fits = NameRule::Label.problems(namespace, false).is_empty()
        && NameRule::Subdomain.problems(name, false).is_empty();
    fits.then_some((namespace, name))
}
