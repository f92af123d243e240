//! `cargo xtask bench`: Pintle beside client-go, controller-runtime and kube-rs.
//!
//! - [`plan`] says what is measured, [`peers`] builds who is measured, [`program`] runs them.
//! - [`run`] goes through the rounds, [`live`] through the works that need a real control plane.
//! - [`samples`] keeps what was measured, [`report`], [`goals`] and [`plot`] write it down.

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
    /// Which works; all of them if none is named
    #[arg(value_enum)]
    works: Vec<Work>,
    /// One round, a tenth of everything: to see that it works. Its report goes to target/bench
    #[arg(long)]
    quick: bool,
    /// How many rounds, instead of five, or fewer of what takes long
    #[arg(long)]
    rounds: Option<u32>,
    /// Take the programs as they were built last
    #[arg(long)]
    no_build: bool,
    /// Write the report again from the figures that are there, and measure nothing
    #[arg(long)]
    report: bool,
}

/// Where a report goes.
pub(crate) struct Place {
    folder: PathBuf,
    readme: Option<PathBuf>,
}

impl Place {
    /// A trial is nothing to show.
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
    println!(
        "the whole report: {}",
        place.folder.join("RESULTS.md").display()
    );
    if interrupted {
        return Err(workspace::ChildFailed::interrupted("interrupted").into());
    }
    Ok(())
}
