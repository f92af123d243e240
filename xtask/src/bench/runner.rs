//! Runs the benchmarks, round by round.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::Args;
use super::live::Live;
use super::machine::{self, Machine};
use super::peers::Programs;
use super::plan::{self, Case, PEERS, Served, Work};
use super::program::{self, Cores, Outcome, Running};
use super::progress::Progress;
use super::samples::{Miss, MissKind, Sample, WorkResults};
use crate::interrupt::Interrupt;

/// Runs benchmarks and collects their results.
pub(super) struct Runner {
    pub(super) quick: bool,
    rounds: Option<u32>,
    /// The date, and the commit of the programs, determined before the first results are written.
    date: String,
    commit: String,
    pub(super) programs: Programs,
    pub(super) interrupt: Interrupt,
    pub(super) progress: Progress,
}

impl Runner {
    pub(super) fn new(args: &Args, works: &[Work]) -> Result<Self> {
        let interrupt = Interrupt::install()?;
        let (date, mut commit) = machine::now();
        if args.no_build {
            // The existing binaries may be from another commit.
            commit.push_str(" (not rebuilt)");
        } else {
            eprintln!("building the programs to compare");
        }
        let programs = Programs::build(!args.no_build)?;
        let mut runner = Self {
            quick: args.quick,
            rounds: args.rounds,
            date,
            commit,
            programs,
            interrupt,
            progress: Progress::new(0),
        };
        for line in runner.programs.missing() {
            eprintln!("{line}");
        }
        let steps = works.iter().map(|work| runner.steps(*work)).sum();
        runner.progress = Progress::new(steps);
        Ok(runner)
    }

    pub(super) fn rounds(&self, work: Work) -> u32 {
        self.rounds
            .unwrap_or_else(|| work.rounds(self.quick))
            .max(1)
    }

    /// Returns the maximum number of processes to measure.
    fn steps(&self, work: Work) -> usize {
        let rounds = self.rounds(work);
        let runs = match work {
            Work::Foo | Work::Apiserver => rounds * 2,
            Work::Cluster => rounds * 6,
            _ => {
                let cases = plan::cases(work, self.quick).into_iter();
                cases
                    .map(|case| {
                        let peers = u32::try_from(case.peers.len()).unwrap_or(4);
                        rounds.min(case.at_most) * peers
                    })
                    .sum()
            }
        };
        usize::try_from(runs).unwrap_or_default()
    }

    /// Runs one benchmark. Records failures and continues.
    pub(super) fn measure(&mut self, work: Work) -> WorkResults {
        let begin = Instant::now();
        let mut results = WorkResults {
            date: self.date.clone(),
            commit: self.commit.clone(),
            quick: self.quick,
            rounds: self.rounds(work),
            machine: Machine::this(),
            ..WorkResults::default()
        };
        match work {
            Work::Foo => {
                if let Err(error) = self.foo(&mut results) {
                    let why = format!("{error:#}");
                    self.miss(&mut results, "all", "all", MissKind::Failed, &why);
                }
            }
            Work::Apiserver => self.apiserver(&mut results),
            Work::Cluster => self.cluster(&mut results),
            _ => self.cases(work, &mut results),
        }
        results.took_s = begin.elapsed().as_secs_f64();
        results
    }

    /// Runs every case with every peer, in alternating order, so that no peer is always first.
    fn cases(&mut self, work: Work, results: &mut WorkResults) {
        let cases = plan::cases(work, self.quick);
        let live = cases.iter().find_map(|case| match case.served {
            Served::Live(pods) => Some(pods),
            _ => None,
        });
        let live = live.map(|pods| Live::with_pods(self, pods));
        for round in 1..=results.rounds {
            for case in cases.iter().filter(|case| round <= case.at_most) {
                let mut order = PEERS;
                if round % 2 == 0 {
                    order.reverse();
                }
                for peer in order.into_iter().filter(|peer| case.peers.contains(peer)) {
                    if self.interrupt.is_raised() {
                        return;
                    }
                    self.progress
                        .step(&format!("{}: {}, {peer}", work.name(), case.name));
                    let cannot = results.miss(&case.name, peer);
                    if cannot.is_some_and(|miss| miss.kind == MissKind::Cannot) {
                        continue;
                    }
                    let outcome = match (&live, case.served) {
                        (Some(Err(error)), Served::Live(_)) => {
                            Outcome::Failed(format!("{error:#}"))
                        }
                        (Some(Ok(live)), Served::Live(_)) => {
                            self.once(work, case, peer, Some(live))
                        }
                        _ => self.once(work, case, peer, None),
                    };
                    self.record(results, &case.name, peer, round, outcome);
                }
            }
        }
    }

    /// Runs one case with one peer, in a fresh process and with a fresh replay server if it needs
    /// one.
    fn once(&self, work: Work, case: &Case, peer: &str, live: Option<&Live>) -> Outcome {
        let program = match self.programs.get(peer) {
            Ok(program) => program,
            Err(why) => return Outcome::Failed(why.to_owned()),
        };
        let mut command = program::ours(program, work.name(), case.cores);
        command.args(&case.flags);
        let mut server = None;
        let mut pids = Vec::new();
        match (case.served, live) {
            (Served::Nothing, _) => {}
            (Served::Replay(pods), _) => match self.replay(pods) {
                Ok((running, url)) => {
                    pids.push(running.pid());
                    command.args(["--url", &url]);
                    server = Some(running);
                }
                Err(error) => return Outcome::Failed(format!("{error:#}")),
            },
            (Served::Live(_), Some(live)) => {
                pids.extend(live.server_pids());
                command.arg("--kubeconfig").arg(live.kubeconfig());
            }
            (Served::Live(_), None) => return Outcome::Failed("no control plane".into()),
        }
        let cpu = || pids.iter().map(|pid| program::cpu_of(*pid)).sum::<f64>();
        let before = cpu();
        let outcome = program::run(peer, &mut command, case.patience, &self.interrupt);
        let after = cpu();
        drop(server);
        match outcome {
            Outcome::Line(mut line) => {
                if !pids.is_empty() {
                    line["server_cpu_s"] = json!(after - before);
                }
                Outcome::Line(line)
            }
            other => other,
        }
    }

    /// Starts the replay server and returns its URL.
    fn replay(&self, pods: usize) -> Result<(Running, String)> {
        let mut command = program::ours(self.programs.ours()?, "replay", Cores::Server);
        command.args(["--objects", &pods.to_string()]);
        let mut running = Running::start("replay server", &mut command)?;
        let url = running.line(Duration::from_secs(60))?;
        Ok((running, url))
    }

    /// Records the result of one run.
    pub(super) fn record(
        &self,
        results: &mut WorkResults,
        case: &str,
        peer: &str,
        round: u32,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Line(line) => match Sample::new(case, round, &line) {
                Ok(sample) if round == 1 => {
                    let extra = line["extra"].as_object().into_iter().flatten();
                    let reasons = extra.filter(|(name, _)| name.ends_with("_reason"));
                    for why in reasons.filter_map(|(_, why)| why.as_str()) {
                        self.miss(results, case, peer, MissKind::Partly, why);
                    }
                    results.samples.push(sample);
                }
                Ok(sample) => results.samples.push(sample),
                Err(error) => {
                    let why = format!("{error:#}");
                    self.miss(results, case, peer, MissKind::Failed, &why);
                }
            },
            Outcome::Cannot(why) => self.miss(results, case, peer, MissKind::Cannot, &why),
            Outcome::Failed(why) => self.miss(results, case, peer, MissKind::Failed, &why),
        }
    }

    fn miss(
        &self,
        results: &mut WorkResults,
        case: &str,
        peer: &str,
        kind: MissKind,
        reason: &str,
    ) {
        let known = results.misses.iter().any(|miss| {
            let same = miss.case == case && miss.peer == peer && miss.kind == kind;
            // Keep every unsupported part, but only the first failure.
            same && (kind != MissKind::Partly || miss.reason == reason)
        });
        if self.interrupt.is_raised() || known {
            return;
        }
        if kind == MissKind::Failed {
            Progress::say(&format!("{case}, {peer}: {reason}"));
        }
        results.misses.push(Miss {
            case: case.to_owned(),
            peer: peer.to_owned(),
            kind,
            reason: reason.to_owned(),
        });
    }

    /// Runs one benchmark of `pintle-bench` to completion.
    pub(super) fn drive(
        &self,
        work: &str,
        args: &[String],
        cores: Cores,
        patience: Duration,
    ) -> Result<serde_json::Value> {
        let mut command = program::ours(self.programs.ours()?, work, cores);
        command.args(args);
        match program::run(work, &mut command, patience, &self.interrupt) {
            Outcome::Line(line) => Ok(line),
            Outcome::Cannot(why) | Outcome::Failed(why) => Err(anyhow::anyhow!("{why}")),
        }
        .with_context(|| format!("pintle-bench {work}"))
    }
}
