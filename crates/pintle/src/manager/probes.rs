//! The probes of a manager.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{ManagerError, builder::Common, run::Control};
use crate::{
    leader_election::Leadership,
    probes::{Probes, Serving},
};

/// How long after its last renewal an expired term may remain before its elector is considered
/// stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Serves the probes, if the manager has an address for them.
pub(super) async fn serve(
    common: &Common,
    control: &Arc<Control>,
    leaderships: &[Leadership],
) -> Result<Option<Serving>, ManagerError> {
    let Some(address) = &common.probes else {
        return Ok(None);
    };
    let serving = probes(common, control, leaderships).serve(address).await;
    let serving = serving.map_err(|source| ManagerError::Probes {
        address: address.clone(),
        source,
    })?;
    tracing::info!(manager = common.name, address = %serving.address(), "serving probes and metrics");
    Ok(Some(serving))
}

fn probes(common: &Common, control: &Arc<Control>, leaderships: &[Leadership]) -> Probes {
    let mut probes = Probes::new(&control.stop)
        .metrics(&common.metrics)
        .caches(&common.informers);
    let starting = Arc::clone(control);
    probes = probes.ready_check("startup", move || {
        let started = starting.started.load(Ordering::Relaxed);
        started.then_some(()).ok_or_else(|| "starting".to_owned())
    });
    for leadership in leaderships {
        let name = format!("leader election {}", leadership.lease());
        let (standing, stuck) = (leadership.clone(), leadership.clone());
        probes = probes
            .report(&name, move || describe(&standing))
            .alive_check(&name, move || match stuck.lease_age() {
                Some(age) if age > STUCK_AFTER && !stuck.is_leader() => Err(format!(
                    "the lease was last renewed {} s ago and the elector is stuck",
                    age.as_secs()
                )),
                _ => Ok(()),
            });
    }
    for check in &common.checks {
        let call = Arc::clone(&check.run);
        probes = if check.is_liveness {
            probes.alive_check(&check.name, move || call())
        } else {
            probes.ready_check(&check.name, move || call())
        };
    }
    probes
}

/// Describes which replica leads.
fn describe(leadership: &Leadership) -> String {
    match leadership.lease_age().filter(|_| leadership.is_leader()) {
        Some(age) => format!("leading, renewed {:.1} s ago", age.as_secs_f64()),
        None => match leadership.leader() {
            Some(leader) => format!("standby, {leader} leads"),
            None => "standby, no replica leads".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests;
