use super::*;
use crate::source::ApiError;

fn page(version: &str, token: Option<&str>) -> Page {
    Page {
        resource_version: version.into(),
        continue_token: token.map(Into::into),
        remaining: None,
    }
}

fn gone(reason: &str) -> Result<Page, SourceError> {
    Err(ApiError::new(410, reason, "").into())
}

/// Proves reflector/pages.
#[test]
fn later_pages_are_requested_by_token_alone() {
    let mut pager = Pager::new(Some("7".into()), Some(500));
    assert_eq!(pager.request().resource_version.as_deref(), Some("7"));
    assert_eq!(pager.request().limit, Some(500));
    assert!(matches!(
        pager.handle(Ok(page("9", Some("a")))),
        Ok(Paging::More)
    ));
    let expected = ListOptions {
        continue_token: Some("a".into()),
        limit: Some(500),
        ..ListOptions::default()
    };
    assert_eq!(pager.request(), expected);
    assert!(matches!(
        pager.handle(Ok(page("10", Some("b")))),
        Ok(Paging::More)
    ));
    match pager.handle(Ok(page("11", None))) {
        Ok(Paging::Done(version)) => assert_eq!(version, "9"),
        other => panic!("{other:?}"),
    }
}

/// Proves reflector/pages.
#[test]
fn expired_token_leads_to_one_full_list() {
    let mut pager = Pager::new(Some("7".into()), Some(500));
    assert!(matches!(
        pager.handle(Ok(page("9", Some("a")))),
        Ok(Paging::More)
    ));
    assert!(matches!(
        pager.handle(gone("Expired")),
        Ok(Paging::StartOver)
    ));
    let whole = ListOptions {
        resource_version: Some("7".into()),
        ..ListOptions::default()
    };
    assert_eq!(pager.request(), whole);
    assert!(pager.handle(gone("Expired")).is_err(), "only once");
}

/// Proves reflector/pages.
#[test]
fn expired_first_page_is_an_error() {
    let mut pager = Pager::new(None, Some(500));
    assert!(pager.handle(gone("Expired")).is_err());
    let mut pager = Pager::new(None, Some(500));
    assert!(matches!(
        pager.handle(Ok(page("9", Some("a")))),
        Ok(Paging::More)
    ));
    assert!(pager.handle(gone("Gone")).is_err());
}

/// Proves reflector/pages.
#[test]
fn repeated_continue_token_is_an_error() {
    let mut pager = Pager::new(None, Some(500));
    assert!(matches!(
        pager.handle(Ok(page("9", Some("a")))),
        Ok(Paging::More)
    ));
    assert!(matches!(
        pager.handle(Ok(page("9", Some("a")))),
        Err(Reason::CircularList)
    ));
}
