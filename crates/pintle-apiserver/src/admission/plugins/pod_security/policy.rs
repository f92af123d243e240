//! The policy of a namespace: which Pod Security Standard, in which version, for which mode.

use std::{fmt, str::FromStr};

use crate::schema::field::FieldError;

/// The prefix of the labels, and of audit annotations.
pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

/// A Pod Security Standard, the least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl FromStr for Level {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

/// The Kubernetes version whose checks apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// `v1.x`
    Minor(u32),
    Latest,
}

impl FromStr for Version {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let minor = text.strip_prefix("v1.").filter(|minor| {
            minor.bytes().all(|b| b.is_ascii_digit()) && (*minor == "0" || !minor.starts_with('0'))
        });
        match (text, minor.map(str::parse)) {
            ("latest", _) => Ok(Self::Latest),
            (_, Some(Ok(minor))) => Ok(Self::Minor(minor)),
            _ => Err("must be \"latest\" or \"v1.x\""),
        }
    }
}

/// A level as a version defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standard {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl Standard {
    const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged:",
            Level::Baseline => "baseline:",
            Level::Restricted => "restricted:",
        })?;
        match self.version {
            Version::Latest => f.write_str("latest"),
            Version::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// The standard of each mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: Standard,
    pub(super) audit: Standard,
    pub(super) warn: Standard,
}

impl Policy {
    /// Reads the labels of a namespace; `labels` returns the value of a key. Invalid labels are
    /// returned as errors: an invalid level counts as `restricted` for `enforce` and as
    /// `privileged` for the other modes, an invalid version as `latest`.
    pub(super) fn of<'a>(labels: impl Fn(&str) -> Option<&'a str>) -> (Self, Vec<FieldError>) {
        let labels: Labels<'_, 'a> = &labels;
        let mut errors = Vec::new();
        let enforce = mode(labels, "enforce", Level::Restricted, &mut errors);
        let audit = mode(labels, "audit", Level::Privileged, &mut errors);
        let mut warn = mode(labels, "warn", Level::Privileged, &mut errors);
        // Users are warned about what is enforced, for example when they create a Deployment.
        let enforced = enforce.level.filter(|_| enforce.is_valid);
        if warn.level.is_none() {
            warn.level = enforced;
            if enforced.is_some_and(|level| level > Level::Privileged) {
                warn.version = warn.version.or(enforce.version);
            }
        }
        let policy = Self {
            enforce: enforce.standard(),
            audit: audit.standard(),
            warn: warn.standard(),
        };
        (policy, errors)
    }

    /// Returns true if no mode has a check.
    pub(super) fn is_privileged(&self) -> bool {
        let mut all = [self.enforce, self.audit, self.warn].into_iter();
        all.all(|standard| standard.level == Level::Privileged)
    }
}

/// A function that returns the value of a label.
type Labels<'f, 'a> = &'f dyn Fn(&str) -> Option<&'a str>;

/// The labels of one mode, if it has them.
struct Mode {
    level: Option<Level>,
    version: Option<Version>,
    is_valid: bool,
}

impl Mode {
    fn standard(&self) -> Standard {
        Standard {
            level: self.level.unwrap_or(Standard::PRIVILEGED.level),
            version: self.version.unwrap_or(Standard::PRIVILEGED.version),
        }
    }
}

/// Reads the labels of a mode; an invalid level counts as `fallback`.
fn mode(labels: Labels<'_, '_>, name: &str, fallback: Level, errors: &mut Vec<FieldError>) -> Mode {
    let level = label::<Level>(labels, name, errors);
    let version = label::<Version>(labels, &format!("{name}-version"), errors);
    Mode {
        is_valid: matches!(level, Some(Ok(_))),
        level: level.map(|level| level.unwrap_or(fallback)),
        version: version.map(|version| version.unwrap_or(Version::Latest)),
    }
}

fn label<T: FromStr<Err = &'static str>>(
    labels: Labels<'_, '_>,
    name: &str,
    errors: &mut Vec<FieldError>,
) -> Option<Result<T, ()>> {
    let key = format!("{PREFIX}{name}");
    let text = labels(&key)?;
    Some(text.parse().map_err(|why: &str| {
        errors.push(FieldError::invalid(
            format!("metadata.labels[{key}]"),
            text,
            why,
        ));
    }))
}
