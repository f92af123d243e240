//! `bench-kube-rs` runs the benchmarks with kube and kube-runtime.
//!
//! `bench-kube-rs BENCHMARK [flags]` runs one benchmark in a fresh process and prints one line of
//! JSON. A benchmark that kube-rs has no public API for exits with code 3 and prints the reason.

mod client;
mod follow;
mod measure;
mod pipeline;
mod queue;
mod reads;
mod reconcile;
mod small;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::measure::Phase;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// List and watch all Pods into a store
    Sync(Flags),
    /// End the watch of a full store, and relist
    Relist(Flags),
    /// Deliver updates from a watch to handlers
    Watch(Flags),
    /// Deliver decoded updates through the store to handlers
    Pipeline(Flags),
    /// Read a full store
    Reads(Flags),
    /// Send keys through the scheduler
    Queue(Flags),
    /// Run no-op reconciles
    Reconcile(Flags),
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
    /// Concurrent reconciles
    #[arg(long, default_value_t = 1)]
    workers: u16,
    /// Encoding of objects
    #[arg(long, value_enum, default_value_t = Encoding::Json)]
    encoding: Encoding,
    /// Whether the store keeps `managedFields`
    #[arg(long, value_enum, default_value_t = ManagedFields::Keep)]
    managed_fields: ManagedFields,
    /// Whether to use a streaming list
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(serialize_with = "Switch::as_bool")]
    streaming: Switch,
    /// Seconds to wait before measuring memory
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    #[serde(skip)]
    settle: f64,
    /// Number of operations; 0 means one per object
    #[arg(long, default_value_t = 0)]
    count: usize,
    /// Whether keys are distinct
    #[arg(long, value_enum, default_value_t = Keys::Distinct)]
    #[serde(skip)]
    keys: Keys,
    /// Whether a reconcile reads its object; kube-rs always does
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(skip)]
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
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
    fn as_bool<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Self::On)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keys {
    Distinct,
    Duplicate,
}

impl Flags {
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs_f64(self.settle)).await;
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

async fn run(work: Work) -> anyhow::Result<String> {
    let (name, mut flags) = match work {
        Work::Sync(flags) => ("sync", flags),
        Work::Relist(flags) => ("relist", flags),
        Work::Watch(flags) => ("watch", flags),
        Work::Pipeline(flags) => ("pipeline", flags),
        Work::Reads(flags) => ("reads", flags),
        Work::Queue(flags) => ("queue", flags),
        Work::Reconcile(flags) => ("reconcile", flags),
    };
    if flags.count == 0 {
        flags.count = flags.objects;
    }
    anyhow::ensure!(
        flags.objects > 0 && flags.handlers > 0 && flags.workers > 0,
        "--objects, --handlers and --workers must be at least 1"
    );
    let phase: Phase = match name {
        "queue" => queue::run(&flags).await?,
        "sync" => follow::sync(&flags).await?,
        "relist" => follow::relist(&flags).await?,
        "watch" => follow::watch(&flags).await?,
        "pipeline" => pipeline::run(&flags).await?,
        "reads" => reads::run(&flags).await?,
        _ => reconcile::run(&mut flags).await?,
    };
    flags.settle().await;
    phase.to_json(name, &flags)
}

/// The default runtime: one thread per CPU.
#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().work).await {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(if error.is::<CannotDo>() { 3 } else { 1 })
        }
    }
}
