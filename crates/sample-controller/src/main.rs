//! `sample-controller`: Foo to Deployment, against any cluster or an embedded one.

use std::{
    io::{Write, stdout},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use kube::{Api, Client};
use pintle::{
    client::Target, clock::Clock, events::EventBroadcaster, informer::InformerFactory,
    queue::WorkQueue,
};
use sample_controller::{
    controller::{Controller, NAME},
    crd,
    embedded::Embedded,
    foo::Foo,
    install,
    narrate::Narrator,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// How long the last events may take to be written at the end.
const FLUSH: Duration = Duration::from_secs(5);

/// Keeps one Deployment per Foo.
///
/// Without a cluster named by --kubeconfig, --master, KUBECONFIG or a Pod's own environment, it
/// brings up an API server of its own, installs the Foo CRD, applies an example and shows the loop
/// as it turns. On a cluster it is pointed at, it installs and applies nothing unless asked.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    /// Path of a kubeconfig; without it KUBECONFIG and a Pod's own environment are tried
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the one in the kubeconfig
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// How many Foos are synced at once
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: u16,
    /// Sync every Foo again after so many seconds; 0 turns it off
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    resync: u64,
    /// Install the Foo CRD on the named cluster first
    #[arg(long)]
    install_crd: bool,
    /// Log more: once for what each sync does, twice for every request
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Log as JSON, one object a line
    #[arg(long)]
    log_json: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the Foo CustomResourceDefinition as YAML
    Crd {
        /// The classic form, in which the status is a plain field
        #[arg(long)]
        no_status_subresource: bool,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    start_logging(&cli);
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    if let Some(Command::Crd {
        no_status_subresource,
    }) = cli.command
    {
        say(&serde_saphyr::to_string(&crd::definition(
            no_status_subresource,
        ))?);
        return Ok(());
    }
    let shutdown = CancellationToken::new();
    tokio::spawn(stop_on_signal(shutdown.clone()));
    let kubeconfig = cli.kubeconfig.as_deref();
    match Target::named(kubeconfig, cli.master.as_ref()).await? {
        Some(target) => {
            say(&format!("Working on {target}"));
            let client = target.client(concat!("sample-controller/", env!("CARGO_PKG_VERSION")))?;
            if cli.install_crd {
                install::crd(&client).await?;
            }
            let informers = InformerFactory::new(client.clone()).resync(resync(&cli));
            control(&cli, client, &informers, &shutdown).await
        }
        None => run_embedded(&cli, &shutdown).await,
    }
}

/// The whole story on a cluster of our own.
async fn run_embedded(cli: &Cli, shutdown: &CancellationToken) -> anyhow::Result<()> {
    let embedded = Embedded::start().await?;
    let client = embedded.client();
    install::crd(&client)
        .await
        .context("installing the Foo CRD")?;
    say(&format!(
        "No cluster was named (--kubeconfig, --master, KUBECONFIG): an embedded one listens on {}\n",
        embedded.url()
    ));
    let informers = InformerFactory::new(client.clone()).resync(resync(cli));
    let narrator = Narrator::new(&informers, |line| say(&line));
    install::example(&client)
        .await
        .context("applying the example")?;
    let hints = tokio::spawn(hints(client.clone(), embedded.kubeconfig()));
    let ran = control(cli, client, &informers, shutdown).await;
    hints.abort();
    drop(narrator);
    embedded.stop().await;
    ran
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
    let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
    say(&format!(
        "\nexample-foo is ready. Go on in another terminal:\n\n  \
         {kubectl} patch foo example-foo --type merge -p '{{\"spec\":{{\"replicas\":3}}}}'\n  \
         {kubectl} get foos,deployments,pods\n  \
         {kubectl} get events\n  \
         {kubectl} delete foo example-foo\n\n\
         Ctrl-C stops.\n"
    ));
}

/// Runs the controller until the shutdown, then lets its last events be written.
async fn control(
    cli: &Cli,
    client: Client,
    informers: &InformerFactory,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    let events = EventBroadcaster::new();
    let _log = events.start_logging();
    let _sink = events.start_recording(client.clone());
    let queue = WorkQueue::new("Foos");
    let controller = Controller::new(
        client,
        informers,
        events.recorder(NAME),
        queue,
        Clock::system(),
    )?;
    informers.start(shutdown);
    let ran = controller.run(cli.workers.into(), shutdown).await;
    informers.shutdown().await;
    let unwritten = events.shutdown(FLUSH).await.left;
    if unwritten > 0 {
        tracing::warn!(unwritten, "the last events could not be written in time");
    }
    ran
}

fn resync(cli: &Cli) -> Duration {
    Duration::from_secs(cli.resync)
}

/// The first Ctrl-C or SIGTERM stops in order, the second at once.
async fn stop_on_signal(shutdown: CancellationToken) {
    signal().await;
    shutdown.cancel();
    signal().await;
    std::process::exit(1);
}

async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                biased; // Both mean the same.
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

fn start_logging(cli: &Cli) {
    let level = match cli.verbose {
        0 => "warn",
        1 => "warn,sample_controller=info,pintle=info",
        _ => "info,sample_controller=debug,pintle=debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let registry = tracing_subscriber::registry().with(filter);
    if cli.log_json {
        registry
            .with(fmt::layer().json().with_writer(std::io::stderr))
            .init();
    } else {
        registry
            .with(fmt::layer().with_writer(std::io::stderr))
            .init();
    }
}

/// A terminal that is gone is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}
