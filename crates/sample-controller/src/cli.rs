//! Command line flags and logging.

use std::{io::IsTerminal, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Parser, Subcommand};
use pintle::{
    limits::{InvalidLimit, RateLimit},
    metrics::Metrics,
};
use sample_controller::manifests;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

const ALONE: &str = "
  sample-controller                                 start an embedded cluster and print each step";
const EXAMPLES: &str = "
  sample-controller --kubeconfig ~/.kube/config -v  use a cluster with the Foo CRD
  sample-controller --bind 127.0.0.1:8080           serve /metrics, /healthz and /readyz
  sample-controller top                             show queues and keys of a running controller
  sample-controller crd | kubectl apply -f -        install the Foo CRD
  sample-controller manifests | kubectl apply -f -  run inside the cluster";

fn examples() -> String {
    let alone = if cfg!(feature = "embedded") {
        ALONE
    } else {
        ""
    };
    format!("Examples:{alone}{EXAMPLES}")
}

/// Maintains one Deployment per Foo.
///
#[cfg_attr(
    feature = "embedded",
    doc = "Without a cluster configured by --kubeconfig, --master, KUBECONFIG or in-cluster environment, \
           it starts an embedded one, installs the Foo CRD, applies an example and prints each step of \
           the reconcile loop."
)]
/// On an existing cluster it installs nothing unless asked to. The first Ctrl-C or SIGTERM shuts
/// down gracefully, the second one exits immediately.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = examples())]
pub(crate) struct Cli {
    /// Path to a kubeconfig; defaults to KUBECONFIG, then to the in-cluster environment
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// URL of the API server; overrides the one in the kubeconfig
    #[arg(long, value_name = "URL", help_heading = "Cluster")]
    pub(crate) master: Option<http::Uri>,
    /// Install the Foo CRD before starting
    #[arg(long, help_heading = "Cluster")]
    pub(crate) install_crd: bool,
    /// Maximum requests per second; 0 or less means unlimited. Leases, events and watches do not
    /// wait behind other requests
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Cluster"
    )]
    kube_api_qps: f64,
    /// Maximum burst of requests; ignored without --kube-api-qps
    #[arg(long, default_value_t = 30, value_name = "N", help_heading = "Cluster")]
    kube_api_burst: u32,
    /// Number of Foos to sync concurrently
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// Seconds between periodic resyncs of every Foo; 0 disables them
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    resync: u64,
    /// Serve /metrics, /healthz and /readyz on this address over plain HTTP
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) bind: Option<SocketAddr>,
    /// Serve the inspector on this address, or `off`: a page that says why each Foo is ready or not
    #[cfg_attr(
        feature = "embedded",
        doc = "[default: 127.0.0.1:0 with the embedded cluster, else off]"
    )]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = inspect_address)]
    pub(crate) inspect: Option<Inspect>,
    /// Serve the webhook that denies Foos without a deployment name on this address, at /validate
    #[arg(long, value_name = "ADDRESS:PORT", requires = "webhook_certificates")]
    pub(crate) webhook_bind: Option<SocketAddr>,
    /// Directory with tls.crt and tls.key for the webhook
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) webhook_certificates: Option<PathBuf>,
    /// Log more: -v logs what each sync does, -vv also lists and watches
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Log as JSON, one object per line
    #[arg(long)]
    log_json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show queues and keys of a running controller, as its inspector sees them
    Top {
        /// URL that the controller printed; defaults to the one that was started last
        url: Option<String>,
    },
    /// Print the Foo CustomResourceDefinition as YAML
    Crd,
    /// Print the manifests to run this program inside a cluster as YAML
    Manifests {
        /// Namespace to run in; Foos of all namespaces are reconciled
        #[arg(long, default_value = manifests::NAMESPACE)]
        namespace: String,
        /// Image built from the Dockerfile of this repository
        #[arg(long, default_value = manifests::IMAGE)]
        image: String,
    },
}

/// Where to serve the inspector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inspect {
    On(SocketAddr),
    Off,
}

fn inspect_address(text: &str) -> Result<Inspect, String> {
    if text == "off" {
        return Ok(Inspect::Off);
    }
    let address = text.parse().map(Inspect::On);
    address.map_err(|_| "expected an address and port, such as 127.0.0.1:0, or `off`".to_owned())
}

impl Cli {
    /// Returns the request limit, or `None` if requests are unlimited.
    pub(crate) fn limit(&self, metrics: &Metrics) -> Result<Option<RateLimit>, InvalidLimit> {
        if self.kube_api_qps <= 0.0 {
            return Ok(None);
        }
        let limit = RateLimit::new(self.kube_api_qps, self.kube_api_burst)?;
        Ok(Some(limit.metrics(metrics)))
    }

    /// Returns whether only warnings are logged, so that the terminal can be drawn on.
    #[cfg(feature = "embedded")]
    pub(crate) fn is_quiet(&self) -> bool {
        self.verbose == 0 && std::env::var_os("RUST_LOG").is_none()
    }

    pub(crate) fn resync(&self) -> Duration {
        Duration::from_secs(self.resync)
    }

    pub(crate) fn start_logging(&self) {
        let level = match self.verbose {
            // The reflectors report each failed connection once; kube repeats it for every request.
            0 => "warn,kube_client=off",
            1 => "warn,kube_client=off,sample_controller=info,pintle=info",
            _ => "info,sample_controller=debug,pintle=debug",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        let registry = tracing_subscriber::registry().with(filter);
        if self.log_json {
            registry
                .with(fmt::layer().json().with_writer(std::io::stderr))
                .init();
        } else {
            // No escape codes in files and container logs, nor if NO_COLOR is set
            // (https://no-color.org).
            let allowed = std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
            let colors = allowed && std::io::stderr().is_terminal();
            registry
                .with(fmt::layer().with_ansi(colors).with_writer(std::io::stderr))
                .init();
        }
    }
}

#[cfg(test)]
mod tests;
