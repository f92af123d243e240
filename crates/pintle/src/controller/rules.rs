//! The permissions a controller needs, derived from the kinds it watches and the writes it
//! declares.

use super::{BuiltController, Controller};
use crate::{
    cache::Kind,
    informer::{Reach, WatchInput},
    rbac::{Rules, Verb},
    source::KindScope,
};

impl<K: Kind, S, E> Controller<K, S, E> {
    /// Declares permissions that the reconcile function needs, for [`rules`](Self::rules). This has
    /// no other effect.
    ///
    /// Watches, the finalizer, controller references and events need not be declared. Declared
    /// permissions apply, like those for events, in the namespaces of the controller's own objects;
    /// use [`within`](Rules::within) for others.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use pintle::{controller::Controller, informer::InformerFactory};
    /// use pintle::rbac::Rules;
    ///
    /// # fn example(informers: &InformerFactory) {
    /// let controller = Controller::<ConfigMap>::new("config-deployer", informers)
    ///     .owns::<Deployment>()
    ///     .declares(Rules::new().applies::<Deployment>());
    /// # }
    /// ```
    pub fn declares(mut self, rules: Rules) -> Self {
        let known = std::mem::take(&mut self.settings.declared_rules);
        self.settings.declared_rules = known.and(rules);
        self
    }

    /// Returns the permissions that the controller needs: to list and watch its own kind and those
    /// it owns or watches, to store its finalizer, to set controller references, to record events,
    /// and those it [declares](Self::declares).
    ///
    /// With informers of one namespace the permissions are limited to that namespace, and with
    /// inputs to the namespaces they name; [`Namespaces`](crate::informer::Namespaces) that can
    /// change need permissions in all of them. Permissions in clusters other than the controller's
    /// are not included. No request is sent, so a program that only prints its manifests can build
    /// its controllers with a client for any address.
    pub fn rules(&self) -> Rules {
        let settings = &self.settings;
        let (events, declared) = (
            Rules::new().records_events(),
            settings.declared_rules.clone(),
        );
        // Events about cluster-scoped objects are in the namespace `default`.
        let is_cluster_scoped = KindScope::of::<K>() == KindScope::Cluster;
        let (events, declared) = match settings.input.reach() {
            Reach::All => (events, declared),
            Reach::Factory if is_cluster_scoped => {
                let is_narrow = settings.informers.in_namespace().is_some();
                let events = if is_narrow {
                    events.within(["default"])
                } else {
                    events
                };
                (events, self.in_factory_namespace(declared))
            }
            Reach::Factory => (
                self.in_factory_namespace(events),
                self.in_factory_namespace(declared),
            ),
            Reach::Namespaces(_) if is_cluster_scoped => (events.within(["default"]), declared),
            Reach::Namespaces(names) => (events.within(names.clone()), declared.within(names)),
        };
        let rules = self.in_factory_namespace(settings.rules.clone());
        let rules = rules.and(events).and(declared);
        rules.and(settings.own_rules.clone())
    }

    fn in_factory_namespace(&self, rules: Rules) -> Rules {
        match self.settings.informers.in_namespace() {
            Some(namespace) => rules.within([namespace]),
            None => rules,
        }
    }

    /// Adds the permissions that an informer of `input` needs.
    pub(super) fn reads<C: Kind>(self, input: &WatchInput<C>) -> Self {
        self.needs(input, None, [Verb::List, Verb::Watch])
    }

    /// Adds permissions to the objects of `input`, unless they are in a cluster other than the
    /// controller's.
    pub(super) fn needs<C: Kind>(
        mut self,
        input: &WatchInput<C>,
        subresource: Option<&str>,
        verbs: impl IntoIterator<Item = Verb>,
    ) -> Self {
        let own = self.settings.input.in_cluster().map(|own| &own.name);
        if input
            .in_cluster()
            .is_some_and(|other| Some(&other.name) != own)
        {
            return self;
        }
        let rules = Rules::new().allows::<C>(input.kind(), subresource, verbs);
        let add = |known: &mut Rules, rules| *known = std::mem::take(known).and(rules);
        match input.reach() {
            Reach::Factory => add(&mut self.settings.rules, rules),
            Reach::All => add(&mut self.settings.own_rules, rules),
            Reach::Namespaces(names) => add(&mut self.settings.own_rules, rules.within(names)),
        }
        self
    }
}

impl BuiltController {
    /// Returns the permissions that the controller needs. See [`Controller::rules`].
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
}
