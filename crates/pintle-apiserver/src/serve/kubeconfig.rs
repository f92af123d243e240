//! The file with which kubectl and other clients find the server.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};

pub(super) fn base64(pem: &str) -> String {
    STANDARD.encode(pem)
}

pub(super) fn text(url: &str, authority_pem: &str, token: &str) -> String {
    let authority = base64(authority_pem);
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: pintle\n\
         \x20 cluster:\n\
         \x20   server: {url}\n\
         \x20   certificate-authority-data: {authority}\n\
         users:\n\
         - name: pintle-admin\n\
         \x20 user:\n\
         \x20   token: {token}\n\
         contexts:\n\
         - name: pintle\n\
         \x20 context:\n\
         \x20   cluster: pintle\n\
         \x20   user: pintle-admin\n\
         current-context: pintle\n"
    )
}

/// A kubeconfig whose user shows a certificate.
pub(super) fn user_text(
    url: &str,
    authority_pem: &str,
    user: &str,
    certificate_pem: &str,
    key_pem: &str,
) -> String {
    let [authority, certificate, key] = [authority_pem, certificate_pem, key_pem].map(base64);
    // As JSON, which is YAML, so that any name is one.
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "pintle",
            "cluster": {"server": url, "certificate-authority-data": authority}}],
        "users": [{"name": user,
            "user": {"client-certificate-data": certificate, "client-key-data": key}}],
        "contexts": [{"name": "pintle", "context": {"cluster": "pintle", "user": user}}],
        "current-context": "pintle",
    })
    .to_string()
}

/// Replaces the file by renaming, so that no reader sees half of it or a file open to others.
///
/// Does not sync to disk, which would take longer than the rest of a start: the server that the file
/// leads to would not survive a crash of the machine either.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let (beside, _) = write_beside(path, text)?;
    fs::rename(beside, path)
}

/// Like [`write`], but syncs the new content before the rename. After a power cut the file holds the
/// old content or the new one. Without the sync, some filesystems may leave it empty, and it holds
/// entries of the user's other clusters.
pub(super) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let (beside, file) = write_beside(path, text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(beside, path)
}

fn write_beside(path: &Path, text: &str) -> io::Result<(PathBuf, File)> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match fs::remove_file(&beside) {
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
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    Ok((beside, file))
}
