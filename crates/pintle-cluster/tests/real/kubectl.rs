//! Drives the program with a real kubectl, which `cargo xtask test-real` provides.

#![cfg(unix)]
use std::process::Command;

use crate::support::program::Program;

/// kubectl connected to the program.
struct Kubectl(Program);

impl Kubectl {
    /// Runs a command and returns its output.
    ///
    /// # Panics
    ///
    /// Panics if the command fails.
    fn run(&self, line: &str) -> String {
        let program = std::env::var_os("PINTLE_REAL_KUBECTL");
        let program = program.expect("PINTLE_REAL_KUBECTL is not set: run `cargo xtask test-real`");
        let output = Command::new(program)
            .arg("--kubeconfig")
            .arg(&self.0.kubeconfig)
            .args(line.split_whitespace())
            .output()
            .expect("cannot start kubectl");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {errors}");
        String::from_utf8(output.stdout).unwrap() + &errors
    }

    /// Asserts that the output of a command contains `expected`.
    fn expect(&self, line: &str, expected: &str) {
        let output = self.run(line);
        assert!(output.contains(expected), "kubectl {line}: {output}");
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
        self.expect(line, "deployment \"web\" successfully rolled out");
    }
}

/// Proves cluster/end-states.
#[tokio::test]
async fn kubectl_manages_a_deployment() {
    let kubectl = Kubectl(Program::start(&[
        "--pod-ready-after",
        "0.2",
        "--pod-stop-after",
        "0",
    ]));
    kubectl.expect(
        "create deployment web --image=nginx --replicas=3",
        "deployment.apps/web created",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.pods(), 3);
    kubectl.expect("get deployment web", "3/3");

    kubectl.expect(
        "scale deployment web --replicas=5",
        "deployment.apps/web scaled",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.pods(), 5);
    kubectl.expect(
        "scale deployment web --replicas=2",
        "deployment.apps/web scaled",
    );
    kubectl.rolled_out();

    kubectl.expect(
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

    kubectl.expect(
        "rollout undo deployment/web",
        "deployment.apps/web rolled back",
    );
    kubectl.rolled_out();
    assert_eq!(kubectl.image(), "nginx");
    kubectl.expect("describe deployment web", "Scaled up replica set web-");
    kubectl.run("wait --for=condition=Available deployment/web --timeout=10s");

    kubectl.expect("rollout pause deployment/web", "deployment.apps/web paused");
    kubectl.run("set image deployment/web nginx=nginx:3");
    kubectl.expect(
        "rollout resume deployment/web",
        "deployment.apps/web resumed",
    );
    kubectl.rolled_out();
    kubectl.run("rollout restart deployment/web");
    kubectl.rolled_out();

    kubectl.expect("delete deployment web --wait", "\"web\" deleted");
    kubectl.run("wait --for=delete pod --all --timeout=60s");
    kubectl.expect("get replicasets,pods", "No resources found");

    kubectl.run("create namespace team");
    kubectl.run("create deployment api --image=nginx --replicas=3 -n team");
    kubectl.expect("delete namespace team --timeout=60s", "\"team\" deleted");
    let status = kubectl.0.stop("INT").await;
    assert!(status.success());
}
