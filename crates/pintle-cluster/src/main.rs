//! Runs a Kubernetes cluster in one process until Ctrl-C, or checks CRDs and objects without one.

mod validate;

use std::{
    io::{IsTerminal, Write, stderr, stdout},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::Parser;
use pintle::signals::Signals;
use pintle_apiserver::{ApiServer, Authorization, Bound, MergedContext, PodDeletion, ServeOptions};
use pintle_cluster::{Cluster, Script};
use tracing_subscriber::EnvFilter;

/// Runs a Kubernetes cluster in one process: an API server and the controllers that turn
/// Deployments into Pods, write the endpoints of Services and bind claims to volumes. No containers
/// run; Pods live on simulated nodes.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Number of simulated nodes
    #[arg(long, default_value_t = 3)]
    nodes: u16,
    /// YAML or JSON file with additional nodes (labels, taints, resources), what Pods do and log
    /// (crash, exit, never become ready), and when claims are bound
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Seconds a Pod takes to become ready
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pod_ready_after: Duration,
    /// Seconds a deleted Pod takes to stop, at most its grace period
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pod_stop_after: Duration,
    /// Address to listen on; port 0 picks a free port. If other machines can reach it, anyone with
    /// the token is an administrator
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// How requests are authorized
    #[arg(long, value_name = "RBAC|AlwaysAllow", default_value = "RBAC")]
    authorization_mode: Authorization,
    /// Additional DNS name or IP address for the server certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Maximum number of open connections
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    max_connections: usize,
    /// Kubeconfig to merge a context into; the context becomes current and is removed on exit. By
    /// default a temporary kubeconfig is written
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Name of that context
    #[arg(
        long,
        value_name = "NAME",
        default_value = "pintle",
        requires = "kubeconfig"
    )]
    context: String,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check CRDs and their objects without starting a cluster
    ///
    /// Like a server, this prunes objects, applies defaults and validates them, in this order;
    /// unknown fields are problems. Every problem is printed with its file and field, in the words
    /// of kube-apiserver. The exit code is 1 if there is any. Objects of other kinds are skipped.
    Validate {
        /// YAML or JSON files, and directories of them
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(Command::Validate { paths }) = options.command {
        let report = validate::run(&paths)?;
        stdout()
            .write_all(report.text.as_bytes())
            .context("failed to write to stdout")?;
        std::process::exit(i32::from(report.problems > 0));
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let colors_allowed = std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colors_allowed && stderr().is_terminal())
        .with_writer(stderr)
        .init();

    let script = options.script.as_deref().map(read_script).transpose()?;

    // Install the handler first, so that no signal can skip the cleanup below.
    let mut signals = Signals::listen()?;
    raise_file_limit();
    let mut builder = ApiServer::builder()
        .pod_deletion(PodDeletion::Leave)
        .authorization(options.authorization_mode);
    if !options.listen.ip().is_loopback() {
        // Loopback is the default, so another address is deliberate.
        builder = builder.listen_beyond_loopback();
    }
    let server = builder.build();
    let serving = ServeOptions::default().max_connections(options.max_connections);
    let serving = options
        .tls_san
        .into_iter()
        .fold(serving, ServeOptions::name);
    let bound = server
        .serve_with(options.listen, serving)
        .await
        .with_context(|| format!("failed to listen on {}", options.listen))?;
    // Deleted on exit, together with the token in it.
    let directory = tempfile::Builder::new().prefix("pintle-").tempdir()?;
    let (kubeconfig, merged) = if let Some(path) = options.kubeconfig {
        let merged = bound.merge_kubeconfig(&path, &options.context).await?;
        (path, Some(merged))
    } else {
        let path = directory.path().join("kubeconfig");
        bound
            .write_kubeconfig(&path)
            .with_context(|| format!("failed to write {}", path.display()))?;
        (path, None)
    };
    let cluster = Cluster::builder()
        .server(server)
        .root_ca(bound.authority_pem())
        .nodes(options.nodes)
        .pod_ready_after(options.pod_ready_after)
        .pod_stop_after(options.pod_stop_after)
        .script(script.unwrap_or_default())
        .start()
        .await;

    let greeted = greet(&bound, &kubeconfig, merged.as_ref(), &options.context);
    if greeted.is_ok() {
        signals.next().await;
    }
    cluster.stop().await;
    bound.shutdown().await;
    // Remove the context even if the greeting failed, for example because stdout is a closed pipe.
    if let Some(merged) = merged {
        merged.remove().await?;
    }
    greeted.context("failed to write to stdout")
}

fn read_script(path: &Path) -> anyhow::Result<Script> {
    let failed = || format!("failed to read the script {}", path.display());
    let text = std::fs::read_to_string(path).with_context(failed)?;
    Script::parse(&text).with_context(failed)
}

/// Prints where the cluster listens and how to use it.
fn greet(
    bound: &Bound,
    kubeconfig: &Path,
    merged: Option<&MergedContext>,
    context: &str,
) -> std::io::Result<()> {
    if let Some(merged) = merged {
        let previous = merged.previous().unwrap_or("none");
        writeln!(
            stdout(),
            "Switched {path} to context {context:?} (was: {previous}) until this program exits.",
            path = kubeconfig.display(),
        )?;
    }
    let address = bound.address();
    let listening = if address.ip().is_unspecified() {
        format!("{address} (local: {})", bound.url())
    } else {
        bound.url()
    };
    writeln!(
        stdout(),
        "Cluster listening on {listening}, kubeconfig {path}. Try:\n\n  \
         export KUBECONFIG={path}\n  \
         kubectl create deployment web --image=nginx --replicas=3\n  \
         kubectl get pods --watch\n\n\
         Press Ctrl-C to stop it and discard its data.",
        path = kubeconfig.display(),
    )
}

/// Raises the soft limit of open files to the hard limit, as the Go runtime does. Each connection
/// is a file, and the usual soft limit of 1,024 exists only for programs that use `select`.
#[cfg(unix)]
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "failed to raise the open-file limit; continuing");
    }
}

#[cfg(not(unix))]
fn raise_file_limit() {}
