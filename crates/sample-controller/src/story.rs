//! Runs the controller on an embedded cluster and prints each step.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use kube::{Api, Client};
use parking_lot::Mutex;
use pintle::inspect::{Inspector, KeyRow, Query};
use sample_controller::{
    embedded::Embedded,
    foo::Foo,
    install,
    narrate::{self, Narrator},
};

use tokio::{task::JoinHandle, time::sleep};

use crate::{Program, cli::Inspect, say, terminal::Screen, tree};

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
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let inspecting = self.serve_inspector(Inspect::On(local)).await?;
        let inspector = inspecting.as_ref().map(|inspecting| &inspecting.inspector);
        let limited = match &self.limit {
            Some(limit) => embedded.limited_client(limit),
            None => client.clone(),
        };
        let informers = self.informers(limited.clone());
        let live = inspector
            .filter(|_| self.cli.is_quiet() && Screen::is_available())
            .map(LiveTree::start);
        let lines = live.as_ref().map(|live| Arc::clone(&live.lines));
        let print = move |line: String| match &lines {
            Some(lines) => lines.push(line),
            None => say(&line),
        };
        let narrator = Narrator::new(&informers, print.clone());
        install::example(&client)
            .await
            .context("applying the example Foo failed")?;
        let footer = live.as_ref().map(|live| Arc::clone(&live.footer));
        let hints = tokio::spawn(hints(client, embedded.kubeconfig(), footer));
        let observe = move |change: &str| print(narrate::action(change));
        let ran = self
            .control(limited, &informers, inspector, Some(observe))
            .await;
        hints.abort();
        drop(narrator);
        drop(live);
        embedded.stop().await;
        ran
    }
}

/// How often the tree is drawn.
const PERIOD: Duration = Duration::from_millis(200);
/// How many Foos the tree shows.
const FOOS: usize = 8;
/// How many lines of the narration are kept for the tree.
const LINES: usize = 20;

/// The Foos as trees, drawn in place, with the last lines of the narration below them.
struct LiveTree {
    lines: Arc<Lines>,
    footer: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

/// The last lines of the narration.
#[derive(Default)]
struct Lines(Mutex<VecDeque<String>>);

impl Lines {
    fn push(&self, line: String) {
        let mut lines = self.0.lock();
        if lines.len() >= LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

impl LiveTree {
    fn start(inspector: &Inspector) -> Self {
        let lines = Arc::<Lines>::default();
        let footer = Arc::<Mutex<String>>::default();
        let (inspector, recent, below) =
            (inspector.clone(), Arc::clone(&lines), Arc::clone(&footer));
        let task = tokio::spawn(async move {
            let mut screen = Screen::default();
            let first = Query {
                limit: FOOS,
                ..Query::default()
            };
            loop {
                let keys = inspector.now(&first).keys;
                let life = |row: &KeyRow| inspector.key(&row.controller, &row.key.parse().ok()?);
                let lives: Vec<_> = keys.iter().filter_map(life).collect();
                let recent: Vec<_> = recent.0.lock().iter().cloned().collect();
                let below = below.lock().clone();
                screen.draw(&tree::frame(&lives, &recent, &below));
                sleep(PERIOD).await;
            }
        });
        Self {
            lines,
            footer,
            task,
        }
    }
}

impl Drop for LiveTree {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Prints commands to try next once the example is ready.
async fn hints(client: Client, kubeconfig: PathBuf, footer: Option<Arc<Mutex<String>>>) {
    let foos = Api::<Foo>::namespaced(client, "default");
    let ready = |foo: &Foo| {
        foo.status
            .as_ref()
            .is_some_and(|status| status.available_replicas > 0)
    };
    while !foos.get("example-foo").await.as_ref().is_ok_and(ready) {
        sleep(Duration::from_millis(100)).await;
    }
    // Print the last steps of the narration first.
    sleep(Duration::from_millis(200)).await;
    let hints = format!(
        "\nexample-foo is ready. Try this in another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl patch foo example-foo --type merge -p '{{\"spec\":{{\"replicas\":3}}}}'\n  \
         kubectl edit foo example-foo\n  \
         kubectl get foos,deployments,pods\n  \
         kubectl get events\n  \
         kubectl delete foo example-foo\n\n\
         Press Ctrl-C to stop.\n",
        kubeconfig.display()
    );
    match footer {
        Some(footer) => *footer.lock() = hints,
        None => say(&hints),
    }
}
