//! `cargo xtask real-cluster`: a real kube-apiserver, kube-controller-manager and etcd on loopback.
//!
//! - [`binaries`] builds them from source, once per version and machine.
//! - [`run_dir`] is what a running control plane leaves on disk: state, credentials, data, logs.
//! - [`control_plane`] starts and stops the processes of one such directory.

mod binaries;
mod control_plane;
mod credentials;
mod process;
mod run_dir;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::interrupt::Interrupt;
pub(crate) use control_plane::{ControlPlane, Options, down, down_abandoned};
pub(crate) use run_dir::RunDir;

/// The variable through which tests find the control plane: the path of its kubeconfig. They do not
/// look at `KUBECONFIG`, which may name a cluster somebody cares about.
pub(crate) const KUBECONFIG_VARIABLE: &str = "PINTLE_REAL_CLUSTER";

/// The variable through which tests find this program, for what only it can do to the control plane.
pub(crate) const XTASK_VARIABLE: &str = "PINTLE_XTASK";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Build what is missing, start the control plane, and wait until it is ready
    Up {
        #[command(flatten)]
        place: Place,
        /// Leave kube-controller-manager out: nothing works on what is stored but you
        #[arg(long)]
        no_controller_manager: bool,
        /// The port of the API server, instead of any free one
        #[arg(long)]
        port: Option<u16>,
    },
    /// Stop what `up` started; logs stay
    Down(Place),
    /// Stop kube-apiserver and start it again, on the same port and with the same data
    Restart(Place),
    /// Make etcd forget all versions before the present one: who watches from an older one gets 410
    Compact(Place),
    /// Print shell exports: eval "$(cargo xtask real-cluster env)"
    Env(Place),
    /// Say what is running, and where its files are
    Status(Place),
}

/// Which control plane, if there are several on this machine.
#[derive(Args)]
pub(crate) struct Place {
    /// The directory of its state, credentials and logs [default: one in the user's cache]
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

/// `$XDG_CACHE_HOME/pintle/real-cluster`, or its usual place below the home directory.
pub(crate) fn cache_dir() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => dir,
        _ => std::env::home_dir()
            .context("neither XDG_CACHE_HOME nor a home directory is known: no place for a cache")?
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
                println!("not running: nothing of {} is alive", dir.path().display());
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
            println!("etcd knows nothing before revision {revision} any more");
        }
        Command::Env(place) => print!("{}", running(place)?.exports()),
        Command::Status(place) => println!("{}", running(place)?.describe()),
    }
    Ok(())
}

fn running(place: &Place) -> Result<ControlPlane> {
    expect_running(place.open()?)
}

/// As [`running`], also while another task attends it.
fn running_beside(place: &Place) -> Result<ControlPlane> {
    expect_running(RunDir::beside(&place.path()?)?)
}

fn expect_running(dir: RunDir) -> Result<ControlPlane> {
    let Some(cluster) = ControlPlane::running(dir)? else {
        bail!("not running: start it with cargo xtask real-cluster up");
    };
    Ok(cluster)
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
