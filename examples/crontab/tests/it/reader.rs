//! A simulated reader of `docs/your-own-crd.md` who types every command in a shell.
//!
//! Two programs are replaced. `git clone` creates a symbolic link to this workspace, because
//! cloning needs a network. `cargo run` executes the program that is already built from the same
//! files, which `document.rs` verifies. `cargo test` only checks that `tests/controller.rs` exists,
//! because that test is part of this test run.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// How long a program may take to print a line, on a loaded machine.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Polls until `condition` is true, for at most a minute.
#[allow(
    clippy::disallowed_methods,
    reason = "waits for other processes, without a runtime"
)]
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("timed out waiting for {what}");
}

/// An action of the reader.
#[derive(Debug)]
pub(crate) enum Step {
    /// Run a command.
    Type(String),
    /// Write a file, or compare it if a command wrote it.
    File { name: String, text: String },
    /// Run a command and compare its output; `rejected` if it fails.
    See {
        line: String,
        text: String,
        rejected: bool,
    },
}

/// Parses the document: each code block is a step, described by the line before it.
pub(crate) fn steps() -> Vec<Step> {
    let document = root().join("docs/your-own-crd.md");
    let document = fs::read_to_string(document).expect("the document");
    let (mut steps, mut before) = (Vec::new(), "");
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if !line.is_empty() {
                before = line;
            }
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let text = block.join("\n") + "\n";
        // Every second piece is in backquotes. A file name comes last.
        let mut quoted = before.split('`').skip(1).step_by(2).map(str::to_owned);
        match language {
            "sh" => steps.extend(block.into_iter().map(|line| Step::Type(line.to_owned()))),
            "text" => steps.push(Step::See {
                line: quoted
                    .find(|words| words.starts_with("kubectl"))
                    .expect("a command"),
                text,
                rejected: quoted.any(|word| word == "rejected"),
            }),
            _ => steps.push(Step::File {
                name: quoted.last().expect("a name"),
                text,
            }),
        }
    }
    steps
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace")
}

/// A temporary working folder with replacements for cargo and git.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) folder: PathBuf,
    _temporary: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let temporary = tempfile::tempdir().expect("a folder");
        let desk = Self {
            folder: temporary.path().to_owned(),
            _temporary: temporary,
        };
        fs::create_dir(desk.folder.join("bin")).expect("a folder");
        // Keeps cargo from searching the folders above for a workspace. The clone has its own.
        let workspace = "[workspace]\nresolver = \"3\"\nexclude = [\"pintle\"]\n";
        fs::write(desk.folder.join("Cargo.toml"), workspace).expect("written");
        let root = root();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
        let crontab = env!("CARGO_BIN_EXE_crontab");
        // Built by `cargo xtask test-real`.
        let cluster = Path::new(crontab).with_file_name("pintle-cluster");
        desk.program(
            "cargo",
            &format!(
                r#"case "$*" in
                "new "*|"metadata "*) exec '{cargo}' "$@" ;;
                test) exec test -f tests/controller.rs ;;
                run) exec '{crontab}' ;;
                "run -- "*) shift 2; exec '{crontab}' "$@" ;;
                "run --bin pintle-cluster -- "*) shift 4; exec '{}' "$@" ;;
                *) echo "not supported by the test: cargo $*" >&2; exit 1 ;;
                esac"#,
                cluster.display()
            ),
        );
        desk.program(
            "git",
            &format!(
                r#"[ "$1" = clone ] || exit 1
                exec ln -s '{}' "$(basename "$2")""#,
                root.display()
            ),
        );
        desk
    }

    /// Adds a program that precedes others in the `PATH`.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.folder.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// Replaces `/tmp` with the working folder.
    pub(crate) fn localize(&self, line: &str) -> String {
        line.replace("/tmp/", &format!("{}/", self.folder.display()))
    }

    fn shell(&self, folder: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.join("bin").display());
        let mut shell = Command::new("sh");
        shell
            .current_dir(self.folder.join(folder))
            .env("PATH", path)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST");
        shell
    }

    /// Opens a terminal in `folder`.
    pub(crate) fn terminal(&self, folder: &str) -> Terminal {
        let mut shell = self.shell(folder);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut input = shell.stdin.take().expect("a pipe");
        writeln!(input, "exec 2>&1").expect("typed");
        let output = Output::of(&mut shell);
        Terminal {
            shell,
            input,
            output,
        }
    }

    /// Starts a program in `folder` and waits until it prints a line that starts with `ready`.
    pub(crate) fn start(&self, folder: &str, line: &str, kubeconfig: &str, ready: &str) -> Running {
        let mut shell = self.shell(folder);
        shell.arg("-c").arg(format!("exec {line}"));
        shell.env("KUBECONFIG", kubeconfig).stdout(Stdio::piped());
        let mut program = shell.spawn().expect("a program");
        let output = Output::of(&mut program);
        let running = Running(program);
        let is_ready = (0..1000).any(|_| output.next().starts_with(ready));
        assert!(is_ready, "{line} does not print {ready}");
        running
    }
}

/// The output of a program, read in the background so that it never blocks.
#[derive(Debug)]
struct Output(Receiver<String>);

impl Output {
    fn of(program: &mut Child) -> Self {
        let lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self(receiver)
    }

    fn next(&self) -> String {
        self.0.recv_timeout(TIMEOUT).expect("another line")
    }
}

/// An interactive shell.
#[derive(Debug)]
pub(crate) struct Terminal {
    shell: Child,
    input: ChildStdin,
    output: Output,
}

/// Marks the end of the output of a command.
const END: &str = "-- exit code ";

impl Terminal {
    /// Runs a command. Returns its output and whether it succeeded.
    pub(crate) fn try_line(&mut self, line: &str) -> (String, bool) {
        writeln!(self.input, "{line}\necho \"{END}$?\"").expect("typed");
        let mut printed = String::new();
        loop {
            let next = self.output.next();
            if let Some(code) = next.strip_prefix(END) {
                return (printed, code == "0");
            }
            printed += next.trim_end();
            printed.push('\n');
        }
    }

    /// Runs a command that must succeed. Returns its output.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let (printed, success) = self.try_line(line);
        assert!(success, "{line}: {printed}");
        printed
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Sends SIGINT and waits for a successful exit.
    pub(crate) fn interrupt(mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -s INT $0", &pid])
            .status();
        assert!(sent.expect("a shell").success());
        let mut ended = None;
        wait_for("the exit", || {
            ended = self.0.try_wait().expect("a status");
            ended.is_some()
        });
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
