//! The options of list and watch requests, and the scope of a source.

use std::{collections::BTreeSet, fmt, time::Duration};

/// The options of one list or watch request, named as in client-go.
///
/// The reflector sets `resourceVersion`, paging and timeouts; the source adds its selectors. A
/// closure passed to [`KubeSource::tweak_list_options`](super::KubeSource::tweak_list_options) runs
/// last and may change anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Only objects whose labels match.
    pub label_selector: Option<String>,
    /// Only objects whose fields match. Each kind supports only a few fields.
    pub field_selector: Option<String>,
    /// The `resourceVersion` to list at or watch from. `None` requests the most recent state, read
    /// consistently.
    pub resource_version: Option<String>,
    /// How to match `resource_version`. `None` leaves it to the server, which means not older than.
    pub resource_version_match: Option<VersionMatch>,
    /// The maximum number of items per page. `None` requests all items at once.
    pub limit: Option<u32>,
    /// The continue token of the previous page.
    pub continue_token: Option<String>,
    /// How long the server should keep a watch open.
    pub timeout: Option<Duration>,
    /// Whether the server may send bookmarks, which report progress while nothing changes.
    pub allow_watch_bookmarks: bool,
    /// Whether the watch starts with the existing objects (a streaming list).
    pub send_initial_events: bool,
}

/// How the server matches the `resourceVersion` of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// This `resourceVersion` or a newer one.
    NotOlderThan,
    /// Exactly this `resourceVersion`.
    Exact,
}

/// Which objects of a kind to watch: in all namespaces or one, all or those that match selectors.
///
/// ```
/// use pintle::source::Scope;
///
/// let web = Scope::namespace("shop").labels("app=web");
/// assert_eq!(web.to_string(), "in namespace shop with labels app=web");
/// assert_eq!(Scope::all().to_string(), "at cluster scope");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
}

impl Scope {
    /// Returns the scope of every object of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the scope of the objects in one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            ..Self::default()
        }
    }

    /// Selects objects by label, in the syntax of `kubectl -l`.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Selects objects by field, in the syntax of `kubectl --field-selector`.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Returns the same selectors at cluster scope.
    pub(crate) fn in_cluster(self) -> Self {
        Self {
            namespace: None,
            ..self
        }
    }

    /// Returns the same selectors in one namespace.
    pub(crate) fn in_one(self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Returns the namespace, unless the scope covers all of them.
    pub fn in_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the label selector, if there is one.
    pub fn label_selector(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    /// Returns the field selector, if there is one.
    pub fn field_selector(&self) -> Option<&str> {
        self.fields.as_deref()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "in namespace {namespace}")?,
            None => f.write_str("at cluster scope")?,
        }
        self.fmt_selectors(f)
    }
}

/// The selectors of a scope in these namespaces.
pub(super) struct InNamespaces<'a>(pub(super) &'a Scope, pub(super) &'a BTreeSet<String>);

/// How many namespaces are named.
const NAMED: usize = 5;

impl fmt::Display for InNamespaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(scope, names) = self;
        match names.len() {
            0 => f.write_str("in no namespace")?,
            1 => f.write_str("in namespace")?,
            _ => f.write_str("in namespaces")?,
        }
        for (number, name) in names.iter().take(NAMED).enumerate() {
            let separator = if number > 0 { "," } else { "" };
            write!(f, "{separator} {name}")?;
        }
        if names.len() > NAMED {
            write!(f, " and {} more", names.len() - NAMED)?;
        }
        scope.fmt_selectors(f)
    }
}

impl Scope {
    fn fmt_selectors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(labels) = &self.labels {
            write!(f, " with labels {labels}")?;
        }
        if let Some(fields) = &self.fields {
            write!(f, " with fields {fields}")?;
        }
        Ok(())
    }
}

/// Which objects of its kind a source covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extent {
    /// Every object.
    #[default]
    All,
    /// Every object in this namespace.
    Namespace(String),
    /// Some objects, by label, field or any other criterion, so that no object is certain to be
    /// covered.
    Selected,
}

impl Extent {
    /// Returns whether every object in `namespace` is covered; `None` stands for cluster scope.
    pub(crate) fn includes(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(covered) => namespace == Some(covered),
            Self::Selected => false,
        }
    }
}
