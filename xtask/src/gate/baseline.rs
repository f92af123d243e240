//! The committed counts with the reason for each, and the toolchain that produced them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::count::Count;
use super::judge::{Report, Verdict};
use crate::workspace;

/// Everything besides our own code that affects a count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Toolchain {
    rustc: String,
    /// The processor's features: memcpy and memchr select their code at run time.
    cpu: String,
    /// The C library: allocator and memcpy.
    libc: String,
    valgrind: String,
}

impl Toolchain {
    pub(super) fn here() -> Result<Self> {
        let valgrind = said("valgrind", &["--version"]).context(
            "the gate counts instructions with valgrind, which runs on Linux: apt-get install valgrind",
        )?;
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let avx2 = flags.split_whitespace().any(|flag| flag == "avx2");
        Ok(Self {
            rustc: said("rustc", &["--version"])?,
            cpu: format!(
                "{}{}",
                std::env::consts::ARCH,
                if avx2 { " with AVX2" } else { "" }
            ),
            libc: said("getconf", &["GNU_LIBC_VERSION"]).unwrap_or_else(|_| "unknown".into()),
            valgrind,
        })
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rustc,
            cpu,
            libc,
            valgrind,
        } = self;
        write!(f, "{rustc}, {cpu}, {libc}, {valgrind}")
    }
}

fn said(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    if !out.status.success() {
        bail!("{program} failed: {}", out.status);
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// One accepted count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Accepted {
    /// Per unit of work.
    pub(super) instructions: f64,
    /// Why this count was accepted.
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    pub(super) toolchain: Toolchain,
    pub(super) paths: BTreeMap<String, Accepted>,
}

impl Baseline {
    pub(super) fn new(toolchain: Toolchain, counts: &[Count], reason: &str) -> Self {
        let mut baseline = Self {
            toolchain,
            paths: BTreeMap::new(),
        };
        for count in counts {
            baseline.store(&count.path, count.instructions, reason);
        }
        baseline
    }

    fn file() -> PathBuf {
        workspace::root().join("benches/gate.json")
    }

    pub(super) fn read() -> Result<Self> {
        let file = Self::file();
        if !file.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&file);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))
    }

    pub(super) fn write(&self) -> Result<()> {
        let file = Self::file();
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn store(&mut self, path: &str, instructions: f64, reason: &str) {
        let accepted = Accepted {
            instructions,
            reason: reason.to_owned(),
        };
        self.paths.insert(path.to_owned(), accepted);
    }

    /// Stores the paths in `named`, or every path outside the limit if `named` is empty. The others
    /// keep their count, so that small regressions cannot accumulate unnoticed.
    pub(super) fn accept(
        &mut self,
        report: &Report,
        named: &[String],
        reason: &str,
    ) -> Vec<String> {
        let mut stored = Vec::new();
        for row in &report.rows {
            match (row.verdict(), row.now) {
                (Verdict::Gone, _) => drop(self.paths.remove(&row.path)),
                (Verdict::Same, _) if named.is_empty() => continue,
                (_, Some(now)) => self.store(&row.path, now, reason),
                (_, None) => continue,
            }
            stored.push(row.path.clone());
        }
        stored
    }
}
