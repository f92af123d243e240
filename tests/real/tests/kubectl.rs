//! Compares the output of kubectl on kube-apiserver and on our server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use pintle_apiserver::{ApiServer, PodDeletion};
use real_tests::{BARE_VARIABLE, from_environment, is_about_now};
use regex::{Captures, Regex};

/// Times in JSON and in `kubectl describe`.
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    let json = r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z";
    let described = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d [+-]\d{4}";
    Regex::new(&format!("{json}|{described}")).unwrap()
});

static VARYING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pairs = [
        (
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "<uid>",
        ),
        (r#"(resourceVersion"?: ?)"\d+""#, "$1<version>"),
        (r"(Resource Version: +)\d+", "$1<version>"),
        // The service address ranges of the two servers.
        (r"\b10\.(0\.0|96\.\d+)\.\d+\b", "<address>"),
        (r"https://127\.0\.0\.1:\d+", "<server>"),
        // Ages and column widths.
        (r" +(\d+[smhdy])+( +|$)", " <age> "),
        (r" {2,}", "  "),
        // Temporary directories of kubectl diff.
        (r"(?m)^(---|\+\+\+|diff) .*$", "$1"),
    ];
    pairs
        .map(|(text, name)| (Regex::new(text).unwrap(), name))
        .into()
});

fn masked(bytes: &[u8], namespace: &str) -> String {
    let text = String::from_utf8_lossy(bytes).replace(namespace, "{ns}");
    let lines: Vec<String> = text
        .lines()
        // Our server warns about objects without a controller.
        .filter(|line| !line.starts_with("Warning: pintle: "))
        .map(|line| {
            let line = TIME.replace_all(line, |found: &Captures<'_>| {
                let generated = is_about_now(&found[0]);
                if generated { "<time>" } else { &found[0] }.to_owned()
            });
            let masked = VARYING
                .iter()
                .fold(line.into_owned(), |line, (regex, name)| {
                    regex.replace_all(&line, *name).into_owned()
                });
            masked.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// kubectl connected to one of the servers.
struct Side {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
    namespace: String,
}

impl Side {
    fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(&self.cache)
            .args(["--namespace", &self.namespace])
            .args(args)
            .env_remove("KUBECONFIG")
            .env("KUBE_EDITOR", "sed -i s/green/yellow/")
            .env("HOME", &self.cache);
        command
    }

    fn run(&self, args: &[String], input: Option<&str>) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // kubectl may close its input without reading it.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
        drop(stdin);
        child.wait_with_output().unwrap()
    }
}

/// Splits a line into words like a shell, with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl")
}

fn read(name: &str) -> String {
    let path = folder().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sides(scratch: &Path, ours: &Path, namespace: &str) -> [Side; 2] {
    let real = from_environment(BARE_VARIABLE);
    [("real", real.as_path()), ("ours", ours)].map(|(name, kubeconfig)| {
        let cache = scratch.join(name);
        std::fs::create_dir_all(&cache).unwrap();
        let side = Side {
            kubectl: real_tests::kubectl(),
            kubeconfig: kubeconfig.to_owned(),
            cache,
            namespace: namespace.to_owned(),
        };
        let created = side.run(&words(&format!("create namespace {namespace}")), None);
        assert!(created.status.success(), "{created:?}");
        side
    })
}

/// A temporary directory, deleted on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pintle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compare(line: &str, sides: &[Side; 2], report: &mut Vec<String>) {
    let only_code = line.starts_with('~');
    let (command, input) = match line.trim_start_matches('~').split_once(" < ") {
        Some((command, file)) => (command, Some(read(file))),
        None => (line.trim_start_matches('~'), None),
    };
    let namespace = &sides[0].namespace;
    let args = words(&command.replace("{ns}", namespace));
    let input = input.map(|input| input.replace("{ns}", namespace));
    let outputs = std::thread::scope(|scope| {
        let run = |side: &Side| side.run(&args, input.as_deref());
        let real = scope.spawn(move || run(&sides[0]));
        [run(&sides[1]), real.join().unwrap()]
    });
    let [ours, real] = outputs.map(|output| {
        let texts = [&output.stdout, &output.stderr].map(|text| masked(text, namespace));
        (output.status.code(), texts)
    });
    if real.0 != ours.0 || (!only_code && real.1 != ours.1) {
        let show =
            |(code, [out, err]): &(Option<i32>, [String; 2])| format!("{code:?}\n{out}\n{err}");
        report.push(format!(
            "kubectl {command}\n--- real {}\n--- ours {}",
            show(&real),
            show(&ours)
        ));
    }
}

/// Proves wire/formats, openapi/documents, apply/updates-take-over, delete/answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_output_is_the_same_on_both_servers() {
    let scratch = Scratch::new("kubectl");
    let server = ApiServer::builder()
        .pod_deletion(PodDeletion::Leave)
        .build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let kubeconfig = scratch.0.join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    let report = tokio::task::spawn_blocking(move || {
        let namespace = format!("kubectl-{:07}", std::process::id());
        let sides = sides(&scratch.0, &kubeconfig, &namespace);
        let mut report = Vec::new();
        let commands = read("commands.txt");
        let lines = commands.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            compare(line, &sides, &mut report);
        }
        report
    })
    .await
    .unwrap();
    bound.shutdown().await;
    assert!(
        report.is_empty(),
        "{} commands differ\n{}",
        report.len(),
        report.join("\n\n")
    );
}

/// Proves wire/tables, watch/complete-and-ordered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_get_watch_is_the_same_on_both_servers() {
    let scratch = Scratch::new("kubectl-watch");
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await.unwrap();
    let kubeconfig = scratch.0.join("kubeconfig");
    bound.write_kubeconfig(&kubeconfig).unwrap();
    tokio::task::spawn_blocking(move || {
        let namespace = format!("kubectl-watch-{:07}", std::process::id());
        let seen = sides(&scratch.0, &kubeconfig, &namespace).map(|side| {
            let run = |line: &str| {
                let output = side.run(&words(line), None);
                assert!(output.status.success(), "{line}: {output:?}");
            };
            run("create configmap a --from-literal=k=v");
            let mut watch = side
                .command(&words(
                    "get configmaps -l app!=nothing --watch --output-watch-events",
                ))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
            let mut next = || masked(lines.next().unwrap().unwrap().as_bytes(), &namespace);
            let mut seen = vec![next(), next()];
            run("create configmap b");
            run("label configmap a app=web");
            run("delete configmap b");
            seen.extend((0..3).map(|_| next()));
            watch.kill().unwrap();
            watch.wait().unwrap();
            seen
        });
        assert_eq!(seen[0], seen[1], "real, ours");
        assert_eq!(seen[1].len(), 5);
    })
    .await
    .unwrap();
    bound.shutdown().await;
}

#[test]
fn ages_of_all_formats_are_masked() {
    for age in ["0s", "119s", "2m", "2m1s", "3h5m", "4d", "2y30d"] {
        let row = format!("web    1/1   Running   {age}     <none>");
        assert_eq!(
            masked(row.as_bytes(), "ns-1"),
            "web  1/1  Running <age> <none>"
        );
        let last = format!("web   2     {age}");
        assert_eq!(masked(last.as_bytes(), "ns-1"), "web  2 <age>");
    }
    assert_eq!(masked(b"web   2   12", "ns-1"), "web  2  12");
}
