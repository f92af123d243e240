//! `sample-controller top`: queues and keys of a running operator, as its inspector shows them.

use std::{env, fs, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use pintle::inspect::{KeyState, Now, Verdict};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    say,
    terminal::{Screen, paint, printable},
};

/// How often the screen is drawn.
const PERIOD: Duration = Duration::from_secs(1);
/// How long to wait for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a response, in bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// Shows the operator whose inspector has this URL, or else the one this user started last. On a
/// terminal it refreshes until Ctrl-C.
pub(crate) async fn run(url: Option<String>) -> anyhow::Result<()> {
    let url = match url {
        Some(url) => url,
        None => last_url()?,
    };
    if !Screen::is_available() {
        let now = fetch(&url).await?;
        for line in frame(&now, None) {
            say(&line);
        }
        return Ok(());
    }
    let mut screen = Screen::default();
    let mut before = None;
    loop {
        let now = fetch(&url).await?;
        screen.draw(&frame(&now, before.as_ref()));
        before = Some(now);
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => return Ok(()),
            () = sleep(PERIOD) => {}
        }
    }
}

/// Remembers the URL of this program's inspector for `top`, in a file that only this user can read.
/// The file is deleted when the result is dropped, unless another program has written its URL
/// since.
pub(crate) struct LastUrl {
    path: Option<PathBuf>,
    url: String,
}

impl LastUrl {
    pub(crate) fn write(url: &str) -> Self {
        Self::write_to(path(), url)
    }

    fn write_to(path: Option<PathBuf>, url: &str) -> Self {
        Self {
            path: path.and_then(|path| Self::try_write(path, url)),
            url: url.to_owned(),
        }
    }

    fn try_write(path: PathBuf, url: &str) -> Option<PathBuf> {
        let folder = path.parent()?;
        fs::create_dir_all(folder).ok()?;
        // Renamed into place, so that an existing file or link is replaced and not followed.
        let mut file = tempfile_in(folder)?;
        std::io::Write::write_all(&mut file.1, url.as_bytes()).ok()?;
        fs::rename(&file.0, &path).ok()?;
        Some(path)
    }
}

/// Creates a file that only this user can read.
fn tempfile_in(folder: &std::path::Path) -> Option<(PathBuf, fs::File)> {
    let path = folder.join(format!("inspector-url.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path).ok()?;
    Some((path, file))
}

impl Drop for LastUrl {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && fs::read_to_string(path).is_ok_and(|url| url == self.url)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns where the URL is remembered: in the user's runtime or cache directory.
fn path() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).filter(|path| !path.is_empty());
    let folder = folder("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")))?;
    Some(folder.join("pintle").join("inspector-url"))
}

fn last_url() -> anyhow::Result<String> {
    let url = path().and_then(|path| fs::read_to_string(path).ok());
    url.context("no running inspector found: start `sample-controller --inspect 127.0.0.1:0`, or pass the URL it prints")
}

/// Fetches the state of the operator.
async fn fetch(url: &str) -> anyhow::Result<Now> {
    let answer = timeout(TIMEOUT, get(url)).await;
    answer.unwrap_or_else(|_| bail!("no response from {} within {TIMEOUT:?}", without_token(url)))
}

async fn get(url: &str) -> anyhow::Result<Now> {
    let url: http::Uri = url.trim().parse().context("invalid URL")?;
    let authority = url.authority().context("the URL has no host")?.clone();
    if url.scheme_str() != Some("http") {
        bail!("invalid URL: the inspector is served over http");
    }
    let host = authority.as_str();
    let mut stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80)))
        .await
        .with_context(|| format!("cannot connect to {host}"))?;
    let query = url
        .query()
        .map(|query| format!("&{query}"))
        .unwrap_or_default();
    let request = format!(
        "GET /api/v1/now?limit=200{query} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("incomplete response")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        let (status, body) = (printable(status), printable(body.trim()));
        bail!("{host} returned {status}: {body}");
    }
    // The error may quote the response.
    let now = serde_json::from_str(body).map_err(|error| anyhow!(printable(&error.to_string())));
    now.with_context(|| format!("{host} is not an inspector"))
}

fn without_token(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

/// Draws one frame. Rates are computed from the previous response.
fn frame(now: &Now, before: Option<&Now>) -> Vec<String> {
    let mut lines = vec![
        format!("{}  {} keys", printable(&now.program), now.matching),
        String::new(),
    ];
    lines.push(format!(
        "{:<24} {:>7} {:>8} {:>8} {:>8} {:>9} {:>8}",
        "CONTROLLER", "READY", "WAITING", "WORKING", "WORKERS", "RUNS/S", "FAILED"
    ));
    for controller in &now.controllers {
        let queue = &controller.queue;
        let was = before.and_then(|before| {
            let mut all = before.controllers.iter();
            let same = all.find(|one| one.name == controller.name)?;
            Some((same.totals.reconciles, now.now - before.now))
        });
        let rate = was.map_or_else(
            || "-".to_owned(),
            |(reconciles, seconds)| {
                let runs = controller.totals.reconciles.saturating_sub(reconciles);
                let runs = u32::try_from(runs).unwrap_or(u32::MAX);
                format!("{:.1}", f64::from(runs) / seconds.max(0.001))
            },
        );
        lines.push(format!(
            "{:<24} {:>7} {:>8} {:>8} {:>8} {:>9} {:>8}",
            printable(&controller.name),
            queue.ready,
            queue.delayed + queue.parked,
            queue.processing,
            controller.workers,
            rate,
            controller.totals.failures
        ));
    }
    for informer in now.informers.iter().filter(|one| !one.is_healthy()) {
        let text = format!(
            "{} is {}: {}",
            informer.name, informer.state, informer.reason
        );
        lines.push(paint(Verdict::Failing, &printable(&text)));
    }
    lines.extend([String::new(), format!("{:<36} {:<16} WHY", "KEY", "QUEUE")]);
    for row in &now.keys {
        let state = match &row.state {
            KeyState::Idle => "idle".to_owned(),
            KeyState::Ready { seconds, .. } => format!("ready {seconds:.0} s"),
            KeyState::Delayed { left } => format!("waits {left:.0} s"),
            KeyState::Processing { seconds } => format!("works {seconds:.0} s"),
            KeyState::Parked { .. } => "own write".to_owned(),
        };
        let why = paint(row.verdict, &printable(&row.why));
        let key = printable(&row.key);
        lines.push(format!("{key:<36} {state:<16} {why}"));
    }
    lines
}

#[cfg(test)]
mod tests;
