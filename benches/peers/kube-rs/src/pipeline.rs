//! From the reflector to the handlers, without network and decoding.

use anyhow::{Result, ensure};
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;

use crate::{
    Flags, follow,
    measure::{Countdown, Phase},
    small,
};

/// Sends decoded updates to the reflector and waits until every handler has them.
pub async fn run(flags: &Flags) -> Result<Phase> {
    let (store, mut writer) = follow::store(flags.handlers);
    small::fill(&mut writer, flags.objects);
    let updates: Vec<_> = (0..flags.count)
        .map(|i| Ok(Event::Apply(small::pod(i % flags.objects, i + 2))))
        .collect();
    let seen = Countdown::new(flags.count * flags.handlers);
    let handlers = (0..flags.handlers)
        .map(|_| {
            let seen = seen.clone();
            move |_: &Pod| seen.decrement()
        })
        .collect();
    let mut phase = Phase::begin()?;
    follow::drive(stream::iter(updates), writer, handlers);
    seen.wait("every handler has seen every update").await?;
    phase.end()?;
    ensure!(store.len() == flags.objects, "the store lost objects");
    phase.keep(store);
    Ok(phase)
}
