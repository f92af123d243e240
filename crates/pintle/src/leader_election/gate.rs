//! A client that writes only during this replica's term.

use std::future::Future;

use http::{Method, Request, header};
use http_body::Body as _;
use kube::{Client, client::Body};
use tokio::{sync::watch, time::Instant};

use super::{Leadership, leadership::State};

/// A write was rejected or cancelled because this replica does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLeading {
    /// The write was not sent.
    #[error("not the leader; write not sent")]
    NotSent,
    /// The term ended while the write was in flight. The API server may have executed it.
    #[error("lost leadership during the write; it may have been executed")]
    Cancelled,
}

impl NotLeading {
    /// Returns the reason if `error` comes from a gated client that rejected or cancelled a write.
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
    /// Returns a client that sends reads as `client` does, and writes only while this replica
    /// leads.
    ///
    /// A write outside a term fails with [`NotLeading::NotSent`]; one that is in flight when its
    /// term ends is cancelled and fails with [`NotLeading::Cancelled`], even if another term of
    /// this replica has begun. Both are reported as [`kube::Error::Service`]; see
    /// [`NotLeading::find`].
    ///
    /// These count as reads, because they change nothing:
    ///
    /// - GET, HEAD and OPTIONS, except the connections below;
    /// - dry runs, by `dryRun=All` in the query. A deletion with a body, such as every
    ///   [`Api::delete`](kube::Api::delete), is a write even if the body asks for a dry run,
    ///   because bodies are not inspected;
    /// - creating an access, rules, token or self-subject review.
    ///
    /// Everything else is a write. So are, with any method, connections through the API server: the
    /// subresources `exec`, `attach`, `portforward` and `proxy` and all requests that upgrade to
    /// another protocol. Such a connection cannot be opened outside a term, but the gate does not
    /// close one that is open when its term ends; watch [`Term::ended`](super::Term::ended) and
    /// close it.
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

    /// Runs `write`, but only until the term in which it started ends.
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

/// Resolves when the term `number` ends, by the clock or because the elector ended it.
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

/// Subresources that open a connection through the API server. The gate cannot see how the caller
/// uses it, so even a GET counts as a write.
const CONNECT: [&str; 4] = ["exec", "attach", "portforward", "proxy"];

/// Resources whose creation is a query and stores nothing.
const REVIEWS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Returns whether a request may change something. If unsure, the answer is yes.
fn is_write(request: &Request<Body>) -> bool {
    let target = Target::parse(request.uri().path());
    let connects = target
        .as_ref()
        .is_some_and(|target| CONNECT.contains(&target.subresource));
    if connects || request.headers().contains_key(header::UPGRADE) {
        return true;
    }
    match (request.method(), target) {
        (&Method::GET | &Method::HEAD | &Method::OPTIONS, _) => false,
        (_, None) => true,
        (&Method::POST, Some(target)) if target.is_review() => false,
        // The options of a deletion are in its body, or in the query if there is no body.
        (&Method::DELETE, Some(_)) if !request.body().is_end_stream() => true,
        (_, Some(_)) => {
            let query = request.uri().query().unwrap_or_default();
            !query.split('&').any(|pair| pair == "dryRun=All")
        }
    }
}

/// The resource that the path of an API request names.
struct Target<'a> {
    /// Empty for the core group.
    group: &'a str,
    resource: &'a str,
    /// Empty for the resource itself.
    subresource: &'a str,
}

impl<'a> Target<'a> {
    /// Splits a path as the API server does; `None` if it is not below `/api` or `/apis`.
    fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let mut parts: Vec<&str> = parts.collect();
        // A namespace's own subresources are not resources in it.
        let in_namespace = parts.first() == Some(&"namespaces")
            && !matches!(parts.get(2), None | Some(&"status" | &"finalize"));
        if in_namespace {
            parts.drain(..2);
        }
        let part = |index: usize| parts.get(index).copied().unwrap_or_default();
        Some(Self {
            group,
            resource: part(0),
            subresource: part(2),
        })
    }

    fn is_review(&self) -> bool {
        self.subresource.is_empty() && REVIEWS.contains(&(self.group, self.resource))
    }
}

#[cfg(test)]
mod tests;
