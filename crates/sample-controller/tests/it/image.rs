//! Checks the Dockerfile against the workspace it builds.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use sample_controller::manifests;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).expect(file)
}

/// Parses the Dockerfile into instructions and their arguments.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (word, rest) = line.split_once(' ').expect("an instruction");
        (word.to_owned(), rest.trim().to_owned())
    };
    lines.map(split).collect()
}

fn value<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect(name)
        .trim_start_matches([' ', '='])
        .trim_matches('"')
}

/// Returns the files and directories copied from the repository.
fn copied(instructions: &[(String, String)]) -> Vec<&str> {
    let copies = instructions.iter().filter(|(word, _)| word == "COPY");
    let copies = copies.filter(|(_, what)| !what.starts_with("--from"));
    let sources = copies.flat_map(|(_, what)| {
        let mut words: Vec<&str> = what.split_whitespace().collect();
        words.pop();
        words
    });
    sources.collect()
}

#[test]
fn dockerfile_copies_every_workspace_member() {
    let instructions = instructions();
    let manifest = read("Cargo.toml");
    let toolchain = format!("rust:{}-alpine AS build", value(&manifest, "rust-version"));
    assert_eq!(instructions[0], ("FROM".into(), toolchain));
    let copied = copied(&instructions);
    let ignored = read(".dockerignore");
    for source in &copied {
        assert!(root().join(source).exists(), "{source} does not exist");
        let is_included = ignored.lines().any(|line| line == format!("!{source}"));
        assert!(is_included, "{source} is excluded by .dockerignore");
    }
    // Cargo needs every workspace member and the lock file.
    let members = value(&manifest, "members");
    for member in members.trim_matches(['[', ']']).split(',') {
        let folder = member.trim().trim_matches('"').trim_end_matches("/*");
        let is_copied = copied.iter().any(|it| Path::new(folder).starts_with(it));
        assert!(is_copied, "{folder} is not copied");
    }
    assert!(copied.contains(&"Cargo.toml") && copied.contains(&"Cargo.lock"));
}

/// Building the image requires a container engine and a network. This checks instead that cargo can
/// resolve the build from the copied files alone.
#[test]
fn cargo_resolves_the_build_from_the_copied_files() {
    let instructions = instructions();
    let folder = tempfile::tempdir().unwrap();
    for source in copied(&instructions) {
        symlink(root().join(source), folder.path().join(source)).unwrap();
    }
    let mut builds = instructions
        .iter()
        .filter_map(|(_, what)| what.strip_prefix("cargo build --release --locked "));
    let what = builds.next().expect("a locked release build");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let planned = Command::new(cargo)
        .current_dir(folder.path())
        .args(["tree", "--offline", "--locked", "--edges=normal,build"])
        .args(what.split_whitespace())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&planned.stderr);
    assert!(planned.status.success(), "{errors}");
    let plan = String::from_utf8_lossy(&planned.stdout);
    assert!(plan.starts_with("sample-controller v"), "{plan}");
    // The Alpine image of Rust has only a C compiler, for ring. The embedded cluster is left out.
    for left_out in [
        "openssl-sys",
        "aws-lc-sys",
        "native-tls",
        "pintle-apiserver",
    ] {
        assert!(!plan.contains(left_out), "{left_out}");
    }
}

#[test]
fn image_runs_the_program_as_nonroot() {
    let instructions = instructions();
    let last = instructions.iter().rposition(|(word, _)| word == "FROM");
    let stage = &instructions[last.unwrap()..];
    assert!(stage[0].1.contains("static") && stage[0].1.ends_with(":nonroot"));
    let argument = |instruction: &str| {
        let found = stage.iter().find(|(word, _)| word == instruction);
        found.expect(instruction).1.as_str()
    };
    let (program, user) = (manifests::PROGRAM, manifests::USER);
    assert_eq!(
        argument("COPY"),
        format!("--from=build /src/target/release{program} {program}")
    );
    assert_eq!(argument("USER"), format!("{user}:{user}"));
    assert_eq!(argument("EXPOSE"), manifests::PORT.to_string());
    assert_eq!(argument("ENTRYPOINT"), format!("[{program:?}]"));
}
