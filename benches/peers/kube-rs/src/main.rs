//! `bench-kube-rs` does the works of the comparison with kube and kube-runtime.
//!
//! `bench-kube-rs WORK [flags]` does one work in a fresh process and prints one line of JSON. What
//! kube-rs has no public way to do exits with code 3 and the reason.

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
    /// Lose the watch of a full store, and list again
    Relist(Flags),
    /// Take updates from a watch to handlers
    Watch(Flags),
    /// Take decoded updates through the store to handlers
    Pipeline(Flags),
    /// Read a full store
    Reads(Flags),
    /// Take keys through the scheduler
    Queue(Flags),
    /// Reconcile, and do nothing
    Reconcile(Flags),
}

/// What every work of every peer can be told.
#[derive(Args, Clone, Serialize)]
struct Flags {
    /// A server that speaks plain HTTP and asks nobody who they are
    #[arg(long)]
    #[serde(skip)]
    url: Option<String>,
    /// A real server
    #[arg(long)]
    #[serde(skip)]
    kubeconfig: Option<PathBuf>,
    /// How many objects there are
    #[arg(long, default_value_t = 1000)]
    objects: usize,
    /// How many handlers are told of each change
    #[arg(long, default_value_t = 1)]
    handlers: usize,
    /// How many reconciles may run at once
    #[arg(long, default_value_t = 1)]
    workers: u16,
    /// In which encoding objects travel
    #[arg(long, value_enum, default_value_t = Encoding::Json)]
    encoding: Encoding,
    /// Whether `managedFields` stay in the store
    #[arg(long, value_enum, default_value_t = ManagedFields::Keep)]
    managed_fields: ManagedFields,
    /// Whether the first list is asked for as a watch
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    #[serde(serialize_with = "Switch::as_bool")]
    streaming: Switch,
    /// How long to rest before the memory that is left is looked at
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    #[serde(skip)]
    settle: f64,
    /// How many things to do; 0: as many as there are objects
    #[arg(long, default_value_t = 0)]
    count: usize,
    /// Whether each key is another one
    #[arg(long, value_enum, default_value_t = Keys::Distinct)]
    #[serde(skip)]
    keys: Keys,
    /// Whether a reconcile reads its object; here it always does
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
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
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

/// A work that this peer has no way to do. It is no failure, and the report says the reason.
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
        "--objects, --handlers and --workers are at least 1"
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

/// The runtime as it comes: as many threads as the process has CPUs.
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
