//! The Dockerfile against the workspace it builds.

use std::path::Path;

use sample_controller::manifests;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).expect(file)
}

/// The instructions of the Dockerfile: word, and what follows.
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

#[test]
fn the_image_is_built_from_what_is_there() {
    let instructions = instructions();
    let manifest = read("Cargo.toml");
    let toolchain = format!("rust:{}-alpine AS build", value(&manifest, "rust-version"));
    assert_eq!(instructions[0], ("FROM".into(), toolchain));
    let copies = instructions.iter().filter(|(word, _)| word == "COPY");
    let mut copied = Vec::new();
    for (_, what) in copies.filter(|(_, what)| !what.starts_with("--from")) {
        let mut words: Vec<&str> = what.split_whitespace().collect();
        words.pop();
        for source in words {
            assert!(root().join(source).exists(), "{source} is not there");
            copied.push(source);
        }
    }
    // Cargo wants every member of the workspace to be there, and the exact versions.
    let members = value(&manifest, "members");
    for member in members.trim_matches(['[', ']']).split(',') {
        let folder = member.trim().trim_matches('"').trim_end_matches("/*");
        assert!(copied.contains(&folder), "{folder} is not copied");
    }
    assert!(copied.contains(&"Cargo.toml") && copied.contains(&"Cargo.lock"));
    let runs = instructions.iter().filter(|(word, _)| word == "RUN");
    let runs: Vec<&str> = runs.map(|(_, what)| what.as_str()).collect();
    let built = runs
        .iter()
        .any(|run| run.contains("cargo build --release --locked"));
    assert!(built, "{runs:?}");
}

#[test]
fn the_image_runs_the_program_and_not_as_root() {
    let instructions = instructions();
    let last = instructions.iter().rposition(|(word, _)| word == "FROM");
    let stage = &instructions[last.unwrap()..];
    assert!(stage[0].1.contains("static") && stage[0].1.ends_with(":nonroot"));
    let the = |wanted: &str| {
        let found = stage.iter().find(|(word, _)| word == wanted);
        found.expect(wanted).1.as_str()
    };
    let (program, user) = (manifests::PROGRAM, manifests::USER);
    assert_eq!(
        the("COPY"),
        format!("--from=build /src/target/release{program} {program}")
    );
    assert_eq!(the("USER"), format!("{user}:{user}"));
    assert_eq!(the("EXPOSE"), manifests::PORT.to_string());
    assert_eq!(the("ENTRYPOINT"), format!("[{program:?}]"));
}
