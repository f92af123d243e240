//! Pintle's side of the comparison with client-go, controller-runtime and kube-rs.
//!
//! `pintle-bench BENCHMARK [flags]` runs one benchmark in a fresh process and prints one line of
//! JSON; the programs in `peers/` take the same flags and print the same line. `cargo xtask bench`
//! runs them all and writes the report. This program also contains the [`replay`] server and the
//! Pods it serves.

// This program prints results and measures real time.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod connect;
mod follow;
mod live;
mod measure;
mod pipeline;
mod pods;
mod queue;
mod reads;
mod reconcile;
mod replay;
mod small;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::measure::Outcome;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// List and watch all Pods into an indexed cache
    Sync(Flags),
    /// End the watch of a full cache, and relist
    Relist(Flags),
    /// Deliver updates from a watch to handlers
    Watch(Flags),
    /// Deliver parsed updates through the cache to handlers
    Pipeline(Flags),
    /// Read a full cache by index and by selector
    Reads(Flags),
    /// Send keys through the queue
    Queue(Flags),
    /// Run no-op reconciles
    Reconcile(Flags),
    /// Serve recorded Pods, until standard input is closed
    Replay(replay::Args),
    #[command(flatten)]
    Live(live::Live),
}

/// The flags of every benchmark, the same for all peers.
#[derive(Args, Clone, Serialize)]
struct Flags {
    /// URL of a plain HTTP server without authentication
    #[arg(long)]
    #[serde(skip)]
    url: Option<String>,
    /// Kubeconfig of a real server
    #[arg(long)]
    #[serde(skip)]
    kubeconfig: Option<PathBuf>,
    /// Number of objects
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// Number of handlers
    #[arg(long, default_value_t = 1)]
    handlers: usize,
    /// Number of workers
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Encoding of objects
    #[arg(long, value_enum, default_value_t = Encoding::Json)]
    encoding: Encoding,
    /// Whether the cache keeps `managedFields`
    #[arg(long, value_enum, default_value_t = ManagedFields::Keep)]
    managed_fields: ManagedFields,
    /// Whether to use a streaming list
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(serialize_with = "Switch::as_bool")]
    streaming: Switch,
    /// Whether to decode objects on arrival and keep them decoded, as the peers do
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(serialize_with = "Switch::as_bool")]
    eager: Switch,
    /// Seconds to wait before measuring memory
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    #[serde(skip)]
    settle: f64,
    /// Number of operations; 0 means one per object
    #[arg(long, default_value_t = 0)]
    #[serde(skip)]
    count: u64,
    /// Whether keys are distinct
    #[arg(long, value_enum, default_value_t = Keys::Distinct)]
    keys: Keys,
    /// Whether a reconcile reads its object, decoded
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(serialize_with = "Switch::as_bool")]
    reads: Switch,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Json,
    Protobuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ManagedFields {
    Keep,
    Strip,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Switch {
    fn is_on(self) -> bool {
        self == Self::On
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
    fn as_bool<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.is_on())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    Distinct,
    Duplicate,
}

impl Flags {
    fn count(&self) -> u64 {
        match self.count {
            0 => self.objects as u64,
            count => count,
        }
    }

    fn settle(&self) -> Duration {
        Duration::try_from_secs_f64(self.settle).unwrap_or_default()
    }
}

/// A benchmark that this library does not support. Not a failure; the report states the reason.
#[derive(Debug)]
struct CannotDo(&'static str);

impl std::fmt::Display for CannotDo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for CannotDo {}

/// The exit code for "not supported", as opposed to "failed".
const CANNOT_DO: u8 = 3;

async fn run(work: Work) -> Result<Option<String>> {
    let report = |flags: &Flags, outcome: Outcome| outcome.to_json(flags).map(Some);
    match work {
        Work::Sync(flags) => report(&flags, follow::sync(&flags).await?),
        Work::Relist(flags) => report(&flags, follow::relist(&flags).await?),
        Work::Watch(flags) => report(&flags, follow::watch(&flags).await?),
        Work::Pipeline(flags) => report(&flags, pipeline::pipeline(&flags).await?),
        Work::Reads(flags) => report(&flags, reads::reads(&flags)?),
        Work::Queue(flags) => report(&flags, queue::queue(&flags).await?),
        Work::Reconcile(flags) => report(&flags, reconcile::reconcile(&flags).await?),
        Work::Replay(args) => replay::run(&args).await.map(|()| None),
        Work::Live(live) => live::run(live).await,
    }
}

fn start() -> Result<Option<String>> {
    let work = Cli::parse().work;
    // One thread is enough for a server that only copies, and leaves the other core free.
    let mut runtime = match work {
        Work::Replay(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.enable_all().build()?.block_on(run(work))
}

fn main() -> ExitCode {
    match start() {
        Ok(line) => {
            if let Some(line) = line {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            if error.is::<CannotDo>() {
                ExitCode::from(CANNOT_DO)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
