//! Describes errors in one readable sentence.

use std::error::Error;

use kube::core::Status;

/// The maximum number of causes to follow, because a chain may loop.
const DEPTH: usize = 16;

/// Describes an error and its causes, each once, with the server's own message in place of
/// `kube::Error::Api`'s debug output.
///
/// `kube::Error` prints an error response twice, the second time as a Rust struct, and printing its
/// source adds a third copy. Use this wherever an error that may contain one is shown to a person.
///
/// # Examples
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
        // "ServiceError: " adds nothing to the cause.
        Some(kube::Error::Service(cause)) if depth > 0 => return text(&**cause, depth - 1),
        _ => {}
    }
    let own = error.to_string();
    let Some(cause) = error.source().filter(|_| depth > 0) else {
        return own;
    };
    let (verbose, brief) = match status_of(cause) {
        // A wrapper that is transparent to `kube::Error` shows its text and shares its source.
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

/// Formats the code, reason and message, as far as the server sent them.
fn refusal(status: &Status) -> String {
    let code = http::StatusCode::from_u16(status.code).ok();
    let title = match (status.reason.as_str(), code) {
        ("", Some(code)) => code.to_string(),
        ("", None) => "request failed".to_owned(),
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
mod tests;
