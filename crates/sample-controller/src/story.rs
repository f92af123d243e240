//! The whole story, on a cluster of our own.

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
    /// Brings the cluster up, applies the example, and shows what becomes of it.
    pub(crate) async fn run_embedded(&self) -> anyhow::Result<()> {
        let embedded = Embedded::start().await?;
        let client = embedded.client();
        install::crd(&client)
            .await
            .context("installing the Foo CRD")?;
        say(&format!(
            "No cluster was named (--kubeconfig, --master, KUBECONFIG):\n\
             an embedded one listens on {}\n",
            embedded.url()
        ));
        let ours = match &self.limit {
            Some(limit) => embedded.limited_client(limit),
            None => client.clone(),
        };
        let informers = self.informers(ours.clone());
        let narrator = Narrator::new(&informers, |line| say(&line));
        install::example(&client)
            .await
            .context("applying the example")?;
        let hints = tokio::spawn(hints(client, embedded.kubeconfig()));
        let observe = |what: &str| say(&narrate::action(what));
        let ran = self.control(ours, &informers, Some(observe)).await;
        hints.abort();
        drop(narrator);
        embedded.stop().await;
        ran
    }
}

/// Says how to go on, once the example is ready.
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
    // Let the last lines of the story come first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    say(&format!(
        "\nexample-foo is ready. Go on in another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl patch foo example-foo --type merge -p '{{\"spec\":{{\"replicas\":3}}}}'\n  \
         kubectl edit foo example-foo\n  \
         kubectl get foos,deployments,pods\n  \
         kubectl get events\n  \
         kubectl delete foo example-foo\n\n\
         Ctrl-C stops.\n",
        kubeconfig.display()
    ));
}
