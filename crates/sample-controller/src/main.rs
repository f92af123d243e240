//! `sample-controller` maintains one Deployment per Foo, on any cluster or on an embedded one.

mod cli;
#[cfg(feature = "embedded")]
mod story;
mod terminal;
mod top;
#[cfg(feature = "embedded")]
mod tree;

use std::{
    io::{ErrorKind, Write, stderr, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use kube::Client;
use pintle::{
    cache::BoxError,
    client::{Target, describe},
    clock::Clock,
    events::EventBroadcaster,
    informer::InformerFactory,
    inspect::{self, Inspector},
    limits::RateLimit,
    metrics::Metrics,
    probes::{Probes, Serving},
    queue::WorkQueue,
    signals,
    webhook::Certificates,
};
use sample_controller::{
    controller::{Controller, NAME},
    crd, install,
    manifests::{self, Placement},
    webhook,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{Cli, Command, Inspect},
    top::LastUrl,
};

/// How long shutdown waits for the last events to be written.
const FLUSH: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.start_logging();
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed stderr must not turn the exit code into a panic's.
            let _ = writeln!(stderr(), "error: {}", describe(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn run(mut cli: Cli) -> anyhow::Result<()> {
    if let Some(command) = cli.command.take() {
        return match command {
            Command::Top { url } => top::run(url).await,
            Command::Crd => print(&serde_saphyr::to_string(&crd::definition())?),
            Command::Manifests { namespace, image } => {
                print(&manifests::yaml(&Placement { namespace, image })?)
            }
        };
    }
    let shutdown = signals::shutdown_on_signal().context("failed to install the signal handler")?;
    let metrics = Metrics::new();
    let limit = cli.limit(&metrics)?;
    let program = Program {
        cli,
        metrics,
        limit,
        shutdown,
    };
    let cli = &program.cli;
    match Target::named(cli.kubeconfig.as_deref(), cli.master.as_ref()).await? {
        Some(target) => program.run_on(&target).await,
        #[cfg(feature = "embedded")]
        None => program.run_embedded().await,
        #[cfg(not(feature = "embedded"))]
        None => anyhow::bail!(
            "no cluster configured: set --kubeconfig, --master or KUBECONFIG (this build has no \
             embedded cluster)"
        ),
    }
}

/// Prints manifests.
fn print(yaml: &str) -> anyhow::Result<()> {
    match writeln!(stdout(), "{yaml}").and_then(|()| stdout().flush()) {
        // `head` and the like close the pipe early; that is not an error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("failed to write to stdout"),
    }
}

/// The settings of one run, independent of the cluster.
struct Program {
    cli: Cli,
    metrics: Metrics,
    limit: Option<RateLimit>,
    shutdown: CancellationToken,
}

impl Program {
    /// Runs on a cluster named by flags or environment.
    async fn run_on(&self, target: &Target) -> anyhow::Result<()> {
        say(&format!("Using {target}"));
        let agent = concat!("sample-controller/", env!("CARGO_PKG_VERSION"));
        let client = match &self.limit {
            Some(limit) => target.limited_client(agent, limit)?,
            None => target.client(agent)?,
        };
        if self.cli.install_crd {
            let installed = install::crd(&client).await;
            installed.context("installing the Foo CRD failed")?;
        }
        let informers = self.informers(client.clone());
        let inspecting = self.serve_inspector(Inspect::Off).await?;
        let inspector = inspecting.as_ref().map(|inspecting| &inspecting.inspector);
        self.control(client, &informers, inspector, None::<fn(&str)>)
            .await
    }

    fn informers(&self, client: Client) -> InformerFactory {
        InformerFactory::new(client)
            .resync(self.cli.resync())
            .metrics(self.metrics.clone())
    }

    /// Runs the controller until shutdown, then flushes its last events.
    async fn control(
        &self,
        client: Client,
        informers: &InformerFactory,
        inspector: Option<&Inspector>,
        observer: Option<impl Fn(&str) + Send + Sync + 'static>,
    ) -> anyhow::Result<()> {
        let events = EventBroadcaster::builder()
            .metrics(self.metrics.clone())
            .build();
        let _log = events.start_logging();
        let _sink = events.start_recording(client.clone());
        let queue = WorkQueue::builder("Foos").metrics(&self.metrics).build();
        let recorder = events.recorder(NAME);
        let mut controller = Controller::new(client, informers, recorder, queue, Clock::system())?;
        if let Some(observer) = observer {
            controller = controller.observe(observer);
        }
        if let Some(inspector) = inspector {
            controller = controller.inspect(inspector);
        }
        let serving = self.serve_probes(informers).await?;
        let webhooks = self.serve_webhooks()?;
        informers.start(&self.shutdown);
        let ran = controller
            .run(self.cli.workers.into(), &self.shutdown)
            .await;
        // Cancel even if the controller failed, so that readiness fails from here on.
        self.shutdown.cancel();
        if let Some(webhooks) = webhooks {
            let served = webhooks.await.context("the webhook server panicked")?;
            served.map_err(|error| anyhow::anyhow!("serving webhooks failed: {error}"))?;
        }
        informers.shutdown().await;
        let unwritten = events.shutdown(FLUSH).await.left;
        if unwritten > 0 {
            tracing::warn!(
                unwritten,
                "flush deadline passed; dropping unwritten events"
            );
        }
        // Last, so that probes see a live process that is shutting down until the very end.
        if let Some(serving) = serving {
            serving.shutdown().await;
        }
        ran
    }

    /// Serves the validating webhook if it is enabled. An error stops the program.
    fn serve_webhooks(&self) -> anyhow::Result<Option<JoinHandle<Result<(), BoxError>>>> {
        let (Some(address), Some(directory)) =
            (self.cli.webhook_bind, &self.cli.webhook_certificates)
        else {
            return Ok(None);
        };
        let certificates =
            Certificates::files(directory.join("tls.crt"), directory.join("tls.key"))?;
        let server = webhook::server().metrics(&self.metrics);
        let shutdown = self.shutdown.clone();
        Ok(Some(tokio::spawn(async move {
            let served = server.serve(address, &certificates, &shutdown).await;
            shutdown.cancel();
            served
        })))
    }

    /// Serves the inspector and prints its URL, unless it is off.
    async fn serve_inspector(&self, default: Inspect) -> anyhow::Result<Option<Inspecting>> {
        let Inspect::On(address) = self.cli.inspect.unwrap_or(default) else {
            return Ok(None);
        };
        let inspector = Inspector::new(NAME);
        let serving = inspector.serve(address).await;
        let serving =
            serving.with_context(|| format!("serving the inspector on {address} failed"))?;
        let url = serving.url();
        say(&format!("Inspector on {url}\n"));
        Ok(Some(Inspecting {
            inspector,
            _url: LastUrl::write(&url),
            _serving: serving,
        }))
    }

    async fn serve_probes(&self, informers: &InformerFactory) -> anyhow::Result<Option<Serving>> {
        let Some(address) = self.cli.bind else {
            return Ok(None);
        };
        let probes = Probes::new(&self.shutdown)
            .metrics(&self.metrics)
            .caches(informers);
        let serving = probes.serve(address).await;
        let serving = serving.with_context(|| format!("listening on {address} failed"))?;
        say(&format!(
            "Probes and metrics on http://{}\n",
            serving.address()
        ));
        Ok(Some(serving))
    }
}

/// An inspector that is served until it is dropped.
struct Inspecting {
    inspector: Inspector,
    _url: LastUrl,
    _serving: inspect::Serving,
}

/// Prints a line. A closed stdout must not stop the controller.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}
