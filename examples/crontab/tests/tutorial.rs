//! `docs/your-own-crd.md`, typed from its first line to its last, with everything a reader has:
//! `cargo xtask test-real` brings kubectl.

#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod reader;

use std::fs;

use reader::{Desk, Running, Step, Terminal, steps, wait_for};

/// Tables without the ages in them, which differ.
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

/// The reader, with a terminal for each program that stays.
struct Reader {
    terminal: Terminal,
    cluster: Option<Running>,
    controller: Option<Running>,
    // Last: the others work in its folder.
    desk: Desk,
}

impl Reader {
    fn new() -> Self {
        let desk = Desk::new();
        let kubectl = std::env::var("PINTLE_REAL_KUBECTL");
        let kubectl = kubectl.expect("a kubectl, as `cargo xtask test-real` brings one");
        // What it remembers of servers goes with the desk.
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

    fn take(&mut self, step: Step) {
        match step {
            Step::File { name, text } => self.file(&name, &text),
            Step::Type(line) if line.starts_with("cargo run -p pintle-cluster") => {
                let line = self.desk.own(&line);
                let cluster = self.desk.start("pintle", &line, "", "Ctrl-C stops it");
                self.cluster = Some(cluster);
            }
            Step::Type(line) if line == "cargo run" => {
                let kubeconfig = self.terminal.line("echo $KUBECONFIG");
                let kubeconfig = kubeconfig.trim();
                let ready = "working on https";
                let controller = self.desk.start("crontab", &line, kubeconfig, ready);
                self.controller = Some(controller);
                // Another terminal, in the same place.
                self.terminal = self.desk.terminal("crontab");
                let export = format!("export KUBECONFIG={kubeconfig}");
                self.terminal.line(&export);
            }
            Step::Type(line) => drop(self.terminal.line(&self.desk.own(&line))),
            Step::See {
                line,
                text,
                refused: true,
            } => {
                let (printed, fine) = self.terminal.try_line(&line);
                assert!(!fine, "{line}: {printed}");
                assert_eq!(printed, text, "{line}");
            }
            Step::See { line, text, .. } => self.see(&line, &text),
        }
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.desk.folder.join("crontab").join(name);
        if name == "crd.yaml" {
            let printed = fs::read_to_string(path).expect("printed by now");
            return assert_eq!(printed, text, "{name}");
        }
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Types `line` until it prints `text`: others write what it shows.
    fn see(&mut self, line: &str, text: &str) {
        let mut last = String::new();
        wait_for(&format!("{line} to show\n{text}"), || {
            last = self.terminal.line(line);
            ageless(&last) == ageless(text)
        });
    }
}

#[test]
fn a_reader_sees_what_the_document_shows() {
    let mut reader = Reader::new();
    for step in steps() {
        reader.take(step);
    }

    // The closing words: a change is followed, what is deleted comes back, and goes with its owner.
    let uid = "kubectl get cronjob my-new-cron-object -o jsonpath='{.metadata.uid}{\"\\n\"}'";
    let parallel =
        "kubectl get cronjobs -o jsonpath='{.items[*].spec.jobTemplate.spec.parallelism}{\"\\n\"}'";
    reader.see(parallel, "2\n");
    reader.terminal.line("kubectl edit ct my-new-cron-object");
    reader.see(parallel, "3\n");
    let first = reader.terminal.line(uid);
    reader
        .terminal
        .line("kubectl delete cronjob my-new-cron-object");
    let mut second = None;
    wait_for("another CronJob", || {
        let (printed, fine) = reader.terminal.try_line(uid);
        second = fine.then_some(printed);
        second.is_some()
    });
    assert_ne!(second, Some(first));
    reader.terminal.line("kubectl delete ct my-new-cron-object");
    let none = "No resources found in default namespace.\n";
    reader.see("kubectl get cronjobs", none);

    reader.controller.take().expect("it runs").interrupt();
    reader.cluster.take().expect("it runs").interrupt();
}
