//! `cargo xtask gate`: fails when a hot path takes more instructions than its baseline allows.
//!
//! Times depend on the machine and on what else it does; instructions do not. The program
//! `pintle-gate` runs one path per process, [`count`] counts its instructions with callgrind, and
//! [`judge`] compares them with the [`baseline`] in `benches/gate.json`. A path that became dearer
//! on purpose is accepted with a reason, which is stored beside the new number: the diff, the
//! number and the reason are one commit.

mod baseline;
mod count;
mod judge;

use anyhow::{Result, bail};

use self::baseline::{Baseline, Toolchain};
use self::judge::{LIMIT, Report, Verdict};

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Which paths; all of them if none is named
    paths: Vec<String>,
    /// Store what is measured as the new baseline, with the reason why it may differ.
    /// Without paths, only those that moved by more than the limit are stored
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
            // Numbers of two toolchains do not belong in one file.
            baseline = Baseline::new(toolchain, &counts, reason);
            println!("stored: all paths, with the toolchain they were measured with");
        } else {
            bail!("the toolchain has changed, so all paths have to be accepted together");
        }
        return baseline.write();
    }
    if !judged {
        println!(
            "NOT JUDGED: the baseline was taken with another toolchain.\n  baseline: {}\n  here:     \
             {toolchain}\nTo move it: cargo xtask gate --accept \"<which update>\"",
            baseline.toolchain
        );
        return Ok(());
    }
    let improved = report.names(Verdict::Improvement);
    if !improved.is_empty() {
        println!(
            "faster by more than {LIMIT} %: {}. Keep it that way: cargo xtask gate --accept \
             \"<what made it faster>\"",
            list(&improved)
        );
    }
    let failed = report.failures();
    if failed.is_empty() {
        return Ok(());
    }
    bail!(
        "instruction counts differ from the baseline: {}\nfind out why (the profiles are in {}), or \
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
