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

/// Proves controller/failure-log.
#[test]
fn server_message_appears_once_however_wrapped() {
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
fn failed_connection_names_its_cause() {
    let refused = std::io::Error::other("connection refused");
    let error = kube::Error::Service(Box::new(refused));
    assert_eq!(describe(&error), "connection refused");
}

#[test]
fn status_without_message_shows_code_and_reason() {
    let status = |reason, code| Status::failure("", reason).with_code(code);
    assert_eq!(refusal(&status("", 404)), "404 Not Found");
    assert_eq!(refusal(&status("Gone", 0)), "Gone");
    assert_eq!(refusal(&status("", 0)), "request failed");
}
