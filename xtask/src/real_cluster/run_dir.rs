//! The directory of one control plane: state, credentials, data and logs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::process::Process;

/// The processes `up` started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) api_server_port: u16,
    /// The folder of the binaries, including kubectl.
    pub(crate) bin: PathBuf,
    /// The replica elected by client-go.
    #[serde(default)]
    pub(crate) elector: PathBuf,
    /// In start order.
    pub(crate) processes: Vec<Process>,
}

/// A directory only its owner can read, with a lock that admits one task at a time.
pub(crate) struct RunDir {
    path: PathBuf,
    /// Held while this value lives; the operating system releases it however the process ends.
    _lock: Option<File>,
}

impl RunDir {
    /// Creates the directory if it is missing, and waits for a task that holds it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        let lock = lock(&path.join("lock"))?;
        Ok(Self {
            path,
            _lock: Some(lock),
        })
    }

    /// Opens the directory without its lock. The tests run by `cargo xtask test-real` operate on
    /// the control plane while that task holds the lock.
    pub(crate) fn beside(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path)?;
        Ok(Self { path, _lock: None })
    }

    /// Returns the directories below `parent` with this name prefix that no task holds.
    pub(crate) fn idle(parent: &Path, prefix: &str) -> Result<Vec<Self>> {
        let Ok(entries) = std::fs::read_dir(parent) else {
            return Ok(Vec::new());
        };
        let mut idle = Vec::new();
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with(prefix)
                && let Ok(file) = File::open(path.join("lock"))
                && file.try_lock().is_ok()
            {
                idle.push(Self {
                    path,
                    _lock: Some(file),
                });
            }
        }
        Ok(idle)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("etcd")
    }

    /// Keys, certificates and tokens.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.path.join("credentials")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.credentials().join("audit-policy.yaml")
    }

    fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    pub(crate) fn state(&self) -> Result<Option<State>> {
        let file = self.state_file();
        match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is corrupt", file.display()))
                .map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Replaces the state atomically: a killed task leaves the previous state.
    pub(crate) fn write_state(&self, state: &State) -> Result<()> {
        let next = self.path.join("state.json.next");
        write_private(&next, &serde_json::to_string_pretty(state)?)?;
        std::fs::rename(&next, self.state_file()).context("cannot write the state file")
    }

    /// Removes the files of a stopped control plane. Logs stay until the next start.
    pub(crate) fn clear(&self) -> Result<()> {
        remove(&self.data())?;
        remove(&self.credentials())?;
        remove(&self.kubeconfig())?;
        remove(&self.state_file())
    }

    /// Removes the whole directory.
    pub(crate) fn remove(&self) -> Result<()> {
        remove(&self.path)
    }

    /// Empties the directory for a new control plane.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.clear()?;
        remove(&self.logs())?;
        for dir in [self.logs(), self.credentials()] {
            std::fs::DirBuilder::new()
                .mode(0o700)
                .create(&dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(())
    }
}

/// Locks the file at `path`, waiting for another holder.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another task that holds {}", path.display());
        file.lock()
            .with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    remove(path)?;
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file or folder, if it exists.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let outcome = if path.is_dir() {
        std::fs::remove_dir_all(path)
    } else {
        std::fs::remove_file(path)
    };
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            bail!("cannot remove {}: {error}", path.display())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
