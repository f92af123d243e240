//! What a list or a watch asks for.

use std::{fmt, time::Duration};

/// The options of one list or watch request, by client-go's names.
///
/// The reflector fills in versions, paging and time limits; the source adds its selectors. A closure
/// given to [`KubeSource::tweak_list_options`](super::KubeSource::tweak_list_options) sees the
/// result last and may change anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Only objects whose labels match.
    pub label_selector: Option<String>,
    /// Only objects whose fields match; each kind supports a few fields.
    pub field_selector: Option<String>,
    /// The version to read at or to watch from. `None` asks for the newest, read consistently.
    pub resource_version: Option<String>,
    /// How `resource_version` is meant. `None` leaves it to the server: not older than.
    pub resource_version_match: Option<VersionMatch>,
    /// At most so many items in one answer. `None` asks for all of them.
    pub limit: Option<u32>,
    /// Where the answer before this one stopped.
    pub continue_token: Option<String>,
    /// How long the server shall keep a watch open.
    pub timeout: Option<Duration>,
    /// Whether a watch may carry bookmarks, which tell its progress when nothing happens.
    pub allow_watch_bookmarks: bool,
    /// Whether a watch begins with the objects that exist: a streaming list.
    pub send_initial_events: bool,
}

/// How the resource version of a list is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// At this version or a newer one.
    NotOlderThan,
    /// At exactly this version.
    Exact,
}

/// Which objects of a kind are followed: everywhere or in one namespace, all or those selected.
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
    /// Every object of the kind.
    pub fn all() -> Self {
        Self::default()
    }

    /// The objects of one namespace.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.into()),
            ..Self::default()
        }
    }

    /// Only objects whose labels match `selector`, in the form `kubectl -l` takes.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects whose fields match `selector`, in the form `kubectl --field-selector` takes.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// The same selection in the whole cluster.
    pub(crate) fn in_cluster(self) -> Self {
        Self {
            namespace: None,
            ..self
        }
    }

    /// The namespace, unless the scope is the whole cluster.
    pub fn in_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The label selector, if there is one.
    pub fn label_selector(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    /// The field selector, if there is one.
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
        if let Some(labels) = &self.labels {
            write!(f, " with labels {labels}")?;
        }
        if let Some(fields) = &self.fields {
            write!(f, " with fields {fields}")?;
        }
        Ok(())
    }
}

/// Which objects of its kind a source shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extent {
    /// Every one.
    #[default]
    All,
    /// Every one in this namespace.
    Namespace(String),
    /// Some, by their labels, their fields or anything else: of no object can it be said beforehand
    /// whether it will be among them.
    Selected,
}

impl Extent {
    /// Whether every object in `namespace` is shown; without one, every object of a kind that has no
    /// namespaces.
    pub(crate) fn includes(&self, namespace: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(shown) => namespace == Some(shown),
            Self::Selected => false,
        }
    }
}
