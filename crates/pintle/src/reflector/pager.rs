//! Reading one list in pages.

use crate::source::{ListOptions, Page, SourceError, VersionMatch};

use super::status::Reason;

/// Goes through the pages of one list. It only decides what to ask for; asking is the caller's.
///
/// The first request states the version; each further one only the token of the page before. If
/// a token expires on the way, what was read is worth nothing, and the whole list is asked for once
/// more in one piece. The list's version is that of its first page.
#[derive(Debug)]
pub(super) struct Pager {
    first: ListOptions,
    version: Option<String>,
    token: Option<String>,
    whole: bool,
}

/// What follows after an answer.
#[derive(Debug)]
pub(super) enum Paging {
    /// Ask for the next page.
    More,
    /// Forget all items and ask again.
    StartOver,
    /// The list is complete, at this version.
    Done(String),
}

impl Pager {
    pub(super) fn new(resource_version: Option<String>, limit: Option<u32>) -> Self {
        let first = ListOptions {
            resource_version,
            limit,
            ..ListOptions::default()
        };
        Self {
            first,
            version: None,
            token: None,
            whole: false,
        }
    }

    /// The list at exactly this version, in one piece.
    pub(super) fn exactly(version: &str) -> Self {
        let mut pager = Self::new(Some(version.to_owned()), None);
        pager.first.resource_version_match = Some(VersionMatch::Exact);
        pager
    }

    /// The next request.
    pub(super) fn request(&self) -> ListOptions {
        match &self.token {
            Some(token) => ListOptions {
                limit: self.first.limit,
                continue_token: Some(token.clone()),
                ..ListOptions::default()
            },
            None if self.whole => ListOptions {
                limit: None,
                ..self.first.clone()
            },
            None => self.first.clone(),
        }
    }

    /// The answer to that request.
    pub(super) fn answered(&mut self, answer: Result<Page, SourceError>) -> Result<Paging, Reason> {
        match answer {
            Ok(page) => {
                let version = self.version.get_or_insert(page.resource_version);
                match page.continue_token {
                    None => Ok(Paging::Done(std::mem::take(version))),
                    token if token == self.token => Err(Reason::CircularList),
                    token => {
                        self.token = token;
                        Ok(Paging::More)
                    }
                }
            }
            // Exactly this reason, and only for a later page: the first page's errors are about
            // the version, which is not ours to change.
            Err(SourceError::Api(error))
                if error.is_expired_token() && self.token.is_some() && !self.whole =>
            {
                self.whole = true;
                self.token = None;
                self.version = None;
                Ok(Paging::StartOver)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// Proves reflector/continue-by-token.
    #[test]
    fn later_pages_ask_by_token_alone_and_the_first_gives_the_version() {
        let mut pager = Pager::new(Some("7".into()), Some(500));
        assert_eq!(pager.request().resource_version.as_deref(), Some("7"));
        assert_eq!(pager.request().limit, Some(500));
        assert!(matches!(
            pager.answered(Ok(page("9", Some("a")))),
            Ok(Paging::More)
        ));
        let expected = ListOptions {
            continue_token: Some("a".into()),
            limit: Some(500),
            ..ListOptions::default()
        };
        assert_eq!(pager.request(), expected);
        assert!(matches!(
            pager.answered(Ok(page("10", Some("b")))),
            Ok(Paging::More)
        ));
        match pager.answered(Ok(page("11", None))) {
            Ok(Paging::Done(version)) => assert_eq!(version, "9"),
            other => panic!("{other:?}"),
        }
    }

    /// Proves reflector/expired-token-full-list.
    #[test]
    fn an_expired_token_leads_to_one_whole_list() {
        let mut pager = Pager::new(Some("7".into()), Some(500));
        assert!(matches!(
            pager.answered(Ok(page("9", Some("a")))),
            Ok(Paging::More)
        ));
        assert!(matches!(
            pager.answered(gone("Expired")),
            Ok(Paging::StartOver)
        ));
        let whole = ListOptions {
            resource_version: Some("7".into()),
            ..ListOptions::default()
        };
        assert_eq!(pager.request(), whole);
        assert!(pager.answered(gone("Expired")).is_err(), "only once");
    }

    /// Proves reflector/expired-token-full-list.
    #[test]
    fn an_expired_first_page_and_a_page_that_is_gone_are_errors() {
        let mut pager = Pager::new(None, Some(500));
        assert!(pager.answered(gone("Expired")).is_err());
        let mut pager = Pager::new(None, Some(500));
        assert!(matches!(
            pager.answered(Ok(page("9", Some("a")))),
            Ok(Paging::More)
        ));
        assert!(pager.answered(gone("Gone")).is_err());
    }

    /// Proves reflector/circular-list.
    #[test]
    fn a_list_that_goes_round_in_a_circle_is_an_error() {
        let mut pager = Pager::new(None, Some(500));
        assert!(matches!(
            pager.answered(Ok(page("9", Some("a")))),
            Ok(Paging::More)
        ));
        assert!(matches!(
            pager.answered(Ok(page("9", Some("a")))),
            Err(Reason::CircularList)
        ));
    }
}
