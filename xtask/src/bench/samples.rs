//! Raw measurements by benchmark, so that a single benchmark can be repeated.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Machine;
use super::stats::Spread;

/// All measurements, by benchmark.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) works: BTreeMap<String, WorkResults>,
}

/// The measurements of one benchmark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct WorkResults {
    pub(super) date: String,
    /// The measured commit.
    pub(super) commit: String,
    pub(super) quick: bool,
    pub(super) rounds: u32,
    pub(super) took_s: f64,
    pub(super) machine: Machine,
    pub(super) samples: Vec<Sample>,
    pub(super) misses: Vec<Miss>,
}

/// The result of one process in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) case: String,
    pub(super) peer: String,
    pub(super) version: String,
    pub(super) round: u32,
    /// The numbers of the result line; those in `extra` under their own names.
    pub(super) numbers: BTreeMap<String, f64>,
}

/// A missing figure, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Miss {
    pub(super) case: String,
    pub(super) peer: String,
    pub(super) kind: MissKind,
    pub(super) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MissKind {
    /// The library does not support it.
    Cannot,
    /// The library does not support a part of it; the rest is measured.
    Partly,
    /// An unexpected failure.
    Failed,
}

impl Sample {
    /// Parses the result line of a program.
    pub(super) fn new(case: &str, round: u32, line: &Value) -> Result<Self> {
        let text = |name: &str| {
            let text = line[name].as_str().map(str::to_owned);
            text.with_context(|| format!("the result line has no {name}"))
        };
        let mut numbers = BTreeMap::new();
        let extra = line["extra"].as_object();
        for (name, value) in line.as_object().into_iter().chain(extra).flatten() {
            if let Some(number) = value.as_f64() {
                // Top-level values take precedence over `extra`.
                numbers.entry(name.clone()).or_insert(number);
            }
        }
        Ok(Self {
            case: case.to_owned(),
            peer: text("peer")?,
            version: text("version")?,
            round,
            numbers,
        })
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }
}

impl WorkResults {
    /// Returns a peer's figure for a case, over all rounds.
    pub(super) fn spread(&self, case: &str, peer: &str, figure: Figure) -> Option<Spread> {
        let samples = self.samples.iter();
        let matching = samples.filter(|sample| sample.case == case && sample.peer == peer);
        Spread::of(matching.filter_map(|sample| figure.of(sample)).collect())
    }

    pub(super) fn miss(&self, case: &str, peer: &str) -> Option<&Miss> {
        let mut misses = self.misses.iter();
        misses.find(|miss| miss.case == case && miss.peer == peer)
    }

    /// Returns the version a peer reported.
    pub(super) fn version(&self, peer: &str) -> Option<&str> {
        let mut samples = self.samples.iter();
        let sample = samples.find(|sample| sample.peer == peer)?;
        Some(&sample.version)
    }
}

/// A number computed from a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Figure {
    /// CPU time per operation, in µs.
    CpuPerCount,
    /// CPU time per operation, in ns.
    CpuNsPerCount,
    /// Additional resident memory per object, in KB (1,000 bytes).
    MemoryPerObject,
    /// The same after the program returned unused memory to the system, if it can.
    LeastPerObject,
    /// Peak memory relative to memory afterwards.
    PeakOverSteady,
    /// Peak memory during a relist relative to memory before.
    RelistPeak,
    /// Bytes received per operation.
    BytesPerCount,
    /// A number of the result line, times a factor for its unit.
    Raw(&'static str, f64),
    /// Operations per second.
    PerSecond,
}

impl Figure {
    pub(super) fn of(self, sample: &Sample) -> Option<f64> {
        let get = |name: &str| sample.get(name);
        let cpu = || Some(get("user_s")? + get("system_s")?);
        let per = |sum: f64, of: &str| {
            get(of)
                .filter(|count| *count > 0.0)
                .map(|count| sum / count)
        };
        let memory = |kib: f64| per((kib - get("base_kib")?) * 1.024, "objects");
        match self {
            Self::CpuPerCount => per(cpu()? * 1e6, "count"),
            Self::CpuNsPerCount => per(cpu()? * 1e9, "count"),
            Self::MemoryPerObject => memory(get("steady_kib")?),
            Self::LeastPerObject => {
                memory(get("steady_gc_kib").or_else(|| get("steady_trim_kib"))?)
            }
            Self::PeakOverSteady => per(get("peak_kib")?, "steady_kib"),
            Self::RelistPeak => per(get("peak_kib")?, "steady_before_kib"),
            Self::BytesPerCount => per(get("bytes_received")?, "count"),
            Self::Raw(name, factor) => Some(get(name)? * factor),
            Self::PerSecond => per(get("count")?, "wall_s"),
        }
    }
}

impl Results {
    /// Reads `file`; a missing file counts as empty.
    pub(super) fn read(file: &Path) -> Result<Self> {
        match std::fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is corrupt", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        let text = serde_json::to_string(self)?;
        // One sample per line, so that a diff shows only what was measured again.
        let text = text.replace("{\"case\":", "\n{\"case\":");
        std::fs::write(file, text + "\n")
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

#[cfg(test)]
mod tests;
