//! A client that writes only during this replica's term.

use std::future::Future;

use http::{Method, Request};
use kube::{Client, client::Body};
use tokio::{sync::watch, time::Instant};

use super::{Leadership, leadership::State};

/// A write was refused or cancelled because this replica does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLeading {
    /// The write was not sent.
    #[error("this replica does not lead; the write was not sent")]
    NotSent,
    /// The term ended while the write was under way. The API server may have executed it.
    #[error("this replica's term ended during the write; it may have been executed")]
    Cancelled,
}

impl NotLeading {
    /// Returns the reason if `error` comes from a gated client that refused or cancelled a write.
    pub fn find(error: &kube::Error) -> Option<Self> {
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(*found);
            }
            // `kube::Error` does not report the boxed error of its service as a source.
            next = match error.downcast_ref::<kube::Error>() {
                Some(kube::Error::Service(inner)) => Some(&**inner),
                _ => error.source(),
            };
        }
        None
    }
}

impl Leadership {
    /// Returns a client that sends reads as `client` does, and writes only while this replica leads.
    ///
    /// A write outside a term fails with [`NotLeading::NotSent`]; one that is under way when its
    /// term ends is cancelled and fails with [`NotLeading::Cancelled`], even if another term of this
    /// replica has begun. Both are reported as [`kube::Error::Service`]; see [`NotLeading::find`].
    ///
    /// Dry runs and access reviews change nothing and count as reads.
    pub fn gate(&self, client: &Client) -> Client {
        let (leadership, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (leadership, inner) = (leadership.clone(), inner.clone());
            async move {
                if !is_write(&request) {
                    return inner.send(request).await;
                }
                let sent = leadership.during_term(inner.send(request)).await;
                sent.unwrap_or_else(|refusal| Err(kube::Error::Service(refusal.into())))
            }
        });
        Client::new(service, client.default_namespace())
    }

    /// Runs `write` for as long as the term lasts in which it starts.
    async fn during_term<T>(&self, write: impl Future<Output = T>) -> Result<T, NotLeading> {
        let mut states = self.subscribe();
        let standing = states.borrow_and_update().standing(Instant::now());
        let (term, _) = standing.ok_or(NotLeading::NotSent)?;
        tokio::select! {
            biased;
            () = end_of(term, &mut states) => Err(NotLeading::Cancelled),
            answer = write => Ok(answer),
        }
    }
}

/// Completes when the term `number` is over, by the clock or by the elector's word.
async fn end_of(number: u64, states: &mut watch::Receiver<State>) {
    loop {
        let standing = states.borrow_and_update().standing(Instant::now());
        let Some((_, until)) = standing.filter(|(current, _)| *current == number) else {
            return;
        };
        tokio::select! {
            biased;
            changed = states.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// Whether a request can change what the API server stores.
fn is_write(request: &Request<Body>) -> bool {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    if reads.contains(request.method()) {
        return false;
    }
    let reviews = [
        "/apis/authorization.k8s.io/",
        "/apis/authentication.k8s.io/",
    ];
    let path = request.uri().path();
    if reviews.iter().any(|group| path.starts_with(group)) {
        return false;
    }
    let query = request.uri().query().unwrap_or_default();
    !query.split('&').any(|pair| pair == "dryRun=All")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_change_something_are_writes() {
        let is_write = |method: &str, uri: &str| {
            let request = Request::builder().method(method).uri(uri);
            is_write(&request.body(Body::empty()).unwrap())
        };
        let pods = "/api/v1/namespaces/default/pods";
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert!(is_write(method, pods), "{method}");
            assert!(!is_write(
                method,
                &format!("{pods}?fieldManager=x&dryRun=All")
            ));
        }
        assert!(!is_write("GET", pods));
        assert!(!is_write(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        ));
        assert!(is_write(
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/a/token"
        ));
    }
}
