//! `cargo xtask bench`: compares Pintle with client-go, controller-runtime and kube-rs.
//!
//! - [`plan`] defines the benchmarks, [`peers`] builds the programs, [`program`] runs them.
//! - [`run`] repeats them in rounds; [`live`] holds those that need a real control plane.
//! - [`samples`] stores the measurements; [`report`], [`goals`] and [`plot`] render them.

mod goals;
mod live;
mod machine;
mod peers;
mod plan;
mod plot;
mod program;
mod progress;
mod report;
mod runner;
mod samples;
mod stats;

use std::path::PathBuf;

use anyhow::{Context, Result};

use self::plan::Work;
use self::runner::Runner;
use self::samples::Results;
use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Benchmarks to run [default: all]
    #[arg(value_enum)]
    works: Vec<Work>,
    /// Smoke test: one round at a tenth of the size. The report goes to target/bench
    #[arg(long)]
    quick: bool,
    /// Number of rounds [default: five, fewer for slow cases]
    #[arg(long)]
    rounds: Option<u32>,
    /// Use the existing binaries
    #[arg(long)]
    no_build: bool,
    /// Regenerate the report without measuring
    #[arg(long)]
    report: bool,
}

/// The files of a report.
pub(crate) struct Place {
    folder: PathBuf,
    readme: Option<PathBuf>,
}

impl Place {
    /// Returns where to write the report; a quick run does not touch the committed one.
    fn of(quick: bool) -> Self {
        let root = workspace::root();
        if quick {
            Self {
                folder: root.join("target/bench"),
                readme: None,
            }
        } else {
            Self {
                folder: root.join("benches"),
                readme: Some(root.join("README.md")),
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let place = Place::of(args.quick);
    let plots = place.folder.join("plots");
    std::fs::create_dir_all(&plots)
        .with_context(|| format!("cannot create {}", plots.display()))?;
    let file = place.folder.join("results.json");
    let mut results = Results::read(&file)?;
    let mut interrupted = false;
    if !args.report {
        let works = if args.works.is_empty() {
            Work::ALL.to_vec()
        } else {
            args.works.clone()
        };
        let mut runner = Runner::new(args, &works)?;
        for work in works {
            let measured = runner.measure(work);
            interrupted = runner.interrupt.is_raised();
            if interrupted {
                break;
            }
            results.works.insert(work.name().to_owned(), measured);
            results.write(&file)?;
        }
    }
    let report = report::render(&results);
    for (name, svg) in plot::all(&results) {
        std::fs::write(plots.join(name), svg)?;
    }
    std::fs::write(place.folder.join("RESULTS.md"), &report)?;
    if let Some(readme) = &place.readme {
        report::update_readme(readme, &results)?;
    }
    println!("{}", goals::table(&results));
    println!("full report: {}", place.folder.join("RESULTS.md").display());
    if interrupted {
        return Err(workspace::ChildFailed::interrupted("interrupted").into());
    }
    Ok(())
}
