//! Tests whether an operator in any language converges under faults.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;

/// Tests whether Kubernetes operators converge under crashes, lost responses and late events.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Run a program against an embedded cluster, and again under every fault
    ///
    /// The story is played once without faults, for reference. Then it is played again for every
    /// fault at every write of the program: the program is killed, stopped, cut off from the API
    /// server or receives its responses late. Whenever the cluster is idle, its state has to equal
    /// the reference. The exit code is 1 if it does not.
    Run(Run),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Shell command that starts the program; {} is the path of a kubeconfig, which is also in
    /// KUBECONFIG
    #[arg(long, value_name = "COMMAND")]
    controller: String,
    /// Directory of YAML files, applied in file name order; NAME.delete.yaml deletes. CRDs and
    /// given*.yaml are installed before the program starts
    #[arg(long, value_name = "DIR")]
    story: PathBuf,
    /// Only these families of faults, such as crash-after,paused
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    families: Vec<String>,
    /// Try only about this many faults, some of every family
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,
    /// Seconds without a change after which the cluster counts as idle; also the time the program
    /// gets to start
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    idle: u64,
    /// Run only the scenario with this token from a report
    #[arg(long, value_name = "TOKEN")]
    replay: Option<String>,
    /// Directory for the report page and the stored failures
    #[arg(long, value_name = "DIR", default_value = "pintle-trials")]
    folder: PathBuf,
}

#[expect(clippy::print_stdout, reason = "prints the report")]
fn main() -> ExitCode {
    let Command::Run(run) = Command::parse();
    let mut check = pintle_trials::program(run.controller, run.story)
        .idle(Duration::from_secs(run.idle))
        .folder(run.folder);
    if !run.families.is_empty() {
        let families: Vec<&str> = run.families.iter().map(String::as_str).collect();
        check = check.only(&families);
    }
    if let Some(sample) = run.sample {
        check = check.sample(sample);
    }
    if let Some(token) = run.replay {
        check = check.replay(token);
    }
    let report = check.try_run();
    print!("{report}");
    if report.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
