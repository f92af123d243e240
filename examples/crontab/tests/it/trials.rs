//! The controller converges under faults of every family.

use std::time::Duration;

use crontab::{CronTab, CronTabSpec};
use pintle_trials::{Cx, Report, check};

async fn controller(cx: Cx) {
    let _ = crontab::run(cx.client(), cx.shutdown()).await;
}

/// Proves trials/own-controllers.
#[test]
fn crontab_converges() {
    let spec = CronTabSpec {
        cron_spec: "*/5 * * * *".to_owned(),
        image: "awesome-cron:1".to_owned(),
        replicas: 1,
    };
    let report = check(controller)
        .walk(&CronTab::new("nightly", spec))
        .sample(80)
        .budget(Duration::MAX)
        .run();
    assert_complete(&report);
}

/// Asserts that no scenario was left out, unless a shorter budget was requested.
fn assert_complete(report: &Report) {
    if std::env::var_os("PINTLE_TRIALS_BUDGET").is_none() {
        assert_eq!(report.left_out, 0, "{report}");
    }
}
