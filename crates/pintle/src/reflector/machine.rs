//! The state machine of a reflector: the next step, as a function of past outcomes.

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

/// A watch that a server closes sooner than this counts as short.
const SHORT: Duration = Duration::from_secs(1);
/// How many short watches in a row are tolerated.
const MAX_SHORT_WATCHES: u32 = 3;
/// A pause this long separates two runs of internal errors.
const RUN_GAP: Duration = Duration::from_mins(1);
/// The default page size.
const PAGE: u32 = 500;
/// The longest `Retry-After` that is honoured.
const RETRY_AFTER_CAP: Duration = Duration::from_mins(2);

/// The settings of a reflector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether to request streaming lists.
    pub(super) watch_list: bool,
    /// For how long not to request streaming lists after one was rejected, closed early, or arrived
    /// without its end marker or inconsistent.
    pub(super) refusal_memory: Duration,
    /// The page size, if every list is paged.
    pub(super) page_size: Option<u32>,
    /// For how long a run of internal errors in watches leads to a new watch, not a list.
    pub(super) internal_error_retry: Duration,
    /// The shortest timeout of a watch; the longest is twice that.
    pub(super) watch_timeout: Duration,
}

/// Decides the next step of a reflector.
///
/// ```text
///            ┌────────── one pass ─────────────────────────┐
///   start ─► WatchList ──fails──► List ──────────► Watch ──┤ ends
///     ▲          └──────────marker──────────────► (the same stream)
///     └────────────── Wait, longer each time ◄─────────────┘
/// ```
///
/// A pass lists everything, then watches for changes until that fails. The caller gets a step from
/// [`next`](Machine::next), performs it, and reports the outcome through one of the other methods.
/// Nothing here waits, sends or reads a clock.
#[derive(Debug)]
pub(super) struct Machine {
    settings: Settings,
    delays: Delays,
    state: State,
    /// The last `resourceVersion` seen; empty before the first list.
    version: String,
    /// The server cannot serve that `resourceVersion`, so request the most recent one until a list
    /// succeeds.
    version_unavailable: bool,
    /// Until when not to request streaming lists, because one was rejected or never ended.
    refused_until: Option<Instant>,
    /// How many streaming lists of this pass the server closed before their end.
    closed_early: u32,
    /// The current run of internal errors.
    internal_errors: Option<ErrorRun>,
    /// Consecutive watches that ended within a second, although they had events.
    short_watches: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    StartPass,
    WatchList,
    List,
    Watch,
    Following,
}

/// Errors in quick succession.
#[derive(Clone, Copy, Debug)]
struct ErrorRun {
    /// The time of the first error.
    first: Instant,
    /// When the watch was retried after the last error.
    resumed: Instant,
}

/// The next step.
#[derive(Debug)]
pub(super) enum Step {
    /// Request a streaming list.
    WatchList(ListOptions),
    /// List in pages.
    List(Pager),
    /// Open a watch.
    Watch(ListOptions),
    /// Read the open watch.
    Follow,
}

/// How the caller continues after a step ended.
#[derive(Debug)]
pub(super) struct Verdict {
    /// How long to wait first, if at all.
    pub(super) wait: Option<Duration>,
    /// The failure; `None` for the normal end of a watch.
    pub(super) cause: Option<(During, Reason)>,
    /// Whether the wait is part of the watch phase, in which the resync timer keeps running.
    pub(super) watching: bool,
}

/// How an open watch ended.
#[derive(Debug)]
pub(super) enum End {
    /// The server closed it.
    Closed,
    /// The server sent an error event.
    Error(ApiError),
    /// The stream broke.
    Broken(SourceError),
    /// Nothing was received for this long.
    Silent(Duration),
    /// A deletion could not be read.
    UnreadableDeletion,
}

/// The duration of a watch and the number of its events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) lasted: Duration,
    pub(super) events: u64,
}

impl Course {
    /// Returns whether the watch ended within a second, without any event.
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
            short_watches: 0,
        }
    }

    /// Records the `resourceVersion` of an event.
    pub(super) fn advance(&mut self, version: &str) {
        self.version.clear();
        self.version.push_str(version);
    }

    /// Returns the next step. `jitter` in `[0, 1)` selects the watch's timeout within its range.
    pub(super) fn next(&mut self, now: Instant, jitter: f64) -> Step {
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
                ..self.watch_options(jitter)
            }),
            State::Watch => Step::Watch(ListOptions {
                resource_version: Some(self.version.clone()),
                ..self.watch_options(jitter)
            }),
            State::Following => Step::Follow,
        }
    }

    /// Returns the `resourceVersion` for a list: the last one seen, unless the server cannot serve
    /// it. Without one the list is consistent. Never "0": a program that restarts must not go back
    /// in time.
    fn list_version(&self) -> Option<String> {
        let known = !self.version.is_empty() && !self.version_unavailable;
        known.then(|| self.version.clone())
    }

    fn pager(&self) -> Pager {
        let version = self.list_version();
        // Servers answer a list at a `resourceVersion` from memory only if it is not paged.
        let limit = match (self.settings.page_size, &version) {
            (Some(size), _) => Some(size),
            (None, None) => Some(PAGE),
            (None, Some(_)) => None,
        };
        Pager::new(version, limit)
    }

    fn watch_options(&self, jitter: f64) -> ListOptions {
        let least = self.settings.watch_timeout;
        let extra = least.as_secs_f64() * jitter.clamp(0.0, 1.0);
        let extra = Duration::try_from_secs_f64(extra).unwrap_or_default();
        ListOptions {
            // `timeoutSeconds` is an integer.
            timeout: Some(Duration::from_secs(least.saturating_add(extra).as_secs())),
            allow_watch_bookmarks: true,
            ..ListOptions::default()
        }
    }

    /// Records a complete list at this `resourceVersion`. A streamed one continues as a watch.
    pub(super) fn listed(&mut self, version: &str, streamed: bool, now: Instant) {
        self.advance(version);
        self.version_unavailable = false;
        if streamed {
            self.opened(now);
        } else {
            self.state = State::Watch;
        }
    }

    /// Records that a list in pages failed.
    pub(super) fn list_failed(&mut self, reason: Reason, now: Instant) -> Verdict {
        if self.may_succeed_without_version(&reason) {
            self.version_unavailable = true;
            return Verdict::immediate(During::List, reason);
        }
        self.end_pass(During::List, reason, now)
    }

    /// Records that a streaming list failed before its end.
    pub(super) fn watch_list_failed(&mut self, reason: Reason, now: Instant) -> Verdict {
        let source = match &reason {
            Reason::Source(error) => Some(error),
            _ => None,
        };
        if source.is_some_and(is_watch_only) {
            return self.wait(During::WatchList, reason, now, false);
        }
        if self.may_succeed_without_version(&reason) {
            self.version_unavailable = true;
            return Verdict::immediate(During::WatchList, reason);
        }
        if matches!(reason, Reason::ClosedBeforeEnd) {
            self.closed_early += 1;
            if self.closed_early == 1 {
                return Verdict::immediate(During::WatchList, reason);
            }
        }
        let unsupported = source.is_some_and(SourceError::is_unsupported)
            || matches!(
                reason,
                Reason::NoEndMarker(_) | Reason::ClosedBeforeEnd | Reason::Inconsistent(_)
            );
        if unsupported {
            self.refused_until = now.checked_add(self.settings.refusal_memory);
        }
        self.state = State::List;
        Verdict::immediate(During::WatchList, reason)
    }

    /// Returns whether the list may succeed without a `resourceVersion`. This can be true only once
    /// in a row, because the next list has none.
    fn may_succeed_without_version(&self, reason: &Reason) -> bool {
        let Reason::Source(error) = reason else {
            return false;
        };
        self.list_version().is_some()
            && (error.is_expired() || error.is_too_large_resource_version())
    }

    /// Records that the watch is open.
    pub(super) fn opened(&mut self, now: Instant) {
        self.delays.healthy(now);
        self.state = State::Following;
    }

    /// Records that the watch could not be opened.
    pub(super) fn open_failed(&mut self, error: SourceError, now: Instant) -> Verdict {
        // The objects read so far stay valid, and the next watch continues from them. If its
        // `resourceVersion` has expired by then, the server responds with that error.
        let transient = match &error {
            SourceError::Transport(_) | SourceError::IdleTimeout(_) => true,
            SourceError::Api(error) => error.code >= 500 && error.retry_after.is_some(),
            _ => false,
        };
        if transient || is_watch_only(&error) {
            return self.wait(During::Watch, error.into(), now, true);
        }
        self.end_pass(During::Watch, error.into(), now)
    }

    /// Records the end of the open watch.
    pub(super) fn watch_ended(&mut self, end: End, course: Course, now: Instant) -> Verdict {
        self.state = State::Watch;
        match end {
            End::Closed => self.watch_closed(None, course, now),
            End::Broken(error @ SourceError::Body(_)) => {
                self.end_pass(During::Watch, error.into(), now)
            }
            End::Broken(error) => self.watch_closed(Some(error), course, now),
            End::Silent(time) => Verdict::immediate(During::Watch, Reason::Silent(time)),
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

    /// Handles a watch that was closed normally or by a broken connection: the next one continues
    /// from the same `resourceVersion`. Only watches that close immediately count against the
    /// server.
    fn watch_closed(
        &mut self,
        error: Option<SourceError>,
        course: Course,
        now: Instant,
    ) -> Verdict {
        if course.is_very_short() {
            return self.end_pass(During::Watch, Reason::VeryShortWatch, now);
        }
        self.short_watches = if course.lasted < SHORT {
            self.short_watches + 1
        } else {
            0
        };
        if self.short_watches > MAX_SHORT_WATCHES {
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
            None => Verdict::immediate(During::Watch, reason),
            // Retry without delay only once: a server that fails every watch must not be queried in
            // a tight loop.
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

/// Returns whether the server is busy or down, so that repeating the watch is enough.
fn is_watch_only(error: &SourceError) -> bool {
    matches!(error, SourceError::ConnectionRefused(_)) || error.is_too_many_requests()
}

impl Verdict {
    fn immediate(during: During, reason: Reason) -> Self {
        Self {
            wait: None,
            cause: Some((during, reason)),
            watching: true,
        }
    }
}
