//! Rules that a test sets, while the cluster runs, for the objects that match a selector.

use std::sync::Arc;

use futures::{Stream, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use pintle::cache::{InvalidSelector, Selector};
use tokio::sync::watch;

use crate::meta;

/// The objects that a rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// All namespaces if it is `None`.
    pub(crate) namespace: Option<String>,
    /// The selector as a string; selectors are compared as strings. All objects if it is empty.
    pub(crate) selector: String,
}

impl Target {
    fn parsed(&self) -> Result<Selector, InvalidSelector> {
        if self.selector.is_empty() {
            return Ok(Selector::everything());
        }
        self.selector.parse()
    }
}

#[derive(Clone, Debug)]
struct Rule<T> {
    target: Target,
    selector: Selector,
    what: T,
}

impl<T> Rule<T> {
    fn matches(&self, object: &ObjectMeta) -> bool {
        let namespace = &self.target.namespace;
        let is_here = namespace.is_none() || *namespace == object.namespace;
        is_here && meta::selects(&self.selector, object)
    }
}

/// Rules, newest last. Clones share them.
#[derive(Debug)]
pub(crate) struct Rules<T> {
    rules: Arc<Mutex<Vec<Rule<T>>>>,
    changed: watch::Sender<()>,
}

impl<T> Clone for Rules<T> {
    fn clone(&self) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            changed: self.changed.clone(),
        }
    }
}

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Self {
            rules: Arc::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl<T> Rules<T> {
    /// Adds a rule. It replaces the rules for the same target that `replaces` accepts.
    pub(crate) fn set(
        &self,
        target: &Target,
        what: T,
        replaces: impl Fn(&T) -> bool,
    ) -> Result<(), InvalidSelector> {
        let selector = target.parsed()?;
        let mut rules = self.rules.lock();
        rules.retain(|rule| rule.target != *target || !replaces(&rule.what));
        rules.push(Rule {
            target: target.clone(),
            selector,
            what,
        });
        drop(rules);
        self.changed.send_replace(());
        Ok(())
    }

    /// Removes the rules for a target.
    pub(crate) fn reset(&self, target: &Target) -> Result<(), InvalidSelector> {
        target.parsed()?;
        self.rules.lock().retain(|rule| rule.target != *target);
        self.changed.send_replace(());
        Ok(())
    }

    /// Returns what `read` finds in the newest rule that matches an object and has it.
    pub(crate) fn find<R>(&self, object: &ObjectMeta, read: impl Fn(&T) -> Option<R>) -> Option<R> {
        let rules = self.rules.lock();
        let mut matching = rules.iter().rev().filter(|rule| rule.matches(object));
        matching.find_map(|rule| read(&rule.what))
    }

    /// Returns a receiver that is notified of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// Returns a stream that yields after changes. Changes in quick succession may yield one item.
pub(crate) fn changes(changed: watch::Receiver<()>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(changed, |mut changed| async {
        changed.changed().await.ok()?;
        Some(((), changed))
    })
}
