//! Lists in pages.

use crate::source::{ListOptions, Page, SourceError, VersionMatch};

use super::status::Reason;

/// Decides the requests for the pages of one list; the caller sends them.
///
/// The first request carries the `resourceVersion`, later ones only the continue token of the
/// previous page. If a token expires, the items so far are discarded and the list is requested once
/// more in one piece. The list's `resourceVersion` is its first page's.
#[derive(Debug)]
pub(super) struct Pager {
    first: ListOptions,
    version: Option<String>,
    token: Option<String>,
    whole: bool,
}

/// The next step after a response.
#[derive(Debug)]
pub(super) enum Paging {
    /// Request the next page.
    More,
    /// Discard all items and request again.
    StartOver,
    /// The list is complete, at this `resourceVersion`.
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

    /// Returns a pager for the list at exactly this `resourceVersion`, in one piece.
    pub(super) fn exactly(version: &str) -> Self {
        let mut pager = Self::new(Some(version.to_owned()), None);
        pager.first.resource_version_match = Some(VersionMatch::Exact);
        pager
    }

    /// Returns the next request.
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

    /// Processes the response to that request.
    pub(super) fn handle(&mut self, response: Result<Page, SourceError>) -> Result<Paging, Reason> {
        match response {
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
            // Only this reason, and only for a later page: an error on the first page concerns the
            // `resourceVersion`, which the caller chooses.
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
mod tests;
