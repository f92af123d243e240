//! `cargo xtask gate`: fails if a hot path takes more instructions than its baseline allows.
//!
//! Timings depend on the machine and its load; instruction counts do not. `pintle-gate` runs one
//! path per process, [`count`] counts its instructions with callgrind, and [`judge`] compares them
//! with the [`baseline`] in `benches/gate.json`. An intended regression is accepted with a reason,
//! stored next to the new count, so that code, count and reason land in one commit.

mod baseline;
mod count;
mod judge;

use anyhow::{Result, bail};

use self::baseline::{Baseline, Toolchain};
use self::judge::{LIMIT, Report, Verdict};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Paths to measure [default: all]
    paths: Vec<String>,
    /// Store the counts as the new baseline, with the reason for the change.
    /// Without paths, stores only those that changed by more than the limit
    #[arg(long, value_name = "REASON")]
    accept: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let reason = args.accept.as_deref().map(str::trim);
    if reason == Some("") {
        bail!("--accept needs a reason");
    }
    let mut baseline = Baseline::read()?;
    let toolchain = Toolchain::here()?;
    let counts = count::all(&args.paths)?;
    let judged = baseline.toolchain == toolchain;
    let report = Report::new(&baseline, &counts, args.paths.is_empty());
    println!("{report}");

    if let Some(reason) = reason {
        if judged {
            let stored = baseline.accept(&report, &args.paths, reason);
            println!("stored: {}", list(&stored));
        } else if args.paths.is_empty() {
            // Counts of different toolchains are not comparable.
            baseline = Baseline::new(toolchain, &counts, reason);
            println!("stored: all paths, and the toolchain");
        } else {
            bail!("the toolchain differs from the baseline's: accept all paths by naming none");
        }
        return baseline.write();
    }
    if !judged {
        println!(
            "NOT JUDGED: the baseline is from another toolchain.\n  baseline: {}\n  here:     \
             {toolchain}\nTo update it: cargo xtask gate --accept \"<which update>\"",
            baseline.toolchain
        );
        return Ok(());
    }
    let improved = report.names(Verdict::Improvement);
    if !improved.is_empty() {
        println!(
            "faster by more than {LIMIT} %: {}. Lock it in: cargo xtask gate --accept \
             \"<what made it faster>\"",
            list(&improved)
        );
    }
    let failed = report.failures();
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "instruction counts differ from the baseline: {}\nfind out why (profiles are in {}), or \
         say why it is worth it: cargo xtask gate --accept \"<reason>\"",
        list(&failed),
        count::profiles().display(),
    )
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.join(", ")
}
