//! `cargo xtask real-cluster`: a real kube-apiserver, kube-controller-manager and etcd on loopback.
//!
//! - [`binaries`] builds them from source, once per version and machine.
//! - [`elector`] does the same for the Go program that the leader election tests use.
//! - [`corpus`] fetches the corpus of real CRDs.
//! - [`run_dir`] is the directory of a control plane: state, credentials, data, logs.
//! - [`control_plane`] starts and stops the processes of one directory.

mod binaries;
mod control_plane;
pub(crate) mod corpus;
mod credentials;
mod elector;
mod process;
mod run_dir;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::interrupt::Interrupt;
pub(crate) use control_plane::{ControlPlane, Options, down, down_abandoned};
pub(crate) use run_dir::RunDir;

/// The variable that names the control plane's kubeconfig to tests. They ignore `KUBECONFIG`, which
/// may point to a cluster that matters to the user.
pub(crate) const KUBECONFIG_VARIABLE: &str = "PINTLE_REAL_CLUSTER";

/// The variable that names this program to tests, for operations on the control plane.
pub(crate) const XTASK_VARIABLE: &str = "PINTLE_XTASK";

/// Like [`KUBECONFIG_VARIABLE`], for an API server without a controller manager, where only
/// requests change objects.
pub(crate) const BARE_VARIABLE: &str = "PINTLE_REAL_API_SERVER";

/// The variable that names the kubectl of the same version to tests.
pub(crate) const KUBECTL_VARIABLE: &str = "PINTLE_REAL_KUBECTL";

/// The variable that names the replica elected by client-go to tests.
pub(crate) const ELECTOR_VARIABLE: &str = "PINTLE_REAL_ELECTOR";

/// Like [`BARE_VARIABLE`], for the API server on which the corpus of CRDs is installed.
pub(crate) const CORPUS_SERVER_VARIABLE: &str = "PINTLE_REAL_CORPUS_SERVER";

/// The variable that names the file with the corpus of CRDs to tests.
pub(crate) const CORPUS_VARIABLE: &str = "PINTLE_CRD_CORPUS";

/// The variable that makes tests send every object of the corpus instead of a selection.
pub(crate) const FULL_CORPUS_VARIABLE: &str = "PINTLE_CRD_CORPUS_FULL";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start the control plane and wait until it is ready; builds it first if necessary
    Up {
        #[command(flatten)]
        place: Place,
        /// Run without kube-controller-manager, so that no built-in controller interferes
        #[arg(long)]
        no_controller_manager: bool,
        /// Port of the API server [default: any free port]
        #[arg(long)]
        port: Option<u16>,
    },
    /// Stop the control plane; logs are kept
    Down(Place),
    /// Restart kube-apiserver on the same port with the same data
    Restart(Place),
    /// Compact etcd to its current revision, so that older watches get 410
    Compact(Place),
    /// Print shell exports: eval "$(cargo xtask real-cluster env)"
    Env(Place),
    /// Show what is running and where its files are
    Status(Place),
    /// Fetch the corpus of CRDs if necessary, and print a shell export of its path
    Corpus,
}

/// Selects one of several control planes on this machine.
#[derive(Args)]
pub(crate) struct Place {
    /// Directory for state, credentials and logs [default: in the user's cache]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Place {
    fn open(&self) -> Result<RunDir> {
        RunDir::open(&self.path()?)
    }

    fn path(&self) -> Result<PathBuf> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(cache_dir()?.join("run").join("default")),
        }
    }
}

/// Returns `$XDG_CACHE_HOME/pintle/real-cluster`, or its default below the home directory.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => dir,
        _ => std::env::home_dir()
            .context("no cache directory: neither XDG_CACHE_HOME nor a home directory is set")?
            .join(".cache"),
    };
    Ok(base.join("pintle").join("real-cluster"))
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up {
            place,
            no_controller_manager,
            port,
        } => {
            let options = Options {
                controller_manager: !no_controller_manager,
                api_server_port: *port,
            };
            let cluster = ControlPlane::up(place.open()?, options, &Interrupt::install()?)?;
            println!("{}", cluster.describe());
            let place = place
                .dir
                .as_ref()
                .map(|dir| format!(" --dir {}", quoted(dir)));
            println!(
                "\nTo use it in this shell:\n  eval \"$(cargo xtask real-cluster env{})\"",
                place.unwrap_or_default()
            );
        }
        Command::Down(place) => {
            let dir = place.open()?;
            let stopped = down(&dir)?;
            if stopped.is_empty() {
                println!(
                    "not running: no process of {} is alive",
                    dir.path().display()
                );
            } else {
                println!(
                    "stopped {}; logs: {}",
                    stopped.join(", "),
                    dir.logs().display()
                );
            }
        }
        Command::Restart(place) => {
            let mut cluster = running_beside(place)?;
            cluster.restart_api_server(&Interrupt::install()?)?;
            println!("{}", cluster.describe());
        }
        Command::Compact(place) => {
            let revision = running_beside(place)?.compact()?;
            println!("compacted etcd to revision {revision}");
        }
        Command::Env(place) => print!("{}", running(place)?.exports()),
        Command::Status(place) => println!("{}", running(place)?.describe()),
        Command::Corpus => {
            let path = corpus::ensure(&cache_dir()?, &Interrupt::install()?)?;
            println!("export {CORPUS_VARIABLE}={}", quoted(&path));
        }
    }
    Ok(())
}

fn running(place: &Place) -> Result<ControlPlane> {
    expect_running(place.open()?)
}

/// Like [`running`], but also while another task holds the directory.
fn running_beside(place: &Place) -> Result<ControlPlane> {
    expect_running(RunDir::beside(&place.path()?)?)
}

fn expect_running(dir: RunDir) -> Result<ControlPlane> {
    let Some(cluster) = ControlPlane::running(dir)? else {
        bail!("not running: start it with `cargo xtask real-cluster up`");
    };
    Ok(cluster)
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
