//! Errors as one sentence a person can read.

use std::error::Error;

use kube::core::Status;

/// How many causes are looked at: a chain that loops must not hold us.
const DEPTH: usize = 16;

/// Describes an error and its causes, each once, with the server's own message in place of
/// `kube::Error::Api`'s debug output.
///
/// `kube::Error` prints a refusal twice, the second time as a Rust struct, and printing its source
/// adds a third copy. Use this wherever an error that may hold one is shown to a person.
///
/// ```
/// use kube::core::Status;
/// use pintle::client::describe;
///
/// let status = Status::failure("foos \"a\" is forbidden", "Forbidden").with_code(403);
/// let error = kube::Error::Api(status.boxed());
/// assert_eq!(describe(&error), "403 Forbidden: foos \"a\" is forbidden");
/// ```
pub fn describe(error: &(dyn Error + 'static)) -> String {
    text(error, DEPTH)
}

fn text(error: &(dyn Error + 'static), depth: usize) -> String {
    if let Some(status) = status_of(error) {
        return refusal(status);
    }
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => return refusal(status),
        // "ServiceError: " says nothing that the cause does not.
        Some(kube::Error::Service(cause)) if depth > 0 => return text(&**cause, depth - 1),
        _ => {}
    }
    let own = error.to_string();
    let Some(cause) = error.source().filter(|_| depth > 0) else {
        return own;
    };
    let (verbose, brief) = match status_of(cause) {
        // A wrapper that is transparent to `kube::Error` shows its text and has its source.
        Some(status) => (
            kube::Error::Api(Box::new(status.clone())).to_string(),
            refusal(status),
        ),
        None => (cause.to_string(), text(cause, depth - 1)),
    };
    if !verbose.is_empty() && own.contains(&verbose) {
        own.replace(&verbose, &brief)
    } else if own.contains(&brief) {
        own
    } else {
        format!("{own}: {brief}")
    }
}

fn status_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    let boxed = error.downcast_ref::<Box<Status>>().map(|status| &**status);
    boxed.or_else(|| error.downcast_ref())
}

/// The code, the reason and the message, as far as the server sent them.
fn refusal(status: &Status) -> String {
    let code = http::StatusCode::from_u16(status.code).ok();
    let title = match (status.reason.as_str(), code) {
        ("", Some(code)) => code.to_string(),
        ("", None) => "refused".to_owned(),
        (reason, Some(code)) => format!("{} {reason}", code.as_u16()),
        (reason, None) => reason.to_owned(),
    };
    if status.message.is_empty() {
        title
    } else {
        format!("{title}: {}", status.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Wrapped {
        #[error("creating the Job failed: {0}")]
        Shown(#[source] kube::Error),
        #[error("creating the Job failed")]
        Hidden(#[source] kube::Error),
        #[error(transparent)]
        Transparent(#[from] kube::Error),
        #[error("outer")]
        Twice(#[source] Box<Wrapped>),
    }

    fn conflict() -> kube::Error {
        let status = Status::failure("the object has been modified", "Conflict");
        kube::Error::Api(status.with_code(409).boxed())
    }

    /// Proves controller/readable-errors.
    #[test]
    fn server_message_is_said_once_however_it_is_wrapped() {
        let brief = "409 Conflict: the object has been modified";
        assert_eq!(describe(&conflict()), brief);
        assert_eq!(describe(&Wrapped::Transparent(conflict())), brief);
        let long = format!("creating the Job failed: {brief}");
        assert_eq!(describe(&Wrapped::Shown(conflict())), long);
        assert_eq!(describe(&Wrapped::Hidden(conflict())), long);
        let twice = Wrapped::Twice(Box::new(Wrapped::Shown(conflict())));
        assert_eq!(describe(&twice), format!("outer: {long}"));
    }

    #[test]
    fn causes_of_a_failed_connection_are_named() {
        let refused = std::io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(describe(&error), "connection refused");
    }

    #[test]
    fn status_without_a_message_is_its_code_and_reason() {
        let status = |reason, code| Status::failure("", reason).with_code(code);
        assert_eq!(refusal(&status("", 404)), "404 Not Found");
        assert_eq!(refusal(&status("Gone", 0)), "Gone");
        assert_eq!(refusal(&status("", 0)), "refused");
    }
}
