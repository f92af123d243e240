//! Decides what happens to a `CertificateSigningRequest`. Pure functions of the request and the
//! time.

use std::{ops::Range, time::Duration};

use jiff::{Timestamp, ToSpan};
use k8s_openapi::{
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use pintle_apiserver::{AlternativeName, SigningRequest};

use crate::{meta, pods::plan::remaining};

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// How long requests are kept after they were issued, denied or failed.
const DECIDED: Duration = Duration::from_hours(1);
/// How long undecided or unsigned requests are kept.
const PENDING: Duration = Duration::from_hours(24);
/// Maximum validity of a certificate, in seconds.
const LONGEST: i64 = 365 * 24 * 3600;
/// Minimum validity of a certificate, in seconds.
const SHORTEST: i64 = 600;
/// How far `notBefore` is backdated to tolerate clock skew, in seconds.
const BACKDATE: i64 = 300;
/// Below this validity, in seconds, `notAfter` is not backdated.
const SHORT: i64 = 8 * 3600;

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    None,
    /// Approve it if the requester may create one of these subresources, with the message of the
    /// first allowed one.
    Review(Vec<(&'static str, &'static str)>),
    /// Issue a certificate that is valid in this period.
    Sign(Range<Timestamp>),
    /// Its signer does not sign such requests.
    Fail(String),
}

/// Parses the PKCS#10 request.
pub(super) fn parsed(request: &CertificateSigningRequest) -> Result<SigningRequest, String> {
    SigningRequest::parse(&request.spec.request.0)
}

fn conditions(
    request: &CertificateSigningRequest,
) -> impl Iterator<Item = &CertificateSigningRequestCondition> {
    let status = request.status.iter();
    status.flat_map(|status| status.conditions.iter().flatten())
}

fn has(request: &CertificateSigningRequest, type_: &str) -> bool {
    conditions(request).any(|it| it.type_ == type_)
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request
        .status
        .as_ref()
        .and_then(|it| it.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

pub(super) fn condition(
    type_: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: type_.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(meta::time(now)),
        last_transition_time: None,
    }
}

/// Decides about a request.
pub(super) fn plan(request: &CertificateSigningRequest, now: Timestamp) -> Step {
    if is_issued(request) || has(request, "Denied") || has(request, "Failed") {
        return Step::None;
    }
    // The server has validated it.
    let Ok(parsed) = parsed(request) else {
        return Step::None;
    };
    let usages: Vec<&str> = request
        .spec
        .usages
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let signer = request.spec.signer_name.as_str();
    if has(request, "Approved") {
        let problem = match signer {
            CLIENT => client_problem(&usages),
            KUBELET_CLIENT => kubelet_client_problem(&parsed, &usages),
            KUBELET_SERVING => kubelet_serving_problem(&parsed, &usages),
            LEGACY => None,
            _ => return Step::None,
        };
        return problem.map_or_else(|| Step::Sign(validity(request, now)), Step::Fail);
    }
    if signer != KUBELET_CLIENT || kubelet_client_problem(&parsed, &usages).is_some() {
        return Step::None;
    }
    let mut permissions = vec![(
        "nodeclient",
        "Auto approving kubelet client certificate after SubjectAccessReview.",
    )];
    if parsed.common_name() == request.spec.username {
        let own = "Auto approving self kubelet client certificate after SubjectAccessReview.";
        permissions.insert(0, ("selfnodeclient", own));
    }
    Step::Review(permissions)
}

/// Returns when a certificate issued now is valid.
fn validity(request: &CertificateSigningRequest, now: Timestamp) -> Range<Timestamp> {
    let wanted = request.spec.expiration_seconds.map_or(LONGEST, i64::from);
    let lifetime = wanted.clamp(SHORTEST, LONGEST);
    let until = if lifetime < SHORT {
        lifetime
    } else {
        lifetime - BACKDATE
    };
    let at = |seconds: i64| now.saturating_add(seconds.seconds()).unwrap_or(now);
    at(-BACKDATE)..at(until)
}

fn client_problem(usages: &[&str]) -> Option<String> {
    let optional = ["digital signature", "key encipherment"];
    let mut unknown = usages
        .iter()
        .filter(|it| **it != "client auth" && !optional.contains(it));
    if let Some(usage) = unknown.next() {
        return Some(format!("invalid usage for client certificate: {usage}"));
    }
    (!usages.contains(&"client auth"))
        .then(|| "missing required usage for client certificate: client auth".to_owned())
}

/// Returns why a request is not a valid node request, or `None` if it is.
fn node_problem(
    parsed: &SigningRequest,
    usages: &[&str],
    purpose: &str,
    names: impl Fn(&[AlternativeName]) -> Option<&'static str>,
) -> Option<String> {
    if parsed.organizations()? != ["system:nodes"] {
        return Some("subject organization is not system:nodes".to_owned());
    }
    if let Some(problem) = names(&parsed.alternative_names()?) {
        return Some(problem.to_owned());
    }
    let mut sorted = usages.to_vec();
    sorted.sort_unstable();
    let mut required = vec!["digital signature", "key encipherment", purpose];
    required.sort_unstable();
    let mut without_rsa = vec!["digital signature", purpose];
    without_rsa.sort_unstable();
    let common_name = parsed.common_name()?;
    if sorted != required && sorted != without_rsa {
        return Some(format!("usages did not match [{}]", required.join(" ")));
    }
    (!common_name.starts_with("system:node:"))
        .then(|| "subject common name does not begin with system:node:".to_owned())
}

fn kubelet_client_problem(parsed: &SigningRequest, usages: &[&str]) -> Option<String> {
    use AlternativeName::{Address, Dns, Email, Uri};
    let refused = [
        (Dns, "DNS subjectAltNames are not allowed"),
        (Email, "Email subjectAltNames are not allowed"),
        (Address, "IP subjectAltNames are not allowed"),
        (Uri, "URI subjectAltNames are not allowed"),
    ];
    node_problem(parsed, usages, "client auth", |names| {
        let mut refused = refused.iter().filter(|(kind, _)| names.contains(kind));
        refused.next().map(|(_, why)| *why)
    })
}

fn kubelet_serving_problem(parsed: &SigningRequest, usages: &[&str]) -> Option<String> {
    use AlternativeName::{Address, Dns, Email, Uri};
    node_problem(parsed, usages, "server auth", |names| {
        if !names.contains(&Dns) && !names.contains(&Address) {
            Some("DNS or IP subjectAltName is required")
        } else if names.contains(&Email) {
            Some("Email subjectAltNames are not allowed")
        } else {
            (names.contains(&Uri)).then_some("URI subjectAltNames are not allowed")
        }
    })
}

/// Returns how long a request is kept; it is deleted at zero.
///
/// kube-controller-manager checks every hour, so a request may live up to an hour longer there.
pub(super) fn expires_in(request: &CertificateSigningRequest, now: Timestamp) -> Duration {
    let at = |time: Option<&Time>| time.map(|Time(at)| *at);
    let created = at(request.metadata.creation_timestamp.as_ref()).unwrap_or(now);
    let decided = conditions(request).filter_map(|it| {
        let limit = match it.type_.as_str() {
            "Denied" | "Failed" => DECIDED,
            "Approved" if is_issued(request) => DECIDED,
            "Approved" => PENDING,
            _ => return None,
        };
        Some(remaining(at(it.last_update_time.as_ref())?, limit, now))
    });
    decided
        .min()
        .unwrap_or_else(|| remaining(created, PENDING, now))
}

#[cfg(test)]
mod tests;
