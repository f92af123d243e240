//! Validates `CertificateSigningRequest`s, with upstream's messages.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{PERMANENT, VERDICTS, conditions};
use crate::{
    meta::{
        Tree,
        names::{NameRule, is_subdomain},
    },
    schema::field::FieldError,
    x509::{SigningRequest, check_certificates},
};

/// The usages a certificate may have, in the order in which messages list them.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// A signer of the API's first version, which can no longer be requested.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_EXPIRATION: i64 = 600;
const MAX_DOMAIN: usize = 253;
/// A domain, a slash, and a path of a label and a subdomain.
const MAX_SIGNER: usize = MAX_DOMAIN + 1 + (253 + 63 + 1);

type Errors = Vec<FieldError>;

/// Checks the spec of a new request; it never changes afterwards.
pub(super) fn check_spec(request: &Tree, errors: &mut Errors) {
    let spec = request.get("spec").unwrap_or(&Value::Null);
    let encoded = spec["request"].as_str().unwrap_or_default();
    let pem = STANDARD.decode(encoded).unwrap_or_default();
    if let Err(why) = SigningRequest::parse(&pem).and_then(|request| request.check_signature()) {
        errors.push(FieldError::invalid("spec.request", encoded, why));
    }
    let usages: Vec<&str> = spec["usages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if usages.is_empty() {
        errors.push(FieldError::required("spec.usages", ""));
    }
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(usage) {
            let here = format!("spec.usages[{i}]");
            errors.push(FieldError::not_supported(here, *usage, &USAGES));
        }
    }
    for (i, usage) in usages.iter().enumerate() {
        if usages[..i].contains(usage) {
            errors.push(FieldError::duplicate(format!("spec.usages[{i}]"), *usage));
        }
    }
    check_signer(spec["signerName"].as_str().unwrap_or_default(), errors);
    let expiration = spec["expirationSeconds"].as_i64();
    if let Some(seconds) = expiration.filter(|seconds| *seconds < MIN_EXPIRATION) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", seconds, why));
    }
}

fn check_signer(signer: &str, errors: &mut Errors) {
    let field = "spec.signerName";
    let invalid = |value: &str, why: String| FieldError::invalid(field, value, why);
    if signer.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    if signer == LEGACY_SIGNER {
        let why = "the legacy signerName is not allowed via this API version";
        errors.push(invalid(signer, why.to_owned()));
        return;
    }
    let parts = signer.split_once('/');
    let Some((domain, path)) = parts.filter(|(_, path)| !path.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(invalid(signer, why.to_owned()));
        return;
    };
    let too_long = |max: usize| FieldError::too_long(field, i64::try_from(max).unwrap_or(i64::MAX));
    if domain.len() > MAX_DOMAIN {
        errors.push(too_long(MAX_DOMAIN));
    }
    // Returns the errors of the first invalid label.
    let problems = |value: &str, check: fn(&str) -> Vec<String>| -> Errors {
        let labels = value.split('.').map(|label| (label, check(label)));
        let mut wrong = labels.filter(|(_, whys)| !whys.is_empty());
        let Some((label, whys)) = wrong.next() else {
            return Vec::new();
        };
        let whys = whys.into_iter();
        whys.map(|why| invalid(value, format!("validating label {label:?}: {why}")))
            .collect()
    };
    errors.extend(problems(domain, |label| {
        NameRule::Label.problems(label, false)
    }));
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(invalid(domain, why.to_owned()));
    }
    errors.extend(problems(path, is_subdomain));
    if signer.len() > MAX_SIGNER {
        errors.push(too_long(MAX_SIGNER));
    }
}

/// Checks the conditions. Violations that the stored request already has are tolerated.
pub(super) fn check_conditions(request: &Tree, stored: Option<&Tree>, errors: &mut Errors) {
    let before = stored.map_or(&[][..], conditions);
    let kind = |condition: &Value| condition["type"].as_str().unwrap_or_default().to_owned();
    let has = |conditions: &[Value], wanted: &str| {
        let mut kinds = conditions.iter().map(kind);
        kinds.any(|kind| kind == wanted)
    };
    let kinds: BTreeSet<String> = before.iter().map(kind).collect();
    let had_both = VERDICTS.iter().all(|verdict| has(before, verdict));
    let (had_duplicates, had_empty) = (kinds.len() < before.len(), has(before, ""));
    let now = conditions(request);
    for (i, condition) in now.iter().enumerate() {
        let (kind, at) = (kind(condition), format!("status.conditions[{i}]"));
        if kind.is_empty() && !had_empty {
            errors.push(FieldError::required(format!("{at}.type"), ""));
        }
        let allowed: &[&str] = if PERMANENT.contains(&&*kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        let status = condition["status"].as_str().unwrap_or_default();
        if status.is_empty() {
            errors.push(FieldError::required(format!("{at}.status"), ""));
        } else if !allowed.contains(&status) {
            let here = format!("{at}.status");
            errors.push(FieldError::not_supported(here, status, allowed));
        }
        let other = match &*kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && !had_both && has(&now[..i], other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid("status.conditions", kind.as_str(), why));
        }
        if has(&now[..i], &kind) && !had_duplicates {
            errors.push(FieldError::duplicate(format!("{at}.type"), kind));
        }
    }
}

/// Checks the certificate of a request, unless it is unchanged or the stored one is already
/// invalid.
pub(super) fn check_certificate(request: &Tree, stored: Option<&Tree>, errors: &mut Errors) {
    let certificate = |request: &Tree| {
        let status = request.get("status");
        let text = status.and_then(|status| status["certificate"].as_str());
        STANDARD
            .decode(text.unwrap_or_default())
            .unwrap_or_default()
    };
    let problem = |pem: &[u8]| match pem {
        [] => None,
        pem => check_certificates(pem).err(),
    };
    let (new, old) = (certificate(request), stored.map(certificate));
    if old.is_some_and(|old| old == new || problem(&old).is_some()) {
        return;
    }
    if let Some(why) = problem(&new) {
        let shown = "<certificate data>";
        errors.push(FieldError::invalid("status.certificate", shown, why));
    }
}

/// Returns true if an update replaces a certificate.
pub(super) fn replaces_certificate(request: &Tree, stored: &Tree) -> bool {
    let certificate = |request: &Tree| -> Option<String> {
        let text = request.get("status")?["certificate"].as_str()?;
        (!text.is_empty()).then(|| text.to_owned())
    };
    let old = certificate(stored);
    old.is_some() && certificate(request) != old
}
