//! A reader of `docs/your-own-crd.md`, who types what it says, in its order.
//!
//! Two things a reader does are not done here. `git clone` needs a network, and what it would bring
//! is the workspace of this package: a link stands for it. What `cargo` would build anew, for
//! minutes, is built already, from the same files ([`document.rs`](../document.rs) compares them):
//! `cargo run` runs that program, and `cargo test` leaves `tests/controller.rs` to the `cargo test`
//! that runs this. `cargo new` is cargo's own.

#![allow(dead_code, reason = "each test needs its part")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

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

/// How long a program may take for one line. Generous: machines are busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// Looks again and again until it is so. Patient: machines are busy.
#[allow(
    clippy::disallowed_methods,
    reason = "other processes take real time, and a reader is no runtime"
)]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("in vain waited for {what}");
}

/// One thing that the document has its reader do.
#[derive(Debug)]
pub(crate) enum Step {
    /// Type a line.
    Type(String),
    /// Write a file, or compare it if it was printed before.
    File { name: String, text: String },
    /// Type a line, and see this; `refused` if it fails.
    See {
        line: String,
        text: String,
        refused: bool,
    },
}

/// Every step of the document: its code blocks, with what the line before says of each.
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
        // `quoted` words are every second piece; a file's name stands last.
        let mut quoted = before.split('`').skip(1).step_by(2).map(str::to_owned);
        match language {
            "sh" => steps.extend(block.into_iter().map(|line| Step::Type(line.to_owned()))),
            "text" => steps.push(Step::See {
                line: quoted
                    .find(|words| words.starts_with("kubectl"))
                    .expect("a command"),
                text,
                refused: quoted.any(|word| word == "refused"),
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

/// A folder to work in, with the programs that stand for cargo's and git's work. It goes with this.
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
        let root = root();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
        let crontab = env!("CARGO_BIN_EXE_crontab");
        // Who runs all of `cargo xtask test-real` has built it.
        let cluster = Path::new(crontab).with_file_name("pintle-cluster");
        desk.program(
            "cargo",
            &format!(
                r#"case "$*" in
                "new "*|"metadata "*) exec '{cargo}' "$@" ;;
                test) exec test -f tests/controller.rs ;;
                run) exec '{crontab}' ;;
                "run -- "*) shift 2; exec '{crontab}' "$@" ;;
                "run -p pintle-cluster -- "*) shift 4; exec '{}' "$@" ;;
                *) echo "the test does not know: cargo $*" >&2; exit 1 ;;
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

    /// A program that the reader's shell finds before others.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let path = self.folder.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    }

    /// `line`, with what it keeps in the folder that all share kept in the reader's own.
    pub(crate) fn own(&self, line: &str) -> String {
        line.replace("/tmp/", &format!("{}/", self.folder.display()))
    }

    fn shell(&self, place: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.folder.join("bin").display());
        let mut shell = Command::new("sh");
        shell
            .current_dir(self.folder.join(place))
            .env("PATH", path)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST");
        shell
    }

    /// A terminal at `place`.
    pub(crate) fn terminal(&self, place: &str) -> Terminal {
        let mut shell = self.shell(place);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut keys = shell.stdin.take().expect("a pipe");
        writeln!(keys, "exec 2>&1").expect("typed");
        let screen = Screen::of(&mut shell);
        Terminal {
            shell,
            keys,
            screen,
        }
    }

    /// A program that runs until Ctrl-C, at `place`; returns when it says `ready`.
    pub(crate) fn start(&self, place: &str, line: &str, kubeconfig: &str, ready: &str) -> Running {
        let mut shell = self.shell(place);
        shell.arg("-c").arg(format!("exec {line}"));
        shell.env("KUBECONFIG", kubeconfig).stdout(Stdio::piped());
        let mut program = shell.spawn().expect("a program");
        let screen = Screen::of(&mut program);
        let running = Running(program);
        let said = (0..1000).any(|_| screen.next().starts_with(ready));
        assert!(said, "{line} does not say {ready}");
        running
    }
}

/// What a program prints, line by line. It is read also when nobody looks.
#[derive(Debug)]
struct Screen(Receiver<String>);

impl Screen {
    fn of(program: &mut Child) -> Self {
        let lines = BufReader::new(program.stdout.take().expect("a pipe")).lines();
        let (told, screen) = channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = told.send(line);
            }
        });
        Self(screen)
    }

    fn next(&self) -> String {
        self.0.recv_timeout(PATIENCE).expect("one more line")
    }
}

/// A shell that is typed into.
#[derive(Debug)]
pub(crate) struct Terminal {
    shell: Child,
    keys: ChildStdin,
    screen: Screen,
}

/// Comes after everything that a line printed.
const END: &str = "-- and that was ";

impl Terminal {
    /// What `line` prints, and whether it succeeds.
    pub(crate) fn try_line(&mut self, line: &str) -> (String, bool) {
        writeln!(self.keys, "{line}\necho \"{END}$?\"").expect("typed");
        let mut printed = String::new();
        loop {
            let next = self.screen.next();
            if let Some(code) = next.strip_prefix(END) {
                return (printed, code == "0");
            }
            printed += next.trim_end();
            printed.push('\n');
        }
    }

    /// What `line`, which succeeds, prints.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let (printed, fine) = self.try_line(line);
        assert!(fine, "{line}: {printed}");
        printed
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A program that runs until Ctrl-C. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// Ctrl-C, after which it ends in order.
    pub(crate) fn interrupt(mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("sh")
            .args(["-c", "kill -s INT $0", &pid])
            .status();
        assert!(sent.expect("a shell").success());
        let mut ended = None;
        wait_for("its end", || {
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
