//! The baseline of a check: runs without faults, which scenarios are compared with.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use super::expected::{bystander, desired_at, different_ends, expected_of, owned};
use crate::{
    Check, Report,
    canonical::{Compare, State, differences},
    oracles::{Oracle, Violation, fresh, judge_reference, removals, same_requests},
    plan::{Fault, Pace, Plan, families::Context},
    random::Random,
    report::Failure,
    run::{Depth, Expected, Setup, scenario},
    story::{Desired, Step},
    trace::{Request, Trace},
};

/// Runs without faults, and the data derived from them.
pub(crate) struct Baseline {
    paced: Trace,
    rapid: Trace,
    expected: Expected,
    rapid_expected: Expected,
    removals: BTreeMap<String, usize>,
    owned: Vec<String>,
    /// The maximum number of requests per minute in a story of this length.
    limit: usize,
    pub(crate) deterministic: bool,
}

/// The maximum number of requests per virtual minute for a story without steps.
const LIMIT: usize = 600;
/// The difference between the seeds of two runs.
const OTHER_SEED: u64 = 1 << 32;
/// The number that each step adds to [`LIMIT`].
const LIMIT_PER_STEP: usize = 200;

impl Check {
    /// Returns the steps of the story.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.story
    }
}

impl Baseline {
    /// Runs the references and judges them.
    pub(crate) fn record(check: &Arc<Check>, report: &mut Report) -> Result<Self, Vec<Failure>> {
        let steps = check.steps();
        let limit = LIMIT + LIMIT_PER_STEP * steps.len();
        // The second run gets other random numbers: what differs is random.
        let other = Setup {
            other_seed: OTHER_SEED,
            ..check.setup.clone()
        };
        let (setup, other) = (&check.setup, &other);
        let run = |setup, pace, depth| {
            move || {
                let plan = Plan::reference(pace);
                scenario(setup, check.steps(), &plan, None, limit, depth)
            }
        };
        // Each run has a fresh thread, so that hash maps with random keys iterate in different
        // orders.
        let (mut paced, mut again, mut rapid) = std::thread::scope(|scope| {
            let paced = scope.spawn(run(setup, Pace::Paced, Depth::Thorough));
            let again = scope.spawn(run(other, Pace::Paced, Depth::Patient));
            let rapid = scope.spawn(run(setup, Pace::Rapid, Depth::Patient));
            (join(paced), join(again), join(rapid))
        });
        report.scenarios += 3;
        let random = setup.random.get_or_init(|| Random::learn(&paced, &again));
        for trace in [&mut paced, &mut again] {
            random.mask(trace, Pace::Paced);
        }
        random.mask(&mut rapid, Pace::Rapid);
        for trace in [&paced, &again, &rapid] {
            report.permissions.merge(&super::permissions_of(trace));
        }
        let mut found = judge_reference(&paced, steps, &check.setup.given);
        let writes =
            |request: &Request| request.target.verb.is_write() && !request.target.is_bookkeeping();
        if found.is_empty() && !paced.requests.iter().any(writes) {
            let text = "the controller wrote nothing, so there is nothing to check";
            found.push(Violation::new(Oracle::Story, text));
        }
        let mut deterministic = true;
        if found.is_empty()
            && let Err(how) = same_requests(&paced, &again, random)
        {
            deterministic = false;
            report.nondeterministic = Some(how.clone());
            found.extend(different_ends(&paced, &again, &how));
        }
        let paced_failed = fail(check, report, Pace::Paced, found, &paced);
        let mut failures = paced_failed;
        if failures.is_empty() {
            let mut found = judge_reference(&rapid, steps, &check.setup.given);
            found.retain(|it| it.oracle != Oracle::NoOrphan);
            if let (Some(a), Some(b), true) = (paced.end(), rapid.end(), found.is_empty()) {
                let differing = differences(&a.state, &b.state, Compare::PathFree);
                if let Some(first) = differing.first() {
                    let text = format!(
                        "{} (want: the paced story; got: the rapid story)",
                        first.describe()
                    );
                    found.push(Violation {
                        differences: differing.clone(),
                        step: Some(b.step),
                        ..Violation::new(Oracle::PathFree, text)
                    });
                }
            }
            failures = fail(check, report, Pace::Rapid, found, &rapid);
        }
        if !failures.is_empty() {
            return Err(failures);
        }
        let mut allowed = removals(&paced);
        for (what, count) in removals(&rapid) {
            let most = allowed.entry(what).or_default();
            *most = count.max(*most);
        }
        let mut baseline = Self {
            expected: expected_of(&paced),
            rapid_expected: expected_of(&rapid),
            removals: allowed,
            owned: owned(&paced, steps),
            paced,
            rapid,
            limit,
            deterministic,
        };
        baseline.compare_fresh(check, report)?;
        Ok(baseline)
    }

    /// Compares with fresh clusters, and with one in which other users have similar objects.
    fn compare_fresh(
        &mut self,
        check: &Arc<Check>,
        report: &mut Report,
    ) -> Result<(), Vec<Failure>> {
        let steps = check.steps();
        // The clusters to compare with, by the objects that users want.
        let mut clusters: BTreeMap<String, Vec<Step>> = BTreeMap::new();
        let mut with: Vec<(usize, String)> = Vec::new();
        let mut without: Vec<(usize, String)> = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            let mut desired = desired_at(&steps[..=i]);
            if i > 0 && !desired.is_empty() && self.expected.steps.contains_key(&i) {
                let key = format!("{desired:?}");
                clusters.insert(key.clone(), desired.clone());
                with.push((i, key));
            }
            if let Step::Apply(object, _) = step {
                let others = desired.iter();
                let others: Vec<&Step> = others
                    .filter(|it| it.object().path() != object.path())
                    .collect();
                let key = format!("absent {others:?} {}", object.path());
                desired.push(Step::Delete(object.clone()));
                clusters.entry(key.clone()).or_insert(desired);
                without.push((i, key));
            }
        }
        report.scenarios += clusters.len();
        let states = run_fresh(check, clusters);
        let mut found = Vec::new();
        for (i, key) in with {
            if let (Some(path), Some(state)) = (self.expected.steps.get(&i), states.get(&key)) {
                found.extend(fresh(path, state, i).map(|violation| (i, violation)));
            }
        }
        for (i, key) in without {
            if let Some(state) = states.get(&key) {
                self.expected.absent.insert(i, Arc::clone(state));
                self.rapid_expected.absent.insert(i, Arc::clone(state));
            }
        }
        let failures: Vec<Failure> = found
            .into_iter()
            .filter(|(_, violation)| !check.options.relaxes(violation.oracle))
            .take(3)
            .map(|(_, violation)| {
                let plan = Plan::reference(Pace::Paced);
                Failure::new(plan, violation, self.paced.clone(), steps)
            })
            .collect();
        if !failures.is_empty() {
            report.failed += failures.len();
            return Err(failures);
        }
        self.bystanders(check, report)
    }

    /// Runs the story next to objects of other users that look like the controller's.
    fn bystanders(&self, check: &Arc<Check>, report: &mut Report) -> Result<(), Vec<Failure>> {
        let Some(end) = self.paced.end() else {
            return Ok(());
        };
        let given: Vec<Desired> = end
            .state
            .ids
            .iter()
            .filter(|(_, id)| self.owned.contains(id))
            .filter_map(|(title, id)| bystander(end.state.objects.get(title)?.first()?, id))
            .collect();
        if given.is_empty() || check.options.relaxes(Oracle::OwnOnly) {
            return Ok(());
        }
        let names: BTreeSet<String> = given
            .iter()
            .map(|it| format!("{}/{}", it.namespace, it.name))
            .collect();
        let setup = Setup {
            given: check.setup.given.iter().cloned().chain(given).collect(),
            always: Vec::new(),
            eventually: Vec::new(),
            prepared: OnceLock::new(),
            ..check.setup.clone()
        };
        report.scenarios += 1;
        let plan = Plan::reference(Pace::Paced);
        let trace = scenario(
            &setup,
            check.steps(),
            &plan,
            None,
            self.limit,
            Depth::Patient,
        );
        let touched = trace.requests.iter().find_map(|request| {
            let commit = request.commits.iter().find(|it| names.contains(&it.key))?;
            let (resource, key) = (&commit.resource, &commit.key);
            let what = request.target.verb.as_str();
            Some(format!(
                "{what} of {resource} {key}, an object that another user created"
            ))
        });
        let Some(text) = touched else {
            return Ok(());
        };
        report.failed += 1;
        let violation = Violation::new(Oracle::OwnOnly, text);
        Err(vec![Failure::new(plan, violation, trace, check.steps())])
    }

    /// Returns the reference of a pace.
    pub(crate) fn reference(&self, pace: Pace) -> &Trace {
        match pace {
            Pace::Paced => &self.paced,
            Pace::Rapid => &self.rapid,
        }
    }

    /// Returns the input of the planners.
    pub(crate) fn context(&self, check: &Check) -> Context {
        let applies = check.steps().iter().enumerate();
        Context {
            steps: check.steps().len(),
            applies: applies
                .filter(|(_, step)| matches!(step, Step::Apply(..)))
                .map(|(i, _)| i)
                .collect(),
            deletes: (0..check.steps().len())
                .filter(|i| matches!(check.steps()[*i], Step::Delete(_)))
                .collect(),
            deletable_namespace: check.steps().iter().all(|step| {
                let object = step.object();
                object.kind.namespaced && object.namespace != "default"
            }),
            custom: check.steps().iter().all(|step| {
                let resource = &step.object().kind.resource;
                check.setup.crds.iter().any(|crd| {
                    crd["spec"]["group"] == resource.group.as_str()
                        && crd["spec"]["names"]["plural"] == resource.plural.as_str()
                })
            }),
            owned: self.owned.clone(),
            edits: self
                .owned
                .iter()
                .filter(|id| self.expected.edits.contains_key(*id))
                .cloned()
                .collect(),
            terminal_errors: check.options.terminal_errors,
        }
    }

    pub(crate) fn removals(&self) -> &BTreeMap<String, usize> {
        &self.removals
    }

    pub(crate) fn limit(&self, steps: usize) -> usize {
        self.limit.max(LIMIT + LIMIT_PER_STEP * steps)
    }

    /// Returns the steps that a plan runs.
    #[allow(
        clippy::unused_self,
        reason = "grouped with the other methods about a plan"
    )]
    pub(crate) fn steps_of(&self, check: &Check, plan: &Plan) -> Vec<Step> {
        if plan.steps.is_empty() {
            return check.steps().to_vec();
        }
        let steps = plan.steps.iter();
        steps
            .filter_map(|i| check.steps().get(*i).cloned())
            .collect()
    }

    /// Returns the states that a plan has to reach.
    pub(crate) fn expected(&self, check: &Check, plan: &Plan) -> Expected {
        let all = match plan.pace {
            Pace::Paced => &self.expected,
            Pace::Rapid => &self.rapid_expected,
        };
        if plan.steps.is_empty() {
            let mut expected = all.clone();
            if plan.has(|it| it == Fault::NamespaceDelete) {
                expected.without_namespaces(&check.setup.namespaces);
            }
            return expected;
        }
        // A shorter story is compared with its own reference.
        let steps = self.steps_of(check, plan);
        let reference = Plan {
            faults: Vec::new(),
            ..plan.clone()
        };
        let limit = self.limit(steps.len());
        let trace = scenario(
            &check.setup,
            &steps,
            &reference,
            None,
            limit,
            Depth::Patient,
        );
        let absent = plan.steps.iter().enumerate();
        let mut expected = Expected {
            absent: absent
                .filter_map(|(i, step)| Some((i, all.absent.get(step).cloned()?)))
                .collect(),
            edits: all.edits.clone(),
            ..expected_of(&trace)
        };
        if plan.has(|it| it == Fault::NamespaceDelete) {
            expected.without_namespaces(&check.setup.namespaces);
        }
        expected
    }

    /// Reports a change that the controller made to an object of another user.
    #[allow(clippy::unused_self, reason = "grouped with the other oracles")]
    pub(crate) fn foreign(&self, check: &Check, trace: &Trace) -> Option<Violation> {
        let given = &check.setup.given;
        let is_given = |commit: &&crate::trace::Commit| {
            !check.may_write_to(&commit.resource)
                && given.iter().any(|it| {
                    it.kind.resource == commit.resource
                        && (commit.key == format!("{}/{}", it.namespace, it.name)
                            || (!it.kind.namespaced && commit.key == it.name))
                })
        };
        trace.requests.iter().find_map(|request| {
            let commit = request.commits.iter().find(is_given)?;
            let (verb, resource) = (request.target.verb.as_str(), &commit.resource);
            let text = format!(
                "{verb} of {resource} {}, which it did not create",
                commit.key
            );
            Some(Violation::new(Oracle::OwnOnly, text))
        })
    }
}

fn join(thread: std::thread::ScopedJoinHandle<'_, Trace>) -> Trace {
    thread.join().unwrap_or_else(|_| Trace {
        aborted: Some(crate::trace::Abort::Story(
            "the scenario panicked".to_owned(),
        )),
        ..Trace::default()
    })
}

fn fail(
    check: &Check,
    report: &mut Report,
    pace: Pace,
    found: Vec<Violation>,
    trace: &Trace,
) -> Vec<Failure> {
    let failures: Vec<Failure> = found
        .into_iter()
        .filter(|violation| !check.options.relaxes(violation.oracle))
        .map(|violation| {
            let plan = Plan::reference(pace);
            Failure::new(plan, violation, trace.clone(), check.steps())
        })
        .collect();
    report.failed += failures.len();
    failures
}

/// Runs stories in fresh clusters, on all cores. Returns their last states.
fn run_fresh(check: &Check, stories: BTreeMap<String, Vec<Step>>) -> BTreeMap<String, Arc<State>> {
    let stories: Vec<(String, Vec<Step>)> = stories.into_iter().collect();
    let jobs = check.options.jobs.min(stories.len());
    let next = AtomicUsize::new(0);
    let states = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((key, steps)) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let limit = LIMIT + LIMIT_PER_STEP * steps.len();
                    let plan = Plan::reference(Pace::Paced);
                    let depth = Depth::Patient;
                    let trace = scenario(&check.setup, steps, &plan, None, limit, depth);
                    if let Some(end) = trace.end() {
                        states.lock().insert(key.clone(), Arc::clone(&end.state));
                    }
                }
            });
        }
    });
    states.into_inner()
}
