//! Keeps a proposal within bounds: minimum and maximum, the rate of change, and recent proposals.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerSpec,
};

use super::replicas::ceil;

/// How long a lower proposal is delayed by default.
const DOWNSCALE_STABILIZATION: Duration = Duration::from_mins(5);
/// The longest window and period.
const LONGEST_WINDOW: Duration = Duration::from_hours(1);

/// The recent proposals and changes of an autoscaler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    recommendations: Vec<(Timestamp, i32)>,
    /// The number of replicas added.
    added: Vec<(Timestamp, i32)>,
    removed: Vec<(Timestamp, i32)>,
}

impl History {
    /// Records the size before the first proposal, so that a lower proposal does not apply
    /// immediately.
    pub(super) fn start(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Records a change of size.
    pub(super) fn scaled(&mut self, from: i32, to: i32, now: Timestamp) {
        let (list, change) = if to > from {
            (&mut self.added, to - from)
        } else {
            (&mut self.removed, from - to)
        };
        list.push((now, change));
    }

    fn forget_old(&mut self, now: Timestamp) {
        let is_recent = |(at, _): &(Timestamp, i32)| is_within(*at, LONGEST_WINDOW, now);
        for list in [
            &mut self.recommendations,
            &mut self.added,
            &mut self.removed,
        ] {
            list.retain(is_recent);
        }
    }

    /// Returns the size at the start of a period that ends now.
    fn size_before(&self, current: i32, period: i32, now: Timestamp) -> i32 {
        let period = seconds(period);
        let sum = |list: &[(Timestamp, i32)]| {
            let recent = list
                .iter()
                .filter(|(at, _)| is_after_start(*at, period, now));
            recent.map(|(_, change)| change).sum::<i32>()
        };
        current - sum(&self.added) + sum(&self.removed)
    }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Returns whether a time is in the window that ends now, including its start.
fn is_within(at: Timestamp, window: Duration, now: Timestamp) -> bool {
    now.saturating_sub(window).is_ok_and(|start| at >= start)
}

/// Returns whether a time is in the window that ends now, excluding its start.
fn is_after_start(at: Timestamp, window: Duration, now: Timestamp) -> bool {
    now.saturating_sub(window).is_ok_and(|start| at > start)
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) type_: &'static str,
    pub(super) status: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Finding {
    pub(super) fn new(
        type_: &'static str,
        status: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_,
            status,
            reason,
            message: message.into(),
        }
    }
}

const TOO_FAST: (&str, &str) = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_MANY: (&str, &str) = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_FEW: (&str, &str) = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const WITHIN: (&str, &str) = (
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const WERE_HIGHER: &str = "recent recommendations were higher than current one, applying the highest recent \
     recommendation";
const WERE_LOWER: &str =
    "recent recommendations were lower than current one, applying the lowest recent recommendation";

/// Returns the number of replicas to set, and why it may differ from the proposal.
pub(super) fn limit(
    spec: &HorizontalPodAutoscalerSpec,
    history: &mut History,
    current: i32,
    proposed: i32,
    now: Timestamp,
) -> (i32, [Finding; 2]) {
    let min = spec.min_replicas.unwrap_or(1);
    let behavior = spec.behavior.as_ref();
    let (stable, reason, message, (desired, limited)) = match behavior {
        None => {
            let stable = highest_recent(history, proposed, now);
            let (reason, message) = ("ScaleDownStabilized", WERE_HIGHER);
            let limited = by_default(current, stable, min, spec.max_replicas);
            (stable, reason, message, limited)
        }
        Some(behavior) => {
            let up = behavior.scale_up.clone().unwrap_or_default();
            let down = behavior.scale_down.clone().unwrap_or_default();
            let stable = between_recent(history, &up, &down, current, proposed, now);
            let (reason, message) = if proposed >= current {
                ("ScaleUpStabilized", WERE_LOWER)
            } else {
                ("ScaleDownStabilized", WERE_HIGHER)
            };
            let bounds = (min, spec.max_replicas);
            let limited = by_rules(history, &up, &down, current, stable, bounds, now);
            (stable, reason, message, limited)
        }
    };
    history.recommendations.push((now, proposed));
    history.forget_old(now);
    let able = if stable == proposed {
        let message = "recommended size matches current size";
        Finding::new("AbleToScale", true, "ReadyForNewScale", message)
    } else {
        Finding::new("AbleToScale", true, reason, message)
    };
    let (reason, message) = limited;
    let limited = Finding::new("ScalingLimited", desired != stable, reason, message);
    (desired, [able, limited])
}

fn highest_recent(history: &History, proposed: i32, now: Timestamp) -> i32 {
    let recent = history.recommendations.iter();
    let recent = recent.filter(|(at, _)| is_within(*at, DOWNSCALE_STABILIZATION, now));
    recent.map(|(_, count)| *count).fold(proposed, i32::max)
}

fn between_recent(
    history: &History,
    up: &HPAScalingRules,
    down: &HPAScalingRules,
    current: i32,
    proposed: i32,
    now: Timestamp,
) -> i32 {
    let recent = |window: Duration| {
        let all = history.recommendations.iter();
        let recent = all.filter(move |(at, _)| is_after_start(*at, window, now));
        recent.map(|(_, count)| *count)
    };
    let up_window = seconds(up.stabilization_window_seconds.unwrap_or_default());
    let down_window = down.stabilization_window_seconds;
    let down_window = down_window.map_or(DOWNSCALE_STABILIZATION, seconds);
    let lowest = recent(up_window).fold(proposed, i32::min);
    let highest = recent(down_window).fold(proposed, i32::max);
    current.max(lowest).min(highest)
}

type Limited = (i32, (&'static str, &'static str));

/// Applies the limits of an autoscaler without a `behavior`: the size may double, or grow to four.
fn by_default(current: i32, desired: i32, min: i32, max: i32) -> Limited {
    let fastest = current.saturating_mul(2).max(4);
    let (most, why) = if max > fastest {
        (fastest, TOO_FAST)
    } else {
        (max, TOO_MANY)
    };
    if desired < min {
        (min, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    }
}

fn by_rules(
    history: &History,
    up: &HPAScalingRules,
    down: &HPAScalingRules,
    current: i32,
    desired: i32,
    (min, max): (i32, i32),
    now: Timestamp,
) -> Limited {
    if desired > current {
        let fastest = bound(history, up, current, true, now).max(current);
        let (most, why) = if max > fastest {
            (fastest, TOO_FAST)
        } else {
            (max, TOO_MANY)
        };
        if desired > most {
            return (most, why);
        }
    } else if desired < current {
        let fastest = bound(history, down, current, false, now).min(current);
        let (least, why) = if min < fastest {
            (fastest, TOO_FAST_DOWN)
        } else {
            (min, TOO_FEW)
        };
        if desired < least {
            return (least, why);
        }
    }
    (desired, WITHIN)
}

/// Returns the highest size that the policies allow or, if not `up`, the lowest.
fn bound(
    history: &History,
    rules: &HPAScalingRules,
    current: i32,
    up: bool,
    now: Timestamp,
) -> i32 {
    let select = rules.select_policy.as_deref().unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let defaults = default_policies(up);
    let policies = rules
        .policies
        .as_deref()
        .filter(|policies| !policies.is_empty());
    let sizes = policies.unwrap_or(&defaults).iter().map(|policy| {
        let before = history.size_before(current, policy.period_seconds, now);
        let percent = |factor: f64| f64::from(before) * factor;
        match (policy.type_.as_str(), up) {
            ("Pods", true) => before.saturating_add(policy.value),
            ("Pods", false) => before.saturating_sub(policy.value),
            (_, true) => ceil(percent(1.0 + f64::from(policy.value) / 100.0)),
            (_, false) => percent(1.0 - f64::from(policy.value) / 100.0) as i32,
        }
    });
    // The largest change is the highest number upwards and the lowest downwards.
    let size = if (select == "Min") == up {
        sizes.min()
    } else {
        sizes.max()
    };
    size.unwrap_or(current)
}

fn default_policies(up: bool) -> Vec<HPAScalingPolicy> {
    let policy = |type_: &str, value| HPAScalingPolicy {
        type_: type_.to_owned(),
        value,
        period_seconds: 15,
    };
    if up {
        vec![policy("Pods", 4), policy("Percent", 100)]
    } else {
        vec![policy("Percent", 100)]
    }
}

#[cfg(test)]
mod tests;
