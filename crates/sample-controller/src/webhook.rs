//! The optional validating webhook: it rejects Foos without a deployment name.
//!
//! Upstream's CRD accepts such a Foo, and the controller can only report it. With the webhook the
//! author of the Foo sees the mistake immediately.

use pintle::webhook::{Admission, Denied, WebhookServer};

use crate::foo::Foo;

/// Returns the webhooks of the program.
pub fn server() -> WebhookServer {
    WebhookServer::new().validate("/validate", validate)
}

async fn validate(admission: Admission<Foo>) -> Result<(), Denied> {
    match admission.object {
        Some(foo) if foo.spec.deployment_name.is_empty() => Err(Denied::invalid(
            "spec.deploymentName: Required value: must name the Deployment to manage",
        )),
        _ => Ok(()),
    }
}
