//! Kubeconfig files on disk: locking, symbolic links and atomic replacement.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{KubeconfigError, merge::Unusable};

/// How long to wait for another program to release the lock. kubectl holds it for milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// The maximum number of symbolic links to follow, as in Linux.
const MAX_LINKS: usize = 40;

/// Replaces a file by renaming, so that no reader sees a partial file or one with wider
/// permissions.
///
/// Does not sync to disk, which would dominate the start-up time. The server that the file refers
/// to would not survive a crash of the machine either.
pub(in crate::serve) fn write(path: &Path, text: &str) -> io::Result<()> {
    let (temporary, _) = write_temporary(path, text)?;
    fs::rename(temporary, path)
}

/// Like [`write`], but syncs the new content before the rename, so that the file has either the old
/// or the new content after a power failure. Without the sync, some filesystems may leave it empty,
/// and it holds entries of the user's other clusters.
fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let (temporary, file) = write_temporary(path, text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)
}

fn write_temporary(path: &Path, text: &str) -> io::Result<(PathBuf, File)> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    Ok((temporary, file))
}

/// Resolves symbolic links, even to a file that does not exist yet. Otherwise the rename that
/// replaces the file would replace the link.
pub(super) fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path.pop();
        path.push(target);
    }
    path
}

/// Reads, changes, and writes or deletes a kubeconfig while holding its lock. `None` means no file;
/// an empty file is `null`.
pub(super) async fn edit<T>(
    path: &Path,
    change: impl FnOnce(&mut Option<Value>) -> Result<T, Unusable>,
) -> Result<T, KubeconfigError> {
    let failed = |source| KubeconfigError::Io {
        path: path.to_owned(),
        source,
    };
    let invalid = |reason: String| KubeconfigError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let _lock = Lock::acquire(path).await?;
    let text = match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(invalid("not UTF-8".to_owned()));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut config = match text.as_deref().map(str::trim) {
        None => None,
        Some("") => Some(Value::Null),
        Some(text) => {
            Some(serde_saphyr::from_str(text).map_err(|error| invalid(error.to_string()))?)
        }
    };
    let before = config.clone();
    let changed = change(&mut config).map_err(|problem| match problem {
        Unusable::Invalid(reason) => invalid(reason),
        Unusable::Taken { name, list } => KubeconfigError::Taken {
            path: path.to_owned(),
            name,
            list,
        },
        Unusable::InUse { url } => KubeconfigError::InUse {
            path: path.to_owned(),
            url,
        },
    })?;
    if config == before {
        return Ok(changed);
    }
    match config {
        None => fs::remove_file(path).map_err(failed)?,
        Some(config) => {
            let text =
                serde_saphyr::to_string(&config).map_err(|error| invalid(error.to_string()))?;
            write_durably(path, &text).map_err(failed)?;
        }
    }
    Ok(changed)
}

/// The lock file that kubectl, kind and client-go create next to a kubeconfig.
struct Lock(PathBuf);

impl Lock {
    async fn acquire(path: &Path) -> Result<Self, KubeconfigError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match Self::try_acquire(path) {
                Err(KubeconfigError::Locked { .. }) if Instant::now() < deadline => {
                    sleep(LOCK_RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    fn try_acquire(path: &Path) -> Result<Self, KubeconfigError> {
        let mut lock = path.as_os_str().to_owned();
        lock.push(".lock");
        let lock = PathBuf::from(lock);
        match OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(KubeconfigError::Locked {
                    path: path.to_owned(),
                    lock,
                })
            }
            Err(source) => Err(KubeconfigError::Io {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(%error, lock = %self.0.display(), "failed to remove the kubeconfig lock; remove it by hand");
        }
    }
}
