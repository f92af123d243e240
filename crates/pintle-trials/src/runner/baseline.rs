//! The baseline of a check: runs without faults, which scenarios are compared with.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    Check, Report,
    canonical::{Compare, State, differences},
    gateway::request::ResourceName,
    oracles::{Oracle, Violation, fresh, judge_reference, removals, same_requests},
    plan::{Pace, Plan, families::Context},
    report::Failure,
    run::{Depth, Expected, Setup, scenario},
    story::{Desired, Step},
    trace::Trace,
};

/// Runs without faults, and the data derived from them.
pub(crate) struct Baseline {
    paced: Trace,
    rapid: Trace,
    expected: Expected,
    rapid_expected: Expected,
    removals: BTreeMap<String, usize>,
    owned: Vec<String>,
    /// The most requests that a story of this length may take in a minute.
    limit: usize,
    pub(crate) deterministic: bool,
}

/// The most requests in a virtual minute without a story.
const LIMIT: usize = 600;
/// What each step adds to that.
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
        let run = |pace, depth| {
            move || {
                let plan = Plan::reference(pace);
                scenario(&check.setup, check.steps(), &plan, None, limit, depth)
            }
        };
        // Each on a fresh thread, so that hash maps with random keys iterate differently.
        let (paced, again, rapid) = std::thread::scope(|scope| {
            let paced = scope.spawn(run(Pace::Paced, Depth::Thorough));
            let again = scope.spawn(run(Pace::Paced, Depth::Patient));
            let rapid = scope.spawn(run(Pace::Rapid, Depth::Patient));
            (join(paced), join(again), join(rapid))
        });
        report.scenarios += 3;
        for trace in [&paced, &again, &rapid] {
            report.permissions.merge(&super::permissions_of(trace));
        }
        let mut found = judge_reference(&paced, steps, &check.setup.given);
        let mut deterministic = true;
        if found.is_empty()
            && let Err(how) = same_requests(&paced, &again)
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
        let mut found = Vec::new();
        let mut known: BTreeMap<String, Arc<State>> = BTreeMap::new();
        let last = |trace: Trace| trace.end().map(|end| Arc::clone(&end.state));
        for (i, step) in steps.iter().enumerate() {
            let desired = desired_at(&steps[..=i]);
            let key = format!("{desired:?}");
            if let Some(path) = self.expected.steps.get(&i).cloned()
                && i > 0
                && !desired.is_empty()
            {
                let state = known.get(&key).cloned().or_else(|| {
                    report.scenarios += 1;
                    let state = last(run_fresh(check, &desired, None))?;
                    known.insert(key, Arc::clone(&state));
                    Some(state)
                });
                let differs = state.and_then(|state| fresh(&path, &state, i));
                found.extend(differs.map(|violation| (i, violation)));
            }
            if let Step::Apply(object, _) = step {
                let others: Vec<Step> = desired
                    .iter()
                    .filter(|it| it.object().path() != object.path())
                    .cloned()
                    .collect();
                let key = format!("absent {others:?} {}", object.path());
                let state = known.get(&key).cloned().or_else(|| {
                    report.scenarios += 1;
                    let delete = Step::Delete(object.clone());
                    let trace = run_fresh(check, &desired, Some(delete));
                    let state = last(trace)?;
                    known.insert(key, Arc::clone(&state));
                    Some(state)
                });
                if let Some(state) = state {
                    self.expected.absent.insert(i, Arc::clone(&state));
                    self.rapid_expected.absent.insert(i, state);
                }
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
            factory: Arc::clone(&check.setup.factory),
            crds: check.setup.crds.clone(),
            given: check.setup.given.iter().cloned().chain(given).collect(),
            ignored: check.setup.ignored.clone(),
            workloads: check.setup.workloads,
            within: check.setup.within,
            always: Vec::new(),
            eventually: Vec::new(),
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
                "{what} of {resource} {key}, an object of another user that looks like its own"
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
        reason = "belongs to the other questions about a plan"
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
            return all.clone();
        }
        // A shorter story is compared with a reference of its own.
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
        Expected {
            absent: absent
                .filter_map(|(i, step)| Some((i, all.absent.get(step).cloned()?)))
                .collect(),
            edits: all.edits.clone(),
            ..expected_of(&trace)
        }
    }

    /// Returns the changes that the controller made to objects of other users.
    #[allow(clippy::unused_self, reason = "belongs to the other judgements")]
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

/// Two runs without faults end differently.
fn different_ends(a: &Trace, b: &Trace, how: &str) -> Option<Violation> {
    a.checkpoints.iter().zip(&b.checkpoints).find_map(|(a, b)| {
        let found = differences(&a.state, &b.state, Compare::Exact);
        let first = found.first()?;
        let text = format!(
            "two runs without faults differ: {}; first, {how}",
            first.describe()
        );
        Some(Violation {
            step: Some(a.step),
            differences: found.clone(),
            ..Violation::new(Oracle::Deterministic, text)
        })
    })
}

fn expected_of(trace: &Trace) -> Expected {
    let mut expected = Expected::default();
    for checkpoint in &trace.checkpoints {
        expected
            .steps
            .insert(checkpoint.step, Arc::clone(&checkpoint.state));
    }
    if let Some(end) = trace.end() {
        for checkpoint in &trace.checkpoints {
            for (title, id) in &end.state.ids {
                let now = end.state.objects.get(title).and_then(|it| it.first());
                let then = checkpoint
                    .state
                    .objects
                    .get(title)
                    .and_then(|it| it.first());
                if let (Some(now), Some(then)) = (now, then)
                    && let Some(edit) = edit(now, then)
                {
                    expected.edits.entry(id.clone()).or_insert(edit);
                }
            }
        }
    }
    expected
}

/// Returns a patch that sets fields back to what they were, except for status and metadata.
fn edit(now: &Value, then: &Value) -> Option<Value> {
    let mut patch = serde_json::Map::new();
    for (name, value) in now.as_object()? {
        if matches!(name.as_str(), "metadata" | "status" | "kind" | "apiVersion") {
            continue;
        }
        let before = then.get(name).unwrap_or(&Value::Null);
        if let Some(change) = merge_of(value, before) {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then(|| patch.into())
}

/// Returns the merge patch from one value to another, for fields that both have.
fn merge_of(now: &Value, then: &Value) -> Option<Value> {
    match (now, then) {
        _ if now == then => None,
        (Value::Object(a), Value::Object(b)) => {
            let changes = a
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), merge_of(value, b.get(name)?)?)));
            let changes: serde_json::Map<String, Value> = changes.collect();
            (!changes.is_empty()).then(|| changes.into())
        }
        // Lists may be merged by key, in which case only an element's owner can remove it.
        (Value::Array(_), _) | (_, Value::Array(_) | Value::Null) => None,
        _ => Some(then.clone()),
    }
}

/// Returns the objects that the controller created and is expected to restore.
fn owned(trace: &Trace, steps: &[Step]) -> Vec<String> {
    let of_story = |resource: &ResourceName| {
        steps
            .iter()
            .any(|step| step.object().kind.resource == *resource)
    };
    let made: BTreeSet<String> = trace
        .requests
        .iter()
        .flat_map(|request| &request.commits)
        .filter(|commit| !of_story(&commit.resource) && !commit.removes)
        .map(|commit| {
            let slash = if commit.key.contains('/') { "" } else { "/" };
            format!("{}/{slash}{}", commit.resource, commit.key)
        })
        .collect();
    let Some(end) = trace.end() else {
        return Vec::new();
    };
    let restorable = |(title, id): &(&String, &String)| {
        let object = end.state.objects.get(*title).and_then(|it| it.first());
        let owner = object.is_some_and(|object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|it| it["controller"] == true))
        });
        let done = title.starts_with("Job ") || title.starts_with("External ");
        let precious = ["PersistentVolumeClaim ", "Secret "]
            .iter()
            .any(|it| title.starts_with(it));
        made.contains(*id) && owner && !done && !precious
    };
    let ids = end.state.ids.iter().filter(restorable);
    ids.map(|(_, id)| id.clone()).collect()
}

/// Returns the objects that users want after these steps.
fn desired_at(steps: &[Step]) -> Vec<Step> {
    let mut desired: Vec<Step> = Vec::new();
    for step in steps {
        let path = step.object().path();
        desired.retain(|it| it.object().path() != path);
        if let Step::Apply(object, _) = step {
            desired.push(Step::Apply(object.clone(), String::new()));
        }
    }
    desired
}

fn run_fresh(check: &Check, desired: &[Step], then: Option<Step>) -> Trace {
    let mut steps = desired.to_vec();
    steps.extend(then);
    let limit = LIMIT + LIMIT_PER_STEP * steps.len();
    let plan = Plan::reference(Pace::Paced);
    scenario(&check.setup, &steps, &plan, None, limit, Depth::Patient)
}

/// Returns an object of another user that looks like this one.
fn bystander(object: &Value, id: &str) -> Option<Desired> {
    let (resource, _) = id.split_once('/')?;
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let meta = &object["metadata"];
    let namespace = meta["namespace"].as_str()?;
    let name = format!("{}-bystander", meta["name"].as_str()?);
    let mut value = object.clone();
    value["metadata"] = serde_json::json!({"name": name, "namespace": namespace});
    value.as_object_mut()?.remove("status");
    let api_version = object["apiVersion"].as_str()?;
    let version = api_version.rsplit('/').next()?;
    Some(Desired {
        kind: crate::story::KindRef {
            resource: ResourceName {
                group: group.to_owned(),
                plural: plural.to_owned(),
            },
            version: version.to_owned(),
            kind: object["kind"].as_str()?.to_owned(),
            namespaced: true,
        },
        namespace: namespace.to_owned(),
        name,
        value,
    })
}
