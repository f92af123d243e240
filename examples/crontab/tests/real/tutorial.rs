//! Follows `docs/your-own-crd.md` from beginning to end, with kubectl and the program
//! `pintle-cluster`. `cargo xtask test-real` provides them.

use std::fs;

use crate::reader::{Desk, Running, Step, Terminal, steps, wait_for};

/// Returns the lines of a table with the age at the end of each replaced.
fn ageless(text: &str) -> Vec<String> {
    let is_age = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm', 'h']);
        digits.len() < word.len() && digits.starts_with(|c: char| c.is_ascii_digit())
    };
    let ageless = |line: &str| match line.rsplit_once(' ') {
        Some((line, word)) if is_age(word) => format!("{line} <age>"),
        _ => line.trim_end().to_owned(),
    };
    text.lines().map(ageless).collect()
}

/// A reader with a terminal and the programs that run in others.
struct Reader {
    terminal: Terminal,
    cluster: Option<Running>,
    controller: Option<Running>,
    // Dropped last, because the others work in its folder.
    desk: Desk,
}

impl Reader {
    fn new() -> Self {
        let desk = Desk::new();
        let kubectl = std::env::var("PINTLE_REAL_KUBECTL");
        let kubectl = kubectl.expect("PINTLE_REAL_KUBECTL is not set; run `cargo xtask test-real`");
        // The discovery cache is deleted with the desk.
        let home = desk.folder.display();
        let script = format!(
            r#"HOME='{home}' KUBE_EDITOR="sed -i 's/replicas: 2/replicas: 3/'" exec '{kubectl}' "$@""#
        );
        desk.program("kubectl", &script);
        Self {
            terminal: desk.terminal("."),
            desk,
            cluster: None,
            controller: None,
        }
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::File { name, text } => self.file(&name, &text),
            Step::Type(line) if line.starts_with("cargo run --bin pintle-cluster") => {
                let line = self.desk.localize(&line);
                let cluster = self
                    .desk
                    .start("pintle", &line, "", "Press Ctrl-C to stop it");
                self.cluster = Some(cluster);
            }
            Step::Type(line) if line == "cargo run" => {
                let kubeconfig = self.terminal.line("echo $KUBECONFIG");
                let kubeconfig = kubeconfig.trim();
                let ready = "working on https";
                let controller = self.desk.start("crontab", &line, kubeconfig, ready);
                self.controller = Some(controller);
                // Another terminal in the same folder.
                self.terminal = self.desk.terminal("crontab");
                let export = format!("export KUBECONFIG={kubeconfig}");
                self.terminal.line(&export);
            }
            Step::Type(line) => drop(self.terminal.line(&self.desk.localize(&line))),
            Step::See {
                line,
                text,
                rejected: true,
            } => {
                let (printed, success) = self.terminal.try_line(&line);
                assert!(!success, "{line}: {printed}");
                assert_eq!(printed, text, "{line}");
            }
            Step::See { line, text, .. } => self.see(&line, &text),
        }
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.desk.folder.join("crontab").join(name);
        if name == "crd.yaml" {
            let printed = fs::read_to_string(path).expect("printed before");
            return assert_eq!(printed, text, "{name}");
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }

    /// Repeats a command until it prints `text`.
    fn see(&mut self, line: &str, text: &str) {
        let mut last = String::new();
        wait_for(&format!("{line} to show\n{text}"), || {
            last = self.terminal.line(line);
            ageless(&last) == ageless(text)
        });
    }
}

#[test]
fn tutorial_works_with_kubectl() {
    let mut reader = Reader::new();
    for step in steps() {
        reader.perform(step);
    }

    // The claims at the end: updates are followed, a deleted CronJob is recreated, and it is
    // deleted with its CronTab.
    let uid = "kubectl get cronjob my-new-cron-object -o jsonpath='{.metadata.uid}{\"\\n\"}'";
    let parallelism =
        "kubectl get cronjobs -o jsonpath='{.items[*].spec.jobTemplate.spec.parallelism}{\"\\n\"}'";
    reader.see(parallelism, "2\n");
    reader.terminal.line("kubectl edit ct my-new-cron-object");
    reader.see(parallelism, "3\n");
    let first = reader.terminal.line(uid);
    reader
        .terminal
        .line("kubectl delete cronjob my-new-cron-object");
    let mut second = None;
    wait_for("another CronJob", || {
        let (printed, success) = reader.terminal.try_line(uid);
        second = success.then_some(printed);
        second.is_some()
    });
    assert_ne!(second, Some(first));
    reader.terminal.line("kubectl delete ct my-new-cron-object");
    let none = "No resources found in default namespace.\n";
    reader.see("kubectl get cronjobs", none);

    reader.controller.take().expect("running").interrupt();
    reader.cluster.take().expect("running").interrupt();
}
