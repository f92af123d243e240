//! Runs the controller on an embedded cluster and prints each step.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use kube::{Api, Client};
use sample_controller::{
    embedded::Embedded,
    foo::Foo,
    install,
    narrate::{self, Narrator},
};

use crate::{Program, say};

impl Program {
    /// Starts an embedded cluster, applies the example Foo, and prints each step of the loop.
    pub(crate) async fn run_embedded(&self) -> anyhow::Result<()> {
        let embedded = Embedded::start().await?;
        let client = embedded.client();
        install::crd(&client)
            .await
            .context("installing the Foo CRD failed")?;
        say(&format!(
            "No cluster configured (--kubeconfig, --master, KUBECONFIG).\n\
             Embedded cluster listening on {}\n",
            embedded.url()
        ));
        let limited = match &self.limit {
            Some(limit) => embedded.limited_client(limit),
            None => client.clone(),
        };
        let informers = self.informers(limited.clone());
        let narrator = Narrator::new(&informers, |line| say(&line));
        install::example(&client)
            .await
            .context("applying the example Foo failed")?;
        let hints = tokio::spawn(hints(client, embedded.kubeconfig()));
        let observe = |change: &str| say(&narrate::action(change));
        let ran = self.control(limited, &informers, Some(observe)).await;
        hints.abort();
        drop(narrator);
        embedded.stop().await;
        ran
    }
}

/// Prints commands to try next once the example is ready.
async fn hints(client: Client, kubeconfig: PathBuf) {
    let foos = Api::<Foo>::namespaced(client, "default");
    let ready = |foo: &Foo| {
        foo.status
            .as_ref()
            .is_some_and(|status| status.available_replicas > 0)
    };
    while !foos.get("example-foo").await.as_ref().is_ok_and(ready) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Print the last steps of the narration first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    say(&format!(
        "\nexample-foo is ready. Try this in another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl patch foo example-foo --type merge -p '{{\"spec\":{{\"replicas\":3}}}}'\n  \
         kubectl edit foo example-foo\n  \
         kubectl get foos,deployments,pods\n  \
         kubectl get events\n  \
         kubectl delete foo example-foo\n\n\
         Press Ctrl-C to stop.\n",
        kubeconfig.display()
    ));
}
