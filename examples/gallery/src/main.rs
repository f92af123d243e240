//! Runs the one-line check on the controllers of the gallery and prints the findings.
//!
//! ```text
//! cargo run --release -p gallery
//! cargo run --release -p gallery -- half_done edge_triggered
//! cargo run --release -p gallery -- --broken --report half_done
//! ```

#![allow(clippy::print_stdout, reason = "prints to the terminal")]

use std::time::Duration;

use gallery::kit::shop;
use pintle_trials::{Cx, Report, check};

fn run<F, R>(name: &str, controller: F) -> Report
where
    F: Fn(Cx) -> R + Send + Sync + 'static,
    R: Future + 'static,
{
    let folder = std::env::temp_dir().join(format!("gallery-{}", std::process::id()));
    let report = check(controller)
        .walk(&shop())
        .name(name)
        .folder(&folder)
        .budget(Duration::from_secs(600))
        .try_run();
    let _ = std::fs::remove_dir_all(folder);
    report
}

fn show(name: &str, twin: &str, report: &Report, whole: bool) {
    let found = report.failures.first().map_or_else(
        || "converges".to_owned(),
        |failure| {
            format!(
                "{} under {}",
                failure.violation.oracle,
                failure.plan.family()
            )
        },
    );
    let (scenarios, seconds) = (report.scenarios, report.elapsed().as_secs_f64());
    println!("{name:>16} {twin:8} {scenarios:5} scenarios {seconds:6.2} s  {found}");
    if whole {
        println!("{report}");
    }
}

macro_rules! twins {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        fn run_twins(chosen: &str, flags: &[String]) {
            let has = |flag: &str| flags.iter().any(|it| it == flag);
            $(if chosen == stringify!($name) {
                if !has("--repaired") {
                    let report = run(chosen, gallery::$name::broken);
                    show(chosen, "broken", &report, has("--report"));
                }
                if !has("--broken") {
                    let report = run(chosen, gallery::$name::repaired);
                    show(chosen, "repaired", &report, has("--report"));
                }
            })*
        }
    };
}

twins! {
    all_finalizers blind_resume blind_write busy defaults_fight disabled_feature dropped_field
    early_finalizer edge_triggered finalizer_stuck forced_deletion forgotten_code forgotten_label
    half_done hot_retry immutable late_delete late_finalizer latest_generation lost_id missing_child
    name_prefix no_owner recreated shuffled stale_cleanup stale_count stale_status startup_cleanup
    status_time stuck_namespace swallowed unwatched_child without_force wrong_owner
}

fn main() {
    let arguments = std::env::args().skip(1);
    let (flags, mut chosen): (Vec<String>, Vec<String>) =
        arguments.partition(|it| it.starts_with("--"));
    if chosen.is_empty() {
        chosen = NAMES.iter().map(|&name| name.to_owned()).collect();
    }
    for name in chosen {
        if !NAMES.contains(&name.as_str()) {
            let names = NAMES.join(", ");
            println!("{name}: not in the gallery; expected one of {names}");
            continue;
        }
        run_twins(&name, &flags);
    }
}
