//! The text form of a plan.

use std::{fmt, str::FromStr, time::Duration};

use super::{Fault, Occurrence, Pace, Plan, Point};

/// A replay token that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid replay token: {0}")]
pub struct TokenError(String);

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults.is_empty() {
            f.write_str("no-fault")?;
        }
        for (i, (fault, point)) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            write!(f, "{}@{point}", fault.name())?;
        }
        write!(f, ";pace={}", self.pace.as_str())?;
        if !self.steps.is_empty() {
            let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
            write!(f, ";steps={}", steps.join(","))?;
        }
        if self.seed != 0 {
            write!(f, ";seed={}", self.seed)?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let mut parts = text.trim().split(';');
        let mut plan = Self::default();
        let faults = parts.next().unwrap_or_default();
        if faults != "no-fault" {
            for fault in faults.split('+') {
                plan.faults.push(fault_at(fault)?);
            }
        }
        for part in parts {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| TokenError(format!("expected name=value, found {part:?}")))?;
            match (name, value) {
                ("pace", "paced") => plan.pace = Pace::Paced,
                ("pace", "rapid") => plan.pace = Pace::Rapid,
                ("seed", value) => plan.seed = number(value)?,
                ("steps", value) => {
                    plan.steps = value.split(',').map(number).collect::<Result<_, _>>()?;
                }
                _ => return Err(TokenError(format!("unknown part {part:?}"))),
            }
        }
        Ok(plan)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, TokenError> {
    text.parse()
        .map_err(|_| TokenError(format!("{text:?} is not a number")))
}

fn fault_at(text: &str) -> Result<(Fault, Point), TokenError> {
    let (name, point) = text
        .split_once('@')
        .ok_or_else(|| TokenError(format!("expected fault@point, found {text:?}")))?;
    let point = if let Some(object) = point.strip_prefix("end/") {
        Point::End(object.to_owned())
    } else if let Some(step) = point.strip_prefix("step/") {
        match step.split_once('/') {
            None => Point::Step(number(step)?),
            Some((step, occurrence)) => occurs(Some(number(step)?), occurrence)?,
        }
    } else {
        occurs(None, point)?
    };
    Ok((fault(name)?, point))
}

/// Parses a request or an event with its number.
fn occurs(step: Option<usize>, text: &str) -> Result<Point, TokenError> {
    let (fingerprint, nth) = text
        .rsplit_once('#')
        .ok_or_else(|| TokenError(format!("{text:?} has no #occurrence")))?;
    let occurrence = Occurrence {
        step,
        fingerprint: fingerprint.to_owned(),
        nth: number(nth)?,
    };
    let is_event = fingerprint.starts_with(|first: char| first.is_ascii_uppercase());
    Ok(if is_event {
        Point::Event(occurrence)
    } else {
        Point::Request(occurrence)
    })
}

fn fault(name: &str) -> Result<Fault, TokenError> {
    let plain = [
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::LostResponse,
        Fault::Refused,
        Fault::ServerRestart,
        Fault::UserDelete,
        Fault::UserNext,
        Fault::UserRecreate,
        Fault::Cut,
        Fault::Gone,
        Fault::Unobserved,
        Fault::TimeTravel,
        Fault::DriftDelete,
        Fault::DriftEdit,
        Fault::DriftHeld,
        Fault::Stopped,
        Fault::HeldFinalizer,
        Fault::CrdUpgrade,
        Fault::LateWrite,
        Fault::Overlap,
        Fault::Paused,
        Fault::Defaulting,
        Fault::Timeout,
        Fault::NamespaceDelete,
    ];
    if let Some(fault) = plain.into_iter().find(|fault| fault.name() == name) {
        return Ok(fault);
    }
    if let Some(code) = name.strip_prefix("error-") {
        return Ok(Fault::Error(number(code)?));
    }
    if let Some((code, times)) = name
        .strip_prefix("errors-")
        .and_then(|rest| rest.split_once('x'))
    {
        return Ok(Fault::Errors(number(code)?, number(times)?));
    }
    if let Some(times) = name.strip_prefix("rival-") {
        return Ok(Fault::Rival(number(times)?));
    }
    if let Some(by) = name
        .strip_prefix("delay-")
        .and_then(|rest| rest.strip_suffix("ms"))
    {
        return Ok(Fault::Delay(Duration::from_millis(number(by)?)));
    }
    Err(TokenError(format!("unknown fault {name:?}")))
}

#[cfg(test)]
mod tests;
