//! Two replicas with a leader election written by hand: a Lease that is renewed every five seconds.
//! Reproduces cilium/cilium#42920: a replica that could not renew its Lease in time keeps writing.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use pintle_trials::Cx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "stranger.example.com",
    version = "v1",
    kind = "Motd",
    namespaced
)]
pub(crate) struct MotdSpec {
    text: String,
}

const DURATION: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(5);

/// Acquires the Lease when its holder lets it expire, and renews it.
struct Election {
    leases: Api<Lease>,
    identity: String,
    /// The last `resourceVersion` of the Lease, and when this replica first observed it.
    observed: Option<(Option<String>, Instant)>,
    /// The time until which this replica may act.
    until: Option<Instant>,
}

impl Election {
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        let asked = Instant::now();
        let lease = self.leases.get_opt("motd").await?;
        let spec = json!({"holderIdentity": self.identity, "leaseDurationSeconds": 15,
            "acquireTime": null});
        let Some(mut lease) = lease else {
            let lease = serde_json::from_value(json!({"metadata": {"name": "motd"}, "spec": spec}));
            self.leases
                .create(&PostParams::default(), &lease.unwrap())
                .await?;
            self.until = Some(asked + DURATION);
            return Ok(true);
        };
        let version = lease.resource_version();
        if self
            .observed
            .as_ref()
            .is_none_or(|(known, _)| *known != version)
        {
            self.observed = Some((version, Instant::now()));
        }
        let holder = lease
            .spec
            .as_ref()
            .and_then(|it| it.holder_identity.clone());
        let since = self
            .observed
            .as_ref()
            .map(|(_, at)| at.elapsed())
            .unwrap_or_default();
        if holder.as_ref() != Some(&self.identity) && since < DURATION {
            return Ok(false);
        }
        let turns = lease
            .spec
            .as_ref()
            .and_then(|it| it.lease_transitions)
            .unwrap_or(0);
        lease.spec = serde_json::from_value(spec).unwrap();
        lease.spec.as_mut().unwrap().lease_transitions = Some(turns + 1);
        self.leases
            .replace("motd", &PostParams::default(), &lease)
            .await?;
        self.until = Some(asked + DURATION);
        Ok(true)
    }
}

async fn sync(client: &Client) -> Result<(), kube::Error> {
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    for motd in Api::<Motd>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await?
    {
        let name = motd.name_any();
        let current = maps.get_opt(&name).await?.and_then(|it| it.data);
        if current.is_some_and(|it| it.get("text") == Some(&motd.spec.text)) {
            continue;
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [motd.controller_owner_ref(&())]},
            "data": {"text": motd.spec.text}});
        let params = PatchParams::apply("motd").force();
        maps.patch(&name, &params, &Patch::Apply(map)).await?;
    }
    Ok(())
}

async fn controller(cx: Cx, broken: bool) {
    let client = cx.client();
    let mut election = Election {
        leases: Api::default_namespaced(client.clone()),
        identity: format!("replica-{}", cx.process()),
        observed: None,
        until: None,
    };
    let (leading, until) = watch::channel(None::<Instant>);
    tokio::spawn(async move {
        loop {
            // A replica with the bug ignores that it has lost the Lease.
            if let Ok(leads) = election.renew().await {
                leading.send_replace(election.until.filter(|_| leads || broken));
            }
            sleep(RENEW).await;
        }
    });
    loop {
        let until = *until.borrow();
        if let Some(until) = until {
            if broken {
                let _ = sync(&client).await;
            } else if let Some(left) = until.checked_duration_since(Instant::now() + RENEW) {
                let _ = timeout(left, sync(&client)).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

fn motd() -> Motd {
    let text = "hello".to_owned();
    Motd::new("motd", MotdSpec { text })
}

super::twins!(controller, motd(), Fenced);
