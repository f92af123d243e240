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

/// A missing figure, and why.
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
    /// Reads `file`; a missing file is empty.
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
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(peer: &str, cpu: f64) -> Sample {
        let line = json!({
            "peer": peer, "version": "1", "work": "sync", "streaming": false, "objects": 10, "count": 10,
            "user_s": cpu, "system_s": 0.5, "base_kib": 100, "steady_kib": 150, "peak_kib": 300,
            "extra": {"steady_before_kib": 200, "peak_kib": 1},
        });
        Sample::new("a case", 1, &line).unwrap()
    }

    #[test]
    fn figures_are_computed_from_the_result() {
        let sample = sample("pintle", 1.5);
        let close = |figure: Figure, value: f64| (figure.of(&sample).unwrap() - value).abs() < 1e-9;
        assert!(close(Figure::CpuPerCount, 200_000.0));
        assert!(close(Figure::MemoryPerObject, 5.12));
        assert_eq!(Figure::LeastPerObject.of(&sample), None);
        for name in ["steady_gc_kib", "steady_trim_kib"] {
            let mut sample = sample.clone();
            sample.numbers.insert(name.into(), 125.0);
            let least = Figure::LeastPerObject.of(&sample).unwrap();
            assert!((least - 2.56).abs() < 1e-9, "{name}: {least}");
        }
        assert!(close(Figure::PeakOverSteady, 2.0));
        assert!(
            close(Figure::RelistPeak, 1.5),
            "expected the peak of the phase"
        );
        assert!(close(Figure::Raw("base_kib", 2.0), 200.0));
        assert_eq!(Figure::Raw("server_cpu_s", 1.0).of(&sample), None);
    }

    #[test]
    fn medians_are_taken_per_case_and_peer() {
        let work = WorkResults {
            samples: vec![
                sample("pintle", 0.5),
                sample("pintle", 1.5),
                sample("kube-rs", 9.5),
            ],
            ..WorkResults::default()
        };
        let of = |case, peer| work.spread(case, peer, Figure::CpuPerCount);
        assert!((of("a case", "pintle").unwrap().median - 150_000.0).abs() < 1e-6);
        assert!(of("another", "pintle").is_none());
        assert_eq!(work.version("kube-rs"), Some("1"));
    }

    #[test]
    fn results_round_trip_and_replace_one_benchmark() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        let mut results = Results::read(&file).unwrap();
        let work = |rounds| WorkResults {
            rounds,
            samples: vec![sample("pintle", 1.0)],
            ..WorkResults::default()
        };
        results.works.insert("sync".into(), work(1));
        results.works.insert("queue".into(), work(1));
        results.write(&file).unwrap();
        let mut results = Results::read(&file).unwrap();
        results.works.insert("queue".into(), work(2));
        results.write(&file).unwrap();
        let results = Results::read(&file).unwrap();
        assert_eq!(
            (results.works["sync"].rounds, results.works["queue"].rounds),
            (1, 2)
        );
        assert_eq!(results.works["sync"].samples.len(), 1);
    }
}
