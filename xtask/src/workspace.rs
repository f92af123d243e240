//! The workspace's root and files, and child processes whose exit code becomes ours.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// The root of the workspace this binary was built from.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Returns a command for the cargo that runs this task.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    as_from_a_shell(&mut command);
    command
}

/// Removes the variables that `cargo run` sets for the package it runs.
///
/// Build scripts that read them, such as ring's, would rerun and recompile everything above them
/// each time a cargo started here follows one started from a shell.
pub(crate) fn as_from_a_shell(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// Runs `command` with inherited output; a failed exit status is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {}", words(command)))?;
    if status.success() {
        Ok(())
    } else {
        Err(ChildFailed::new(words(command), status).into())
    }
}

/// Formats the command as typed in a shell.
fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args());
    let words = words.map(std::ffi::OsStr::to_string_lossy);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns cargo's target directory.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.map_or_else(|| root().join("target"), |target| root().join(target))
}

/// Returns `path` relative to the root.
pub(crate) fn relative<'a>(root: &Path, path: &'a Path) -> &'a Path {
    path.strip_prefix(root).unwrap_or(path)
}

/// Returns every file below `root` with one of `extensions`, sorted. Skips build output,
/// `node_modules` and hidden directories.
pub(crate) fn files(root: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read the directory {}", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|e| extensions.iter().any(|x| e == *x))
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A child process failed; `cargo xtask` exits with the child's exit code.
#[derive(Debug)]
pub(crate) struct ChildFailed {
    pub(crate) what: String,
    pub(crate) code: u8,
}

impl ChildFailed {
    pub(crate) fn new(what: impl Into<String>, status: ExitStatus) -> Self {
        let code = status
            .code()
            .and_then(|c| u8::try_from(c).ok())
            .unwrap_or(1);
        Self {
            what: what.into(),
            code,
        }
    }

    /// Uses the exit code a shell reports after Ctrl-C.
    pub(crate) fn interrupted(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            code: 130,
        }
    }
}

impl std::fmt::Display for ChildFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (exit code {})", self.what, self.code)
    }
}

impl std::error::Error for ChildFailed {}

/// Returns the exit code of `cargo xtask` after `error`.
pub(crate) fn exit_code_of(error: &anyhow::Error) -> ExitCode {
    error
        .downcast_ref::<ChildFailed>()
        .map_or(ExitCode::FAILURE, |child| child.code.into())
}

#[cfg(test)]
mod tests;
