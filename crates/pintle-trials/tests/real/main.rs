//! An operator in another language, which runs as a process in real time: Kubernetes' sample
//! controller in Go, unmodified.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use pintle_trials::{Check, program};

/// Returns the directory that operators are built into.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("operators");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn trial(command: &str, story: &Path, idle: u64, results: &Path) -> Check {
    program(command, story)
        .idle(Duration::from_secs(idle))
        .folder(results)
}

const FOO: &str = "\
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata: {name: web}
spec: {deploymentName: web, replicas: REPLICAS}
";

/// Proves trials/programs.
#[test]
fn go_sample_controller_converges() {
    let module = "k8s.io/sample-controller@v0.36.4";
    let described = run(Command::new("go").args(["mod", "download", "-json", module]));
    let described: serde_json::Value = serde_json::from_str(&described).unwrap();
    let sources = Path::new(described["Dir"].as_str().unwrap());
    let program = folder().join("sample-controller");
    run(Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(sources));

    let story = tempfile::tempdir().unwrap();
    let crd = sources.join("artifacts/examples/crd-status-subresource.yaml");
    std::fs::copy(crd, story.path().join("crd.yaml")).unwrap();
    for (file, replicas) in [("1", "1"), ("2", "3"), ("3.delete", "3"), ("4", "2")] {
        let file = story.path().join(format!("{file}.yaml"));
        std::fs::write(file, FOO.replace("REPLICAS", replicas)).unwrap();
    }
    let results = tempfile::tempdir().unwrap();
    let command = format!("{} --kubeconfig {{}}", program.display());
    let report = trial(&command, story.path(), 2, results.path())
        .sample(12)
        .try_run();
    assert!(report.is_ok(), "{report}");
    assert!(report.families.len() > 5, "{:?}", report.families);
    let missed = report.families.values().sum::<usize>() / 2;
    assert!(report.vanished < missed, "{report}");
}
