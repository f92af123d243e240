//! Fetches the corpus of real CRDs and their samples from the Go module proxy, into the user's
//! cache.
//!
//! `tests/real/corpus/modules.txt` pins modules by version and checksum. The parts that the tests
//! need are stored as JSON, one document per line, because reading tens of megabytes of YAML takes
//! a while.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::binaries::{ENVIRONMENT, fingerprint};
use super::run_dir::lock;
use crate::interrupt::Interrupt;

const MODULES: &str = include_str!("../../../tests/real/corpus/modules.txt");

/// Part of the cache's name; increase it when the format of the file or the selection changes.
const FORMAT: &str = "1";

/// The maximum number of samples of one kind.
const SAMPLES: usize = 4;

/// The largest file that is searched for samples, in bytes.
const MAX_SAMPLE_FILE: u64 = 64 << 10;

/// A line of `modules.txt`.
struct Module<'a> {
    path: &'a str,
    version: &'a str,
    sum: &'a str,
    crds: Vec<&'a str>,
}

/// What `go mod download -json` prints about a module.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    path: String,
    dir: Option<PathBuf>,
    sum: Option<String>,
    error: Option<String>,
}

/// Returns the file with the corpus, fetching it if necessary.
pub(crate) fn ensure(cache: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
    let name = format!("crds-{:016x}", fingerprint(&[FORMAT, MODULES]));
    let home = cache.join(name);
    let corpus = home.join("corpus.jsonl");
    if corpus.is_file() {
        return Ok(corpus);
    }
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let _lock = lock(&home.join("lock"))?;
    if !corpus.is_file() {
        eprintln!("fetching real CRDs from the Go module proxy (once per machine)");
        let unfinished = home.join("corpus.unfinished");
        fetch(&home, &unfinished, interrupt)?;
        std::fs::rename(&unfinished, &corpus).context("cannot move the corpus into place")?;
    }
    Ok(corpus)
}

fn modules() -> Result<Vec<Module<'static>>> {
    let lines = MODULES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [path, version, sum, ref crds @ ..] = words[..] else {
                bail!("modules.txt: not a module: {line}");
            };
            Ok(Module {
                path,
                version,
                sum,
                crds: crds.to_vec(),
            })
        })
        .collect()
}

fn fetch(home: &Path, to: &Path, interrupt: &Interrupt) -> Result<()> {
    let modules = modules()?;
    let dirs = download(home, &modules)?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(to)?);
    let mut names = BTreeSet::new();
    for module in &modules {
        if interrupt.is_raised() {
            bail!("interrupted");
        }
        let dir = &dirs[module.path];
        let (mut crds, mut samples) = (0, 0);
        let mut kinds: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (path, document) in definitions(dir, &module.crds)? {
            let spec = &document["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            kinds.insert((text(&spec["group"]), text(&spec["names"]["kind"])), 0);
            if names.insert(text(&document["metadata"]["name"])) {
                write(&mut out, module, &path, &document)?;
                crds += 1;
            }
        }
        for path in yaml_files(dir)? {
            for document in samples_of(&dir.join(&path), &mut kinds)? {
                write(&mut out, module, &path, &document)?;
                samples += 1;
            }
        }
        eprintln!("  {:<60} {crds:>4} CRDs {samples:>4} samples", module.path);
    }
    out.flush()?;
    Ok(())
}

fn write(out: &mut impl std::io::Write, module: &Module<'_>, path: &str, it: &Value) -> Result<()> {
    let line = json!({ "module": module.path, "path": path, "object": it });
    writeln!(out, "{line}").context("cannot write the corpus")
}

/// Downloads the modules and returns their directories by module path.
fn download(home: &Path, modules: &[Module<'_>]) -> Result<BTreeMap<String, PathBuf>> {
    let output = Command::new("go")
        .args(["mod", "download", "-json"])
        .args(
            modules
                .iter()
                .map(|it| format!("{}@{}", it.path, it.version)),
        )
        .envs(ENVIRONMENT)
        .current_dir(home)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run go: the corpus of CRDs comes from the Go module proxy")?;
    let mut dirs = BTreeMap::new();
    for found in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Download>() {
        let found = found.context("cannot read the output of go mod download")?;
        if let Some(error) = found.error {
            bail!("cannot download {}: {error}", found.path);
        }
        let pinned = modules.iter().find(|it| it.path == found.path);
        let pinned = pinned.with_context(|| format!("unexpected module {}", found.path))?;
        if found.sum.as_deref() != Some(pinned.sum) {
            bail!(
                "{}@{} has the checksum {}, but modules.txt pins {}",
                found.path,
                pinned.version,
                found.sum.unwrap_or_default(),
                pinned.sum
            );
        }
        let dir = found.dir.context("go mod download reported no directory")?;
        dirs.insert(found.path, dir);
    }
    if let Some(missing) = modules.iter().find(|it| !dirs.contains_key(it.path)) {
        bail!("go mod download did not report {}", missing.path);
    }
    Ok(dirs)
}

/// Returns the CRDs in the files and folders of a module, with their path.
fn definitions(dir: &Path, places: &[&str]) -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for path in yaml_files(dir)? {
        let inside = |place: &&str| **place == *"." || Path::new(&path).starts_with(place);
        if !places.iter().any(inside) {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(dir.join(&path)) else {
            continue;
        };
        if !text.contains("kind: CustomResourceDefinition") {
            continue;
        }
        // The file may also contain templates and patches.
        for document in documents(&text) {
            let versions = document["spec"]["versions"].as_array();
            let complete = versions.is_some_and(|all| {
                !all.is_empty() && all.iter().all(|it| it["schema"].is_object())
            });
            if complete
                && document["apiVersion"] == "apiextensions.k8s.io/v1"
                && document["kind"] == "CustomResourceDefinition"
            {
                found.push((path.clone(), document));
            }
        }
    }
    Ok(found)
}

/// Returns the objects in a file that are of the given kinds, and counts them.
fn samples_of(file: &Path, kinds: &mut BTreeMap<(String, String), usize>) -> Result<Vec<Value>> {
    if std::fs::metadata(file)?.len() > MAX_SAMPLE_FILE {
        return Ok(Vec::new());
    }
    let Ok(text) = std::fs::read_to_string(file) else {
        return Ok(Vec::new());
    };
    let open = kinds.iter().any(|((_, kind), count)| {
        *count < SAMPLES
            && text
                .lines()
                .any(|line| line.trim_end() == format!("kind: {kind}"))
    });
    if !open || text.contains("{{") {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for document in documents(&text) {
        let api_version = document["apiVersion"].as_str().unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = document["kind"].as_str().unwrap_or_default();
        let named = document["metadata"]["name"].is_string();
        if let Some(count) = kinds.get_mut(&(group.to_owned(), kind.to_owned()))
            && *count < SAMPLES
            && named
        {
            *count += 1;
            found.push(document);
        }
    }
    Ok(found)
}

/// Returns the documents of a YAML file, or nothing if it is not YAML.
fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_default()
}

/// Returns the sorted paths of all YAML files in a folder.
fn yaml_files(dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|it| it == "yaml" || it == "yml")
            {
                let relative = path.strip_prefix(dir)?.to_string_lossy().into_owned();
                found.push(relative);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
