//! The triggers of a controller: owned and watched kinds, streams of keys, timers.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt};

use super::{
    Controller, Listers, Predicate, Watchable,
    builder::Trigger,
    trigger::{self, Owners, Recorded},
    wakes::Wake,
};
use crate::{
    cache::{Kind, Object, ObjectKey},
    informer::WatchInput,
    inspect::Via,
    rbac::Verb,
};

impl<K: Kind, S: Send + Sync + 'static, E> Controller<K, S, E> {
    /// Enqueues the controlling owner of every `C` that changes. After a change of owner, the
    /// previous one is enqueued too.
    pub fn owns<C: Watchable>(self) -> Self {
        self.on_owned::<C>(WatchInput::new(), None)
    }

    /// Like [`owns`](Self::owns), but only for deletions and the changes that `predicate` admits.
    pub fn owns_if<C: Watchable>(self, predicate: Predicate<C>) -> Self {
        self.on_owned(WatchInput::new(), Some(predicate))
    }

    /// Like [`owns`](Self::owns), for the objects that `input` names.
    ///
    /// With an input of another cluster, [`run`](Self::run) fails.
    pub fn owns_from<C: Kind>(self, input: WatchInput<C>) -> Self {
        self.on_owned(input, None)
    }

    /// Like [`owns_from`](Self::owns_from), but only for deletions and the changes that `predicate`
    /// admits.
    pub fn owns_from_if<C: Kind>(self, input: WatchInput<C>, predicate: Predicate<C>) -> Self {
        self.on_owned(input, Some(predicate))
    }

    /// Enqueues the keys that `keys_of` returns for the old and the new state of every `C` that
    /// changes.
    ///
    /// `keys_of` gets the caches of the controller, to find the objects that depend on the changed
    /// one. If they name it in a field, [`watches_referenced`](Self::watches_referenced) does all
    /// of this.
    ///
    /// ```
    /// # use k8s_openapi::api::{core::v1::{Node, Pod}};
    /// # use pintle::{controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// // A relabelled Node affects every Pod.
    /// let controller = Controller::<Pod>::new("placement", informers)
    ///     .watches::<Node>(|_, listers| {
    ///         let pods = listers.get::<Pod>().map(|pods| pods.list()).unwrap_or_default();
    ///         pods.iter().map(|pod| pod.key().clone()).collect()
    ///     });
    /// # }
    /// ```
    ///
    /// It runs on the handler's task, so it must not block.
    pub fn watches<C: Watchable>(
        self,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(WatchInput::new(), None, keys_of)
    }

    /// Like [`watches`](Self::watches), but only for deletions and the changes that `predicate`
    /// admits.
    pub fn watches_if<C: Watchable>(
        self,
        predicate: Predicate<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(WatchInput::new(), Some(predicate), keys_of)
    }

    /// Like [`watches`](Self::watches), for the objects that `input` names, in this cluster or
    /// another.
    ///
    /// The keys that `keys_of` returns are keys of the controller's own kind, in its own cluster,
    /// wherever the changed object is. Two clusters with objects of the same name are two inputs,
    /// so each function knows which cluster a change comes from:
    ///
    /// ```
    /// # use k8s_openapi::api::{core::v1::ConfigMap, core::v1::Pod};
    /// # use pintle::{cache::ObjectKey, controller::Controller};
    /// # use pintle::informer::{InformerFactory, WatchInput};
    /// # fn build(informers: &InformerFactory, clusters: Vec<(String, kube::Client)>) {
    /// let mut controller = Controller::<ConfigMap>::new("placement", informers);
    /// for (name, client) in clusters {
    ///     let pods = WatchInput::<Pod>::new().cluster(&name, client).labels("placed=true");
    ///     // Each cluster is placed by the ConfigMap of its name.
    ///     controller = controller
    ///         .watches_from(pods, move |_, _| vec![ObjectKey::namespaced("placement", &name)]);
    /// }
    /// # }
    /// ```
    pub fn watches_from<C: Kind>(
        self,
        input: WatchInput<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(input, None, keys_of)
    }

    /// Like [`watches_from`](Self::watches_from), but only for deletions and the changes that
    /// `predicate` admits.
    pub fn watches_from_if<C: Kind>(
        self,
        input: WatchInput<C>,
        predicate: Predicate<C>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on_mapped(input, Some(predicate), keys_of)
    }

    /// Enqueues the keys of a stream, for changes that no watch reports, such as those of an
    /// external system.
    ///
    /// A tokio channel can be used as one ([`ReceiverStream`] of tokio-stream, or as below). The
    /// stream is read from when the controller opens its caches until it stops, whether or not it
    /// leads; then it is dropped. Keys of objects that exist are always read, because the queue
    /// holds each key once, even on a standby. While the queue has over 16,384 keys more than there
    /// are objects, the stream is read only occasionally, so use a bounded channel. A stream that
    /// ends or panics enqueues no more keys, and the controller continues without it.
    ///
    /// [`ReceiverStream`]:
    /// https://docs.rs/tokio-stream/latest/tokio_stream/wrappers/struct.ReceiverStream.html
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use pintle::{cache::ObjectKey, controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// let (sender, mut receiver) = tokio::sync::mpsc::channel::<ObjectKey>(64);
    /// let keys = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    /// let controller = Controller::<ConfigMap>::new("buckets", informers).wakes(keys);
    /// // Later, for example when a bucket has changed:
    /// let _ = sender.try_send(ObjectKey::namespaced("default", "bucket"));
    /// # }
    /// ```
    pub fn wakes(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.settings.wakes.push(Wake::Keys(keys.boxed()));
        self
    }

    /// Enqueues every object of the controller's own kind once per `period`, at low priority, to
    /// check on things outside the cluster. Periods below a second are raised to one.
    ///
    /// For a single object, [`Action::requeue_after`](super::Action::requeue_after) is better.
    pub fn wakes_every(mut self, period: Duration) -> Self {
        self.settings.wakes.push(Wake::Every(period));
        self
    }

    /// Enqueues the objects of the controller's own kind that refer to a changed `C` by name.
    ///
    /// `path` is a JSON pointer to the name in the controller's own kind, such as
    /// `/spec/secretName`, or to an array of names. If `C` is namespaced, only objects in the same
    /// namespace are enqueued. An index on the controller's own cache finds them, so the cost does
    /// not depend on the number of objects. The cache must contain the field, so this does not work
    /// with a metadata-only cache unless the field is part of the metadata.
    ///
    /// An invalid path is reported by [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// # use k8s_openapi::api::{networking::v1::{Ingress, IngressClass}};
    /// # use pintle::{controller::Controller, informer::InformerFactory};
    /// # fn build(informers: &InformerFactory) {
    /// let controller = Controller::<Ingress>::new("ingress", informers)
    ///     .watches_referenced::<IngressClass>("/spec/ingressClassName");
    /// # }
    /// ```
    pub fn watches_referenced<C: Watchable>(mut self, path: &str) -> Self {
        self.settings.references.push(path.to_owned());
        let own = self.settings.input.clone();
        let index = trigger::reference_index(path);
        self.on(
            WatchInput::new(),
            None,
            Via::Reference,
            move |object: &Object<C>, listers, keys| {
                let own = listers.from_input(&own).ok();
                keys.extend(trigger::referrers(object.key(), &index, own));
            },
        )
    }

    fn on_owned<C: Kind>(mut self, input: WatchInput<C>, predicate: Option<Predicate<C>>) -> Self {
        let own = self.settings.input.clone();
        let cluster = own.in_cluster().map(|cluster| &cluster.name);
        if let Some(other) = input.in_cluster()
            && Some(&other.name) != cluster
        {
            let elsewhere = (input.kind_name(), other.name.clone());
            self.settings.owned_elsewhere.get_or_insert(elsewhere);
        }
        let owners = Owners::of::<K>(own.kind());
        let controller = self.needs(&own, Some("finalizers"), [Verb::Update]);
        controller.on(
            input,
            predicate,
            Via::Owner,
            move |object, listers, keys| {
                let exists = |key: &ObjectKey| {
                    let own = listers.from_input(&own);
                    own.is_ok_and(|own| own.get(key).is_some())
                };
                let owner = object.controller_owner();
                let namespace = object.key().namespace();
                keys.extend(owner.and_then(|owner| owners.key(owner, namespace, exists)));
            },
        )
    }

    fn on_mapped<C: Kind>(
        self,
        input: WatchInput<C>,
        predicate: Option<Predicate<C>>,
        keys_of: impl Fn(&Object<C>, &Listers) -> Vec<ObjectKey> + Send + 'static,
    ) -> Self {
        self.on(
            input,
            predicate,
            Via::Mapper,
            move |object, listers, keys| {
                keys.extend(keys_of(object, listers));
            },
        )
    }

    fn on<C: Kind>(
        mut self,
        input: WatchInput<C>,
        predicate: Option<Predicate<C>>,
        via: Via,
        keys_of: impl Fn(&Object<C>, &Listers, &mut Vec<ObjectKey>) + Send + 'static,
    ) -> Self {
        self = self.reads(&input);
        let open: Trigger = Box::new(move |listers, watched| {
            let (informer, new) = listers.add(&input);
            watched.extend(new);
            Box::new(move |target, source, listers| {
                let listers = Arc::clone(listers);
                let keys_of = move |object: &Object<C>, keys: &mut Vec<ObjectKey>| {
                    keys_of(object, &listers, keys);
                };
                let kind = input.kind_name();
                let wakes = Recorded::new(target.record, &kind, via);
                let queue = target.queue;
                let registration =
                    trigger::enqueue(&informer, queue, source, predicate, wakes, keys_of);
                (kind, registration)
            })
        });
        self.settings.triggers.push(open);
        self
    }
}
