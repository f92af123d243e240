//! Serves the logs of Pods from a registered source.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::{Answer, Api, ApiError, Call, response};

/// A line in the log of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodLogLine {
    /// When it was written.
    pub at: Timestamp,
    /// Its text, without a line break.
    pub text: String,
}

/// Identifies a log: one run of one container.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct PodLogRequest<'a> {
    /// The Pod as JSON.
    pub pod: &'a Value,
    /// The name of the container.
    pub container: &'a str,
    /// When the run started.
    pub started: Timestamp,
    /// When it ended, or now.
    pub until: Timestamp,
}

type Source = dyn Fn(PodLogRequest<'_>) -> Vec<PodLogLine> + Send + Sync;

/// Where the logs of Pods come from.
#[derive(Clone, Default)]
pub(crate) struct PodLogs(Arc<Mutex<Option<Arc<Source>>>>);

impl fmt::Debug for PodLogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodLogs")
    }
}

/// Keeps a source of logs registered; see
/// [`ApiServer::register_pod_logs`](crate::ApiServer::register_pod_logs).
#[must_use = "dropping the registration ends it"]
pub struct PodLogsRegistration {
    logs: PodLogs,
    source: Arc<Source>,
}

impl fmt::Debug for PodLogsRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PodLogsRegistration")
    }
}

impl Drop for PodLogsRegistration {
    fn drop(&mut self) {
        // Another source may have been registered in the meantime.
        let mut source = self.logs.0.lock();
        if source
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, &self.source))
        {
            *source = None;
        }
    }
}

impl PodLogs {
    pub(crate) fn register(
        &self,
        source: impl Fn(PodLogRequest<'_>) -> Vec<PodLogLine> + Send + Sync + 'static,
    ) -> PodLogsRegistration {
        let source: Arc<Source> = Arc::new(source);
        *self.0.lock() = Some(Arc::clone(&source));
        PodLogsRegistration {
            logs: self.clone(),
            source,
        }
    }
}

/// The options of a request for a log.
struct Options {
    tail: Option<usize>,
    limit: Option<usize>,
    since: Option<Timestamp>,
    timestamps: bool,
    previous: bool,
}

impl Api {
    /// Returns the log of a container: 404 if the Pod does not exist, 400 if the container has not
    /// run, 501 if no source of logs is registered.
    pub(crate) fn pod_log(&self, call: &Call) -> Answer {
        let Some(object) = self.store.get(call.collection()?, &call.key()) else {
            return Err(call.missing());
        };
        let pod = Value::Object(object.decode());
        let options = self.log_options(call)?;
        let container = container(&pod, call.query.get("container"))?;
        let source = self.pod_logs.0.lock().clone();
        let Some(source) = source else {
            return Err(ApiError::not_implemented("the log subresource of pods"));
        };
        if pod["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            return Ok(response::plain_text(String::new()));
        }
        let (started, until) = run(&pod, container, options.previous)?;
        let mut lines = source(PodLogRequest {
            pod: &pod,
            container,
            started,
            until: until.unwrap_or_else(|| self.clock.now()),
        });
        lines.retain(|line| options.since.is_none_or(|since| line.at >= since));
        let skipped = options
            .tail
            .map_or(0, |tail| lines.len().saturating_sub(tail));
        let mut text = String::new();
        for line in &lines[skipped..] {
            if options.timestamps {
                let _ = write!(text, "{:.9} ", line.at);
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        let mut bytes = text.into_bytes();
        bytes.truncate(options.limit.unwrap_or(usize::MAX));
        // A character that the limit cuts in half becomes U+FFFD.
        Ok(response::plain_text(
            String::from_utf8_lossy(&bytes).into_owned(),
        ))
    }

    fn log_options(&self, call: &Call) -> Result<Options, ApiError> {
        let query = &call.query;
        let number = |name: &str, least: i64| -> Result<Option<i64>, ApiError> {
            let text = query.get(name);
            if text.is_empty() {
                return Ok(None);
            }
            let number = text.parse::<i64>();
            let number = number.ok().filter(|number| *number >= least);
            number.map(Some).ok_or_else(|| {
                ApiError::bad_request(format!(
                    "{name}: Invalid value: {text:?}: must be at least {least}"
                ))
            })
        };
        let (tail, limit) = (number("tailLines", 0)?, number("limitBytes", 1)?);
        let seconds = number("sinceSeconds", 1)?;
        let time = query.get("sinceTime");
        if seconds.is_some() && !time.is_empty() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err(ApiError::bad_request(why));
        }
        let since = match seconds {
            Some(seconds) => {
                let now = self.clock.now();
                Some(
                    now.saturating_sub(SignedDuration::from_secs(seconds))
                        .unwrap_or(now),
                )
            }
            None if time.is_empty() => None,
            None => Some(time.parse().map_err(|_| {
                ApiError::bad_request(format!(
                    "sinceTime: Invalid value: {time:?}: not a timestamp"
                ))
            })?),
        };
        if !matches!(query.get("stream"), "" | "All" | "Stdout") {
            return Err(ApiError::not_implemented(
                "other streams of logs than Stdout",
            ));
        }
        if query.flag("follow") {
            return Err(ApiError::not_implemented("following a log"));
        }
        let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Options {
            tail: tail.map(size),
            limit: limit.map(size),
            since,
            timestamps: query.flag("timestamps"),
            previous: query.flag("previous"),
        })
    }
}

/// Returns the container of a Pod with this name, or the only one if the name is empty.
fn container<'a>(pod: &'a Value, name: &str) -> Result<&'a str, ApiError> {
    let names_in = |list: &str| {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        all.filter_map(|container| container["name"].as_str())
    };
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut all = names_in("initContainers")
        .chain(names_in("containers"))
        .chain(names_in("ephemeralContainers"));
    if !name.is_empty() {
        return all.find(|it| *it == name).ok_or_else(|| {
            ApiError::bad_request(format!("container {name} is not valid for pod {pod_name}"))
        });
    }
    let mut plain = names_in("containers");
    if let (Some(only), None) = (plain.next(), plain.next()) {
        return Ok(only);
    }
    let names: Vec<&str> = all.collect();
    Err(ApiError::bad_request(format!(
        "a container name must be specified for pod {pod_name}, choose one of: [{}]",
        names.join(" ")
    )))
}

/// Returns the start and end of a container's current or last run, or of the one before if
/// `previous`, or the kubelet's error if there was none. The end of a current run is `None`.
fn run(
    pod: &Value,
    container: &str,
    previous: bool,
) -> Result<(Timestamp, Option<Timestamp>), ApiError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let refused = |why: &str| Err(ApiError::bad_request(why.to_owned()));
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let mut statuses = lists.iter().flat_map(|list| {
        let list = pod["status"][list].as_array();
        list.into_iter().flatten()
    });
    let Some(status) = statuses.find(|status| status["name"] == container) else {
        return refused(&format!(
            "container {container:?} in pod {name:?} is not available"
        ));
    };
    let time = |value: &Value| {
        value
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    let ended = |state: &Value| {
        let state = state["terminated"].as_object()?;
        let field = |name: &str| state.get(name).and_then(time);
        let end = field("finishedAt").unwrap_or(Timestamp::MAX);
        Some((field("startedAt").unwrap_or(end), Some(end)))
    };
    let (state, last) = (&status["state"], &status["lastState"]);
    if previous {
        return ended(last).map_or_else(
            || {
                refused(&format!(
                    "previous terminated container {container:?} in pod {name:?} not found"
                ))
            },
            Ok,
        );
    }
    if state["running"].is_object() {
        let started = time(&state["running"]["startedAt"]).unwrap_or(Timestamp::MIN);
        return Ok((started, None));
    }
    if let Some(run) = ended(state).or_else(|| ended(last)) {
        return Ok(run);
    }
    let why = match state["waiting"]["reason"].as_str() {
        Some("ErrImagePull") => "image can't be pulled",
        Some("ImagePullBackOff") => "trying and failing to pull image",
        Some(reason) => reason,
        None => {
            return refused(&format!(
                "container {container:?} in pod {name:?} is waiting to start - no logs yet"
            ));
        }
    };
    refused(&format!(
        "container {container:?} in pod {name:?} is waiting to start: {why}"
    ))
}
