//! What one can say to the program.

use std::{io::IsTerminal, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Parser, Subcommand};
use pintle::{
    limits::{InvalidLimit, RateLimit},
    metrics::Metrics,
};
use sample_controller::manifests;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

const ALONE: &str = "
  sample-controller                                 a cluster of its own, and the loop as it turns";
const EXAMPLES: &str = "
  sample-controller --kubeconfig ~/.kube/config -v  work on a cluster that has the Foo CRD
  sample-controller --bind 127.0.0.1:8080           with /metrics, /healthz and /readyz
  sample-controller crd | kubectl apply -f -        install the Foo CRD
  sample-controller manifests | kubectl apply -f -  run it inside the cluster";

fn examples() -> String {
    let alone = if cfg!(feature = "embedded") {
        ALONE
    } else {
        ""
    };
    format!("Examples:{alone}{EXAMPLES}")
}

/// Keeps one Deployment per Foo.
///
#[cfg_attr(
    feature = "embedded",
    doc = "Without a cluster named by --kubeconfig, --master, KUBECONFIG or a Pod's own environment, it \
           brings up an API server of its own, installs the Foo CRD, applies an example and shows the \
           loop as it turns."
)]
/// On a cluster it is pointed at, it installs and applies nothing unless asked. Ctrl-C lets it finish
/// what it is doing; a second one ends it at once.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = examples())]
pub(crate) struct Cli {
    /// Path of a kubeconfig; without it KUBECONFIG and a Pod's own environment are tried
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the one in the kubeconfig
    #[arg(long, value_name = "URL", help_heading = "Cluster")]
    pub(crate) master: Option<http::Uri>,
    /// Install the Foo CRD on the named cluster first
    #[arg(long, help_heading = "Cluster")]
    pub(crate) install_crd: bool,
    /// Send at most so many requests a second; leases, events and watches do not wait behind the
    /// rest. 0 or less is no limit
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Cluster"
    )]
    kube_api_qps: f64,
    /// After a pause send so many requests at once; counts only with --kube-api-qps
    #[arg(long, default_value_t = 30, value_name = "N", help_heading = "Cluster")]
    kube_api_burst: u32,
    /// How many Foos are synced at once
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// Sync every Foo again after so many seconds; 0 turns it off
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    resync: u64,
    /// Serve /metrics, /healthz and /readyz there, over plain HTTP
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) bind: Option<SocketAddr>,
    /// Log more: once for what each sync does, twice also for each list and watch
    #[arg(short, action = ArgAction::Count)]
    verbose: u8,
    /// Log as JSON, one object a line
    #[arg(long)]
    log_json: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the Foo CustomResourceDefinition as YAML
    Crd {
        /// The classic form, in which the status is a plain field
        #[arg(long)]
        no_status_subresource: bool,
    },
    /// Print as YAML what it takes to run this program inside a cluster
    Manifests {
        /// The namespace it runs in; it works on the Foos of all
        #[arg(long, default_value = manifests::NAMESPACE)]
        namespace: String,
        /// The image that the Dockerfile of this repository makes
        #[arg(long, default_value = manifests::IMAGE)]
        image: String,
        /// For a cluster with the classic CRD, in which the status is a plain field
        #[arg(long)]
        no_status_subresource: bool,
    },
}

impl Cli {
    /// The limit on requests, if one was asked for.
    pub(crate) fn limit(&self, metrics: &Metrics) -> Result<Option<RateLimit>, InvalidLimit> {
        if self.kube_api_qps <= 0.0 {
            return Ok(None);
        }
        let limit = RateLimit::new(self.kube_api_qps, self.kube_api_burst)?;
        Ok(Some(limit.metrics(metrics)))
    }

    pub(crate) fn resync(&self) -> Duration {
        Duration::from_secs(self.resync)
    }

    pub(crate) fn start_logging(&self) {
        let level = match self.verbose {
            0 => "warn",
            1 => "warn,sample_controller=info,pintle=info",
            _ => "info,sample_controller=debug,pintle=debug",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        let registry = tracing_subscriber::registry().with(filter);
        if self.log_json {
            registry
                .with(fmt::layer().json().with_writer(std::io::stderr))
                .init();
        } else {
            // Colours are for people who want them; a file or a container's log is read by others.
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
            let colours = wanted && std::io::stderr().is_terminal();
            registry
                .with(fmt::layer().with_ansi(colours).with_writer(std::io::stderr))
                .init();
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn limit(flags: &[&str]) -> Result<Option<RateLimit>, InvalidLimit> {
        let cli = Cli::parse_from([&["sample-controller"], flags].concat());
        cli.limit(&Metrics::new())
    }

    /// Proves limits/burst-and-rate.
    #[tokio::test]
    async fn there_is_no_limit_unless_one_is_asked_for() {
        assert!(limit(&[]).expect("none").is_none());
        assert!(limit(&["--kube-api-qps", "-1"]).expect("none").is_none());
        assert!(limit(&["--kube-api-qps=5"]).expect("one").is_some());
        let nothing = limit(&["--kube-api-qps=5", "--kube-api-burst=0"]);
        assert_eq!(nothing.err(), Some(InvalidLimit::Burst));
    }

    #[test]
    fn the_help_names_everything_and_fits_the_screen() {
        Cli::command().debug_assert();
        let help = Cli::command().term_width(100).render_long_help();
        let help = help.to_string();
        for word in [
            "--kubeconfig",
            "--master",
            "--install-crd",
            "--kube-api-qps",
            "--kube-api-burst",
            "--bind",
            "--workers",
            "--resync",
            "--log-json",
            "-v",
            "crd",
            "manifests",
            "Examples:",
            // Not broken into two lines.
            "work on a cluster that has the Foo CRD\n",
        ] {
            assert!(help.contains(word), "{word} is missing in\n{help}");
        }
    }
}
