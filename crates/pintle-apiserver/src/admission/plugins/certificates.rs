//! `CertificateApproval`, `CertificateSigning` and `CertificateSubjectRestriction`: restrict who
//! may approve or sign certificate requests for a signer, and reject client certificates for
//! `system:masters`.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::refused;
use crate::{
    admission::{Operation, Plugin, Request},
    api::{ADMINISTRATORS, Api, ApiError},
    authz::access::{Access, Resource},
    meta::Tree,
    x509::SigningRequest,
};

const GROUP: &str = "certificates.k8s.io";
/// The signer of client certificates that kube-apiserver accepts for authentication.
const CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

#[derive(Debug)]
pub(crate) enum Certificates {
    Approval,
    Signing,
    SubjectRestriction,
}

impl Plugin for Certificates {
    fn name(&self) -> &'static str {
        match self {
            Self::Approval => "CertificateApproval",
            Self::Signing => "CertificateSigning",
            Self::SubjectRestriction => "CertificateSubjectRestriction",
        }
    }

    fn validates(&self, _: &Api, request: &Request<'_>) -> bool {
        let (operation, sub) = match self {
            Self::Approval => (Operation::Update, "approval"),
            Self::Signing => (Operation::Update, "status"),
            Self::SubjectRestriction => (Operation::Create, ""),
        };
        request.operation == operation
            && request.sub == sub
            && request.is_for(GROUP, "certificatesigningrequests")
    }

    fn check(&self, api: &Api, request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
        match self {
            Self::Approval => check_signer(api, request, "approve"),
            Self::Signing => {
                let signed = |tree: &Tree| {
                    let status = tree.get("status").cloned().unwrap_or_default();
                    (status["certificate"].clone(), status["conditions"].clone())
                };
                if request.old.map(signed) == Some(signed(object)) {
                    Ok(())
                } else {
                    check_signer(api, request, "sign")
                }
            }
            Self::SubjectRestriction => check_subject(request, object),
        }
    }
}

fn spec<'a>(object: Option<&'a Tree>, field: &str) -> &'a str {
    let spec = object.and_then(|object| object.get("spec"));
    let text = spec
        .and_then(|spec| spec.get(field))
        .and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Checks that the user may approve or sign for the signer that the stored request names.
fn check_signer(api: &Api, request: &Request<'_>, verb: &str) -> Result<(), ApiError> {
    let signer = spec(request.old, "signerName");
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let signers = Resource {
            group: GROUP.into(),
            plural: "signers".into(),
            name: name.into(),
            ..Resource::default()
        };
        if api
            .authorize(request.user, &Access::to(verb, signers))
            .is_allowed()
        {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(refused(request, request.old, &why))
}

/// Rejects client certificate requests whose subject includes `system:masters`.
fn check_subject(request: &Request<'_>, object: &Tree) -> Result<(), ApiError> {
    if spec(Some(object), "signerName") != CLIENTS {
        return Ok(());
    }
    let refuse = |why: &str| Err(refused(request, Some(object), why));
    let pem = STANDARD
        .decode(spec(Some(object), "request"))
        .unwrap_or_default();
    let organizations = match SigningRequest::parse(&pem) {
        Ok(parsed) => parsed.organizations().unwrap_or_default(),
        Err(why) => return refuse(&format!("failed to parse CSR: {why}")),
    };
    if organizations.iter().any(|name| name == ADMINISTRATORS) {
        return refuse(&format!(
            "use of {CLIENTS} signer with {ADMINISTRATORS} group is not allowed"
        ));
    }
    Ok(())
}
