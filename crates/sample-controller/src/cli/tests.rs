use clap::CommandFactory;

use super::*;

fn limit(flags: &[&str]) -> Result<Option<RateLimit>, InvalidLimit> {
    let cli = Cli::parse_from([&["sample-controller"], flags].concat());
    cli.limit(&Metrics::new())
}

/// Proves limits/burst-and-rate.
#[tokio::test]
async fn requests_are_unlimited_by_default() {
    assert!(limit(&[]).expect("none").is_none());
    assert!(limit(&["--kube-api-qps", "-1"]).expect("none").is_none());
    assert!(limit(&["--kube-api-qps=5"]).expect("one").is_some());
    let zero_burst = limit(&["--kube-api-qps=5", "--kube-api-burst=0"]);
    assert_eq!(zero_burst.err(), Some(InvalidLimit::Burst));
}

#[test]
fn help_lists_every_flag_without_wrapping_examples() {
    Cli::command().debug_assert();
    let help = Cli::command().term_width(100).render_long_help();
    let help = help.to_string();
    for word in [
        "--kubeconfig",
        "--master",
        "--install-crd",
        "--kube-api-qps",
        "--kube-api-burst",
        "--bind",
        "--workers",
        "--resync",
        "--log-json",
        "-v",
        "crd",
        "manifests",
        "Examples:",
        // Not wrapped.
        "use a cluster with the Foo CRD\n",
    ] {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
}
