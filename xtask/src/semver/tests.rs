use super::*;

const CHANGELOG: &str = "# Changelog\n\n## [Unreleased]\n\n### pintle\n\n#### Added\n\n- A.\n\n\
     ### pintle-cluster\n\n#### Breaking\n\n- B.\n\n## [0.1.0] - 2026-01-01\n\n\
     ### pintle\n\n#### Breaking\n\n- C.\n";

#[test]
fn last_release_is_the_highest_version() {
    let tags = "v0.10.0\nv0.2.0\nv0.9.1\n";
    assert_eq!(last_release(tags), Some("v0.10.0"));
}

#[test]
fn pre_release_tags_are_ignored() {
    assert_eq!(
        last_release("v1.0.0-rc.1\nv0.1.0\nvendored\nv2\n"),
        Some("v0.1.0")
    );
    assert_eq!(last_release("v1.0.0-rc.1\n"), None);
    assert_eq!(last_release(""), None);
}

#[test]
fn crate_without_announced_breaks_is_compared() {
    // The breaking change of `pintle` belongs to an earlier release.
    let decision = decide(
        "pintle",
        "crates/pintle\ncrates/pintle-cluster\n",
        CHANGELOG,
    );
    assert_eq!(decision, Decision::Compare);
}

#[test]
fn announced_break_counts_for_its_crate_only() {
    let folders = "crates/pintle\ncrates/pintle-cluster\n";
    let decision = decide("pintle-cluster", folders, CHANGELOG);
    assert_eq!(decision, Decision::Breaking);
    let released = CHANGELOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0]\n");
    assert_eq!(
        decide("pintle-cluster", folders, &released),
        Decision::Compare
    );
}

#[test]
fn crate_missing_from_the_release_is_new() {
    let decision = decide("pintle", "crates/pintle-clock\n", CHANGELOG);
    assert_eq!(decision, Decision::New);
}

#[test]
fn command_names_the_tag_and_every_crate() {
    let command = command("v0.1.0", &["pintle", "pintle-clock"]).unwrap();
    let arguments: Vec<_> = command.get_args().filter_map(|a| a.to_str()).collect();
    let wanted = "semver-checks --baseline-rev v0.1.0 --release-type minor \
         --package pintle --package pintle-clock";
    assert_eq!(arguments.join(" "), wanted);
    assert!(super::command("v0.1.0", &[]).is_none());
}
