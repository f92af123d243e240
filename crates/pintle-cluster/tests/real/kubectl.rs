//! What people do with kubectl, with kubectl: `cargo xtask test-real` brings one.

#![cfg(unix)]
use std::process::Command;

use crate::support::program::Program;

/// A kubectl that talks to the program.
struct Kubectl(Program);

impl Kubectl {
    /// What it prints, or fails with.
    fn run(&self, line: &str) -> String {
        let program = std::env::var_os("PINTLE_REAL_KUBECTL");
        let program = program.expect("a kubectl, as `cargo xtask test-real` brings one");
        let output = Command::new(program)
            .arg("--kubeconfig")
            .arg(&self.0.kubeconfig)
            .args(line.split_whitespace())
            .output()
            .expect("kubectl runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {errors}");
        String::from_utf8(output.stdout).unwrap() + &errors
    }

    fn says(&self, line: &str, what: &str) {
        let said = self.run(line);
        assert!(said.contains(what), "kubectl {line}: {said}");
    }

    fn pods(&self) -> usize {
        self.run("get pods -o name").lines().count()
    }

    fn image(&self) -> String {
        let path = "jsonpath={.spec.template.spec.containers[0].image}";
        self.run(&format!("get deployment web -o {path}"))
    }

    fn rolled_out(&self) {
        let line = "rollout status deployment/web --timeout=60s";
        self.says(line, "deployment \"web\" successfully rolled out");
    }
}

/// Proves cluster/end-states.
#[tokio::test]
async fn a_deployment_lives_its_life_under_kubectl() {
    let kubectl = Kubectl(Program::start(&["--pod-ready-after", "0.2"]));
    kubectl.says(
        "create deployment web --image=nginx --replicas=3",
        "deployment.apps/web created",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.pods(), 3);
    kubectl.says("get deployment web", "3/3");

    kubectl.says(
        "scale deployment web --replicas=5",
        "deployment.apps/web scaled",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.pods(), 5);
    kubectl.says(
        "scale deployment web --replicas=2",
        "deployment.apps/web scaled",
    );
    kubectl.rolled_out();

    kubectl.says(
        "set image deployment/web nginx=nginx:2",
        "deployment.apps/web image updated",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.image(), "nginx:2");
    let history = kubectl.run("rollout history deployment/web");
    let revisions: Vec<_> = history
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .collect();
    assert_eq!(revisions.len(), 2, "{history}");

    kubectl.says(
        "rollout undo deployment/web",
        "deployment.apps/web rolled back",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.image(), "nginx");
    kubectl.says("describe deployment web", "Scaled up replica set web-");
    kubectl.run("wait --for=condition=Available deployment/web --timeout=10s");

    kubectl.says("rollout pause deployment/web", "deployment.apps/web paused");
    kubectl.run("set image deployment/web nginx=nginx:3");
    kubectl.says(
        "rollout resume deployment/web",
        "deployment.apps/web resumed",
    );
    kubectl.rolled_out();
    kubectl.run("rollout restart deployment/web");
    kubectl.rolled_out();

    kubectl.says("delete deployment web --wait", "\"web\" deleted");
    kubectl.run("wait --for=delete pod --all --timeout=60s");
    kubectl.says("get replicasets,pods", "No resources found");

    kubectl.run("create namespace team");
    kubectl.run("create deployment api --image=nginx --replicas=3 -n team");
    kubectl.says("delete namespace team --timeout=60s", "\"team\" deleted");
    let status = kubectl.0.stop("INT").await;
    assert!(status.success());
}
