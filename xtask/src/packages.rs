//! Verifies the published crates as users get them: packed, compiled from the package alone, and
//! documented the way docs.rs does it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace::{self, cargo, run};

/// Packs every published crate, then checks each one and builds its docs from the package alone,
/// with the features and arguments of its `[package.metadata.docs.rs]` and without this workspace's
/// cargo configuration.
///
/// `cargo publish --dry-run` would compile every dependency again to build the packages.
/// Type-checking finds the same mistakes (a missing file, feature or version) and needs only
/// metadata, which `cargo doc` needs anyway.
pub(crate) fn verify() -> Result<()> {
    let packages = published()?;
    let packed = workspace::target().join("packages");
    let mut command = cargo();
    command.args(["package", "--no-verify", "--target-dir"]);
    command.arg(&packed);
    for package in &packages {
        command.args(["--package", &package.name]);
    }
    // CI has a clean checkout; developers usually do not.
    if std::env::var_os("CI").is_none() {
        command.arg("--allow-dirty");
    }
    run(&mut command)?;

    let outside = Folder::temporary()?;
    let rustdoc = nightly_rustdoc(&outside.0)?;
    for package in &packages {
        let name = format!("{}.crate", package.folder());
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(packed.join("package").join(name));
        run(tar.arg("-C").arg(&outside.0))?;
        detach(&outside.0.join(package.folder()).join("Cargo.toml"))?;
    }
    for package in &packages {
        for task in [&["check"][..], &["doc", "--lib", "--no-deps"]] {
            println!("{}: cargo {}", package.name, task[0]);
            let mut command = cargo();
            command
                .current_dir(outside.0.join(package.folder()))
                .args(task)
                .arg("--target-dir")
                .arg(&packed)
                .args(package.docs_rs().arguments())
                .env("RUSTDOCFLAGS", "-D warnings --cfg docsrs")
                .env("RUSTDOC", &rustdoc)
                // Set by this workspace's cargo configuration, which docs.rs does not see.
                .env_remove("K8S_OPENAPI_ENABLED_VERSION");
            for other in packages.iter().filter(|other| other.name != package.name) {
                let path = outside.0.join(other.folder());
                let path = path.to_str().context("the path is not UTF-8")?;
                let patch = format!("patch.crates-io.{}.path={path:?}", other.name);
                command.args(["--config", &patch]);
            }
            run(&mut command)?;
        }
    }
    Ok(())
}

/// Writes a rustdoc that accepts the unstable features behind `cfg(docsrs)`, as the nightly one of
/// docs.rs does. Only rustdoc may be unstable: for rustc, this would compile every dependency
/// again.
fn nightly_rustdoc(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("rustdoc");
    let script = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
    std::fs::write(&path, script).context("cannot write the rustdoc wrapper")?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, executable).context("cannot make rustdoc executable")?;
    Ok(path)
}

/// A package of the workspace.
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

/// The parts of `[package.metadata.docs.rs]` we use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
struct DocsRs {
    all_features: bool,
    features: Vec<String>,
    cargo_args: Vec<String>,
}

impl Package {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it is uploaded to the registry. `publish = false` shows as an empty list of
    /// registries.
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|to| !to.is_empty())
    }

    /// The folder inside the package.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }

    fn docs_rs(&self) -> DocsRs {
        let docs = self.metadata.as_ref().and_then(|m| m.docs.as_ref());
        docs.map(|docs| docs.rs.clone()).unwrap_or_default()
    }
}

impl DocsRs {
    /// Returns the arguments that docs.rs passes to cargo.
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

/// Returns the packages of the workspace that are uploaded to the registry.
pub(crate) fn published() -> Result<Vec<Package>> {
    let mut packages = members()?;
    packages.retain(Package::is_published);
    Ok(packages)
}

/// Returns every package of the workspace.
pub(crate) fn members() -> Result<Vec<Package>> {
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
    Ok(workspace.packages)
}

/// Makes a package its own workspace root, so that cargo does not search the folders above it.
fn detach(manifest: &Path) -> Result<()> {
    let mut text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    text.push_str("\n[workspace]\n");
    std::fs::write(manifest, text).with_context(|| format!("cannot write {}", manifest.display()))
}

/// A temporary folder outside the workspace, removed on drop.
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

#[cfg(test)]
mod tests;
