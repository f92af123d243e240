//! Developer tasks of the workspace; `cargo xtask` lists them.

// A command-line tool: it prints, and waits in real time for real processes.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod bench;
mod ci;
mod features;
mod fuzz;
mod gate;
mod generate;
mod guarantees;
mod interrupt;
mod lint;
mod packages;
mod real_cluster;
mod release;
mod semver;
mod source;
mod test_output;
mod test_real;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks of the Pintle workspace.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start and stop a real Kubernetes control plane on loopback
    #[command(subcommand)]
    RealCluster(real_cluster::Command),
    /// Start a real control plane and run the tests that need one
    TestReal(test_real::Args),
    /// Generate the tables of built-in kinds from a kube-apiserver of the pinned version
    Generate(generate::Args),
    /// Benchmark Pintle against client-go, controller-runtime and kube-rs, and write the report
    Bench(bench::Args),
    /// Run the fuzz targets for a bounded time each
    Fuzz(fuzz::Args),
    /// Count the instructions of the hot paths and compare them with the baseline
    Gate(gate::Args),
    /// Check that every promise has a test and every cited promise exists
    Guarantees,
    /// Check the project rules that clippy cannot check
    Lint,
    /// Release a version: changelog, version numbers, packages, docs, tag and upload
    Release(release::Args),
    /// Run everything that CI runs
    Ci,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::RealCluster(command) => real_cluster::run(&command),
        Task::TestReal(args) => test_real::run(&args, &mut test_output::Totals::default()),
        Task::Generate(args) => generate::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Gate(args) => gate::run(&args),
        Task::Guarantees => guarantees::run(),
        Task::Lint => lint::run(),
        Task::Release(args) => release::run(&args),
        Task::Ci => ci::run_all(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            workspace::exit_code_of(&error)
        }
    }
}
