//! The inspector without the cargo feature `inspect`: never constructed, so nothing is recorded.

#![allow(
    dead_code,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref,
    clippy::unused_self,
    reason = "has the interface of the inspector"
)]

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::time::Instant;

use crate::{
    cache::{Kind, ObjectKey},
    informer::{Event, InformerFactory},
    queue::WorkQueue,
};

#[derive(Clone)]
pub(crate) struct Inspector(());

#[derive(Clone)]
pub(crate) struct Record(());

#[derive(Clone, Copy)]
pub(crate) enum Via {
    Own,
    Owner,
    Mapper,
    Reference,
}

#[derive(Clone, Copy)]
pub(crate) enum Delay {
    BackOff,
    Requeue,
    OwnWrite,
}

#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Ok,
    Requeue,
    Error,
    Terminal,
    Panic,
    Timeout,
}

pub(crate) struct Reconciled {
    pub(crate) id: u64,
    pub(crate) cause: u8,
    pub(crate) attempt: u32,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<Arc<str>>,
    pub(crate) next: Option<(Delay, Duration)>,
}

impl Inspector {
    pub(crate) fn caches(&self, _: &InformerFactory) {}

    pub(crate) fn client(&self, inner: &Client) -> Client {
        inner.clone()
    }

    pub(crate) fn record_of(
        &self,
        _: String,
        _: String,
        _: &str,
        _: &WorkQueue<ObjectKey>,
        _: fn(u8, &[String]) -> String,
    ) -> Record {
        Record(())
    }
}

impl Record {
    pub(crate) fn workers(&self, _: usize) {}

    pub(crate) fn set_watches(&self, _: &Arc<[String]>) {}

    pub(crate) fn woken<K: Kind>(&self, _: &[ObjectKey], _: &Arc<str>, _: Via, _: &Event<K>) {}

    pub(crate) async fn scope<T>(&self, _: &ObjectKey, _: u64, run: impl Future<Output = T>) -> T {
        run.await
    }

    pub(crate) fn delayed(&self, _: &ObjectKey, _: Delay, _: Duration) {}

    pub(crate) fn reconciled(&self, _: &ObjectKey, _: Instant, _: Reconciled) {}
}
