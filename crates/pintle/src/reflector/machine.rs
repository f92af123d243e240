//! What a reflector does next: a pure function of what has happened.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    backoff::Delays,
    pager::Pager,
    status::{During, Reason},
};
use crate::{
    clock,
    source::{ApiError, ListOptions, SourceError},
};

/// A watch that is closed sooner has no good reason to be.
const SHORT: Duration = Duration::from_secs(1);
/// So many quick ends in a row are forgiven.
const QUICK_ENDS: u32 = 3;
/// A pause of this length separates two runs of internal errors.
const RUN_GAP: Duration = Duration::from_mins(1);
/// The longest wait a server can ask for.
const RETRY_AFTER_CAP: Duration = Duration::from_mins(2);

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether streaming lists are asked for at all.
    pub(super) watch_list: bool,
    /// For how long a server that refused a streaming list is not asked again.
    pub(super) refusal_memory: Duration,
    /// The size of every page, if the user wants pages always.
    pub(super) page_size: Option<u32>,
    /// For how long a run of internal errors in watches is answered with a new watch.
    pub(super) internal_error_retry: Duration,
    /// The shortest time limit of a watch; the longest is twice that.
    pub(super) watch_timeout: Duration,
}

/// The rules of a reflector.
///
/// ```text
///            ┌────────── a pass ───────────────────────────┐
///   start ─► WatchList ──fails──► List ──────────► Watch ──┤ ends
///     ▲          └──────────marker──────────────► (the same stream)
///     └────────────── Wait, longer each time ◄─────────────┘
/// ```
///
/// A pass reads everything, then follows changes until it cannot. The caller asks
/// [`next`](Machine::next) what to do, does it, and reports the outcome by one of the other
/// functions. Nothing here waits, sends or reads a clock.
#[derive(Debug)]
pub(super) struct Machine {
    settings: Settings,
    delays: Delays,
    state: State,
    /// The last version seen; empty before the first list.
    version: String,
    /// The server cannot serve that version: ask for the newest until a list succeeds.
    version_unavailable: bool,
    /// Until when streaming lists are not asked for, because one was refused or never ended.
    refused_until: Option<Instant>,
    /// How many streaming lists of this pass were closed before their end.
    closed_early: u32,
    /// The run of internal errors we are in.
    internal_errors: Option<ErrorRun>,
    /// Watches in a row that ended within a second, though they had told something.
    quick_ends: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    StartPass,
    WatchList,
    List,
    Watch,
    Following,
}

/// Errors that follow each other closely.
#[derive(Clone, Copy, Debug)]
struct ErrorRun {
    /// When the first came.
    first: Instant,
    /// When the watch was tried again after the last.
    resumed: Instant,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Ask for a streaming list.
    WatchList(ListOptions),
    /// Ask for a list in pages.
    List(Pager),
    /// Open a watch.
    Watch(ListOptions),
    /// Read the watch that is open.
    Follow,
}

/// How the caller goes on after something went wrong.
#[derive(Debug)]
pub(super) struct Verdict {
    /// How long to wait first. `None`: not at all.
    pub(super) wait: Option<Duration>,
    /// What failed. `None` when it is the normal course of things.
    pub(super) cause: Option<(During, Reason)>,
    /// Whether the wait is within the watch phase, where the resync timer goes on.
    pub(super) watching: bool,
}

/// How an open watch ended.
#[derive(Debug)]
pub(super) enum End {
    /// The server closed it.
    Closed,
    /// The server said why.
    Error(ApiError),
    /// The stream broke.
    Broken(SourceError),
    /// Nothing came for so long.
    Silent(Duration),
    /// A deletion was lost.
    UnreadableDeletion,
}

/// How long a watch lasted, and how many events it told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) lasted: Duration,
    pub(super) events: u64,
}

impl Course {
    /// Closed within a second, with nothing told.
    pub(super) fn is_very_short(self) -> bool {
        self.lasted < SHORT && self.events == 0
    }
}

impl Machine {
    pub(super) fn new(settings: Settings, delays: Delays) -> Self {
        Self {
            settings,
            delays,
            state: State::StartPass,
            version: String::new(),
            version_unavailable: false,
            refused_until: None,
            closed_early: 0,
            internal_errors: None,
            quick_ends: 0,
        }
    }

    /// An event of the open watch carried this version.
    pub(super) fn advance(&mut self, version: &str) {
        self.version.clear();
        self.version.push_str(version);
    }

    /// What to do next. `share` in `[0, 1)` places the watch's time limit within its range.
    pub(super) fn next(&mut self, now: Instant, share: f64) -> Step {
        if self.state == State::StartPass {
            self.closed_early = 0;
            let refused = self.refused_until.is_some_and(|until| now < until);
            let streaming = self.settings.watch_list && !refused;
            self.state = if streaming {
                State::WatchList
            } else {
                State::List
            };
        }
        match self.state {
            State::StartPass | State::List => Step::List(self.pager()),
            State::WatchList => Step::WatchList(ListOptions {
                resource_version: self.list_version(),
                send_initial_events: true,
                ..self.watch_options(share)
            }),
            State::Watch => Step::Watch(ListOptions {
                resource_version: Some(self.version.clone()),
                ..self.watch_options(share)
            }),
            State::Following => Step::Follow,
        }
    }

    /// The version a list asks for: the last one seen, unless the server cannot serve it. Without
    /// one the list is consistent. Never "0": a program that starts anew must not see the past.
    fn list_version(&self) -> Option<String> {
        let known = !self.version.is_empty() && !self.version_unavailable;
        known.then(|| self.version.clone())
    }

    fn pager(&self) -> Pager {
        let version = self.list_version();
        // A list at a version is served from memory only if it is not paged.
        let limit = match (self.settings.page_size, &version) {
            (Some(size), _) => Some(size),
            (None, None) => Some(PAGE),
            (None, Some(_)) => None,
        };
        Pager::new(version, limit)
    }

    fn watch_options(&self, share: f64) -> ListOptions {
        // Whole seconds: servers take no others.
        let least = self.settings.watch_timeout;
        let share = least.as_secs_f64() * share.clamp(0.0, 1.0);
        let share = Duration::try_from_secs_f64(share).unwrap_or_default();
        ListOptions {
            timeout: Some(Duration::from_secs(least.saturating_add(share).as_secs())),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        }
    }

    /// Everything was read, at this version, in pages or as a stream that goes on.
    pub(super) fn listed(&mut self, version: &str, streamed: bool, now: Instant) {
        self.advance(version);
        self.version_unavailable = false;
        if streamed {
            self.opened(now);
        } else {
            self.state = State::Watch;
        }
    }

    /// The list in pages failed.
    pub(super) fn list_failed(&mut self, reason: Reason, now: Instant) -> Verdict {
        if self.version_is_to_blame(&reason) {
            self.version_unavailable = true;
            return Verdict::at_once(During::List, reason);
        }
        self.end_pass(During::List, reason, now)
    }

    /// The streaming list failed, before it was complete.
    pub(super) fn watch_list_failed(&mut self, reason: Reason, now: Instant) -> Verdict {
        let source = match &reason {
            Reason::Source(error) => Some(error),
            _ => None,
        };
        if source.is_some_and(is_watch_only) {
            return self.wait(During::WatchList, reason, now, false);
        }
        if self.version_is_to_blame(&reason) {
            self.version_unavailable = true;
            return Verdict::at_once(During::WatchList, reason);
        }
        if matches!(reason, Reason::ClosedBeforeEnd) {
            self.closed_early += 1;
            if self.closed_early == 1 {
                return Verdict::at_once(During::WatchList, reason);
            }
        }
        let unwilling = source.is_some_and(SourceError::is_refusal)
            || matches!(
                reason,
                Reason::NoEndMarker(_) | Reason::ClosedBeforeEnd | Reason::Inconsistent(_)
            );
        if unwilling {
            self.refused_until = now.checked_add(self.settings.refusal_memory);
        }
        self.state = State::List;
        Verdict::at_once(During::WatchList, reason)
    }

    /// The list may succeed without a version: only once, since it then has none.
    fn version_is_to_blame(&self, reason: &Reason) -> bool {
        let Reason::Source(error) = reason else {
            return false;
        };
        self.list_version().is_some()
            && (error.is_expired() || error.is_too_large_resource_version())
    }

    /// The watch is open.
    pub(super) fn opened(&mut self, now: Instant) {
        self.delays.healthy(now);
        self.state = State::Following;
    }

    /// The watch could not be opened.
    pub(super) fn open_failed(&mut self, error: SourceError, now: Instant) -> Verdict {
        // What we have is still good, and the next watch goes on from it. If too much happened in the
        // meantime, it will say so.
        let passing = match &error {
            SourceError::Transport(_) | SourceError::Silent(_) => true,
            SourceError::Api(error) => error.code >= 500 && error.retry_after.is_some(),
            _ => false,
        };
        if passing || is_watch_only(&error) {
            return self.wait(During::Watch, error.into(), now, true);
        }
        self.end_pass(During::Watch, error.into(), now)
    }

    /// The watch that was open ended.
    pub(super) fn watch_ended(&mut self, end: End, course: Course, now: Instant) -> Verdict {
        self.state = State::Watch;
        match end {
            End::Closed => self.watch_closed(None, course, now),
            End::Broken(error @ SourceError::Body(_)) => {
                self.end_pass(During::Watch, error.into(), now)
            }
            End::Broken(error) => self.watch_closed(Some(error), course, now),
            End::Silent(time) => Verdict::at_once(During::Watch, Reason::Silent(time)),
            End::UnreadableDeletion => {
                self.end_pass(During::Watch, Reason::UnreadableDeletion, now)
            }
            End::Error(error) if error.is_too_many_requests() => {
                self.wait(During::Watch, SourceError::Api(error).into(), now, true)
            }
            End::Error(error) if error.is_internal() => self.internal_error(error, now),
            End::Error(error) => self.end_pass(During::Watch, SourceError::Api(error).into(), now),
        }
    }

    /// Closed in the normal way, or by a connection that broke: the next watch goes on from where
    /// this one was. Only one that is closed at once is suspicious.
    fn watch_closed(
        &mut self,
        error: Option<SourceError>,
        course: Course,
        now: Instant,
    ) -> Verdict {
        if course.is_very_short() {
            return self.end_pass(During::Watch, Reason::VeryShortWatch, now);
        }
        self.quick_ends = if course.lasted < SHORT {
            self.quick_ends + 1
        } else {
            0
        };
        if self.quick_ends > QUICK_ENDS {
            return self.wait(During::Watch, Reason::ClosedTooOften, now, true);
        }
        let cause = error.map(|error| (During::Watch, error.into()));
        Verdict {
            wait: None,
            cause,
            watching: true,
        }
    }

    fn internal_error(&mut self, error: ApiError, now: Instant) -> Verdict {
        let reason = SourceError::Api(error).into();
        let run = self
            .internal_errors
            .filter(|run| now < clock::after(run.resumed, RUN_GAP));
        let first = run.map_or(now, |run| run.first);
        if now.duration_since(first) >= self.settings.internal_error_retry {
            self.internal_errors = None;
            return self.end_pass(During::Watch, reason, now);
        }
        let verdict = match run {
            None => Verdict::at_once(During::Watch, reason),
            // Not at once again: a server that fails each watch must not be asked in a tight loop.
            Some(_) => self.wait(During::Watch, reason, now, true),
        };
        let resumed = clock::after(now, verdict.wait.unwrap_or_default());
        self.internal_errors = Some(ErrorRun { first, resumed });
        verdict
    }

    fn end_pass(&mut self, during: During, reason: Reason, now: Instant) -> Verdict {
        self.state = State::StartPass;
        self.wait(during, reason, now, false)
    }

    fn wait(&mut self, during: During, reason: Reason, now: Instant, watching: bool) -> Verdict {
        let asked = match &reason {
            Reason::Source(error) => error.retry_after().unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let delay = self.delays.failed(now).max(asked.min(RETRY_AFTER_CAP));
        Verdict {
            wait: Some(delay),
            cause: Some((during, reason)),
            watching,
        }
    }
}

/// The page size of a list that may be paged.
const PAGE: u32 = 500;

/// The server is busy or down: what we have is still good, and the same watch will do.
fn is_watch_only(error: &SourceError) -> bool {
    matches!(error, SourceError::ConnectionRefused(_)) || error.is_too_many_requests()
}

impl Verdict {
    fn at_once(during: During, reason: Reason) -> Self {
        Self {
            wait: None,
            cause: Some((during, reason)),
            watching: true,
        }
    }
}
