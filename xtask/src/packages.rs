//! The crates we publish, as their users get them: packed, compiled from the package alone, and
//! documented the way docs.rs does it.

use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{self, cargo, run};

/// Packs every published crate and compiles each from its package, without uploading anything.
///
/// A dry run serves the packages from a temporary registry, but cargo identifies their contents by
/// name and version, which do not change between runs. It would reuse what it unpacked and compiled
/// last time, so the packages get a target directory of their own and our crates are removed from
/// it first.
pub(crate) fn verify() -> Result<()> {
    let target = target();
    remove_unpacked()?;
    remove_ours(&target.join("debug/.fingerprint"))?;
    let mut command = cargo();
    command.args(["publish", "--workspace", "--dry-run", "--target-dir"]);
    command.arg(target);
    // CI works on a clean checkout; a developer is usually in the middle of something.
    if std::env::var_os("CI").is_none() {
        command.arg("--allow-dirty");
    }
    run(&mut command)
}

/// Builds the docs of every package [`verify`] left behind, as docs.rs would: from the package
/// alone, with the features and arguments of its `[package.metadata.docs.rs]`, and without this
/// workspace's cargo configuration.
pub(crate) fn docs() -> Result<()> {
    let packages = published()?;
    let outside = Folder::temporary()?;
    for package in &packages {
        let unpacked = target().join("package").join(package.folder());
        copy(&unpacked, &outside.0.join(&package.name))
            .with_context(|| format!("{} was not packed", package.name))?;
    }
    for package in &packages {
        println!("docs.rs: {}", package.name);
        let mut command = cargo();
        command
            .current_dir(outside.0.join(&package.name))
            .args(["doc", "--lib", "--no-deps", "--target-dir"])
            .arg(workspace::target())
            .args(package.docs_rs().arguments())
            .env("RUSTDOCFLAGS", "-D warnings")
            // Set by this workspace's cargo configuration, which docs.rs does not see.
            .env_remove("K8S_OPENAPI_ENABLED_VERSION");
        for other in packages.iter().filter(|other| other.name != package.name) {
            let path = outside.0.join(&other.name);
            let path = path.to_str().context("the path is not UTF-8")?;
            let patch = format!("patch.crates-io.{}.path={path:?}", other.name);
            command.args(["--config", &patch]);
        }
        run(&mut command)?;
    }
    Ok(())
}

fn target() -> PathBuf {
    workspace::target().join("packages")
}

/// A crate that goes to the registry.
#[derive(Deserialize)]
pub(crate) struct Package {
    name: String,
    version: String,
    publish: Option<Vec<String>>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    docs: Option<Docs>,
}

#[derive(Deserialize)]
struct Docs {
    rs: DocsRs,
}

/// `[package.metadata.docs.rs]`, as far as we use it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct DocsRs {
    all_features: bool,
    features: Vec<String>,
    cargo_args: Vec<String>,
}

impl Package {
    /// The folder cargo unpacks it to.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    fn docs_rs(&self) -> DocsRs {
        let docs = self.metadata.as_ref().and_then(|m| m.docs.as_ref());
        docs.map(|docs| docs.rs.clone()).unwrap_or_default()
    }
}

impl DocsRs {
    /// What docs.rs passes to cargo.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.all_features {
            arguments.push("--all-features".into());
        }
        if !self.features.is_empty() {
            arguments.extend(["--features".into(), self.features.join(",")]);
        }
        arguments.extend(self.cargo_args.iter().cloned());
        arguments
    }
}

/// Every crate of the workspace that goes to the registry.
pub(crate) fn published() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Workspace {
        packages: Vec<Package>,
    }
    let mut command = cargo();
    let output = command
        .args(["metadata", "--no-deps", "--format-version=1"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let workspace: Workspace =
        serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")?;
    // `publish = false` shows as an empty list of registries.
    let published = workspace
        .packages
        .into_iter()
        .filter(|package| package.publish.as_ref().is_none_or(|to| !to.is_empty()));
    Ok(published.collect())
}

/// A temporary folder outside the workspace, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn temporary() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pintle-packages-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let entries = std::fs::read_dir(from);
    for entry in entries.with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Removes the sources that cargo unpacked from the registries of earlier dry runs. The folders of
/// such registries have no host in their name.
fn remove_unpacked() -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let unpacked = home.context("no home directory")?.join("registry/src");
    for registry in entries(&unpacked)? {
        if registry.file_name().as_encoded_bytes().starts_with(b"-") {
            remove_ours(&registry.path())?;
        }
    }
    Ok(())
}

/// Removes the folders in `folder` that are named after a crate of ours.
fn remove_ours(folder: &Path) -> Result<()> {
    for package in entries(folder)? {
        let name = package.file_name();
        if name.as_encoded_bytes().starts_with(b"pintle") {
            std::fs::remove_dir_all(package.path())?;
        }
    }
    Ok(())
}

/// The entries of `folder`; none if it does not exist.
fn entries(folder: &Path) -> Result<Vec<DirEntry>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_rs_metadata_becomes_cargo_arguments() {
        let docs: DocsRs = serde_json::from_value(serde_json::json!({
            "all-features": true,
            "features": ["a", "b/c"],
            "cargo-args": ["--config", "x='1'"],
        }))
        .unwrap();
        assert_eq!(
            docs.arguments(),
            ["--all-features", "--features", "a,b/c", "--config", "x='1'"]
        );
    }

    #[test]
    fn examples_and_tests_are_not_published() {
        let published = published().unwrap();
        let mut names: Vec<&str> = published.iter().map(|p| p.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "pintle",
                "pintle-apiserver",
                "pintle-clock",
                "pintle-cluster"
            ]
        );
    }
}
