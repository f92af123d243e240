//! Properties: whatever the server does, the sink converges to the server's state, and no sequence
//! of failures becomes a hot loop.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    clock::Rng,
    reflector::{
        During, Reason,
        backoff::{Backoff, Delays},
        machine::{Course, End, Machine, Settings, Step},
    },
};

/// An in-memory server: a history of changes, a compaction point and random faults.
#[derive(Clone)]
struct Model {
    state: Arc<Mutex<History>>,
    changed: watch::Sender<()>,
    faults: Rng,
    streaming: bool,
}

#[derive(Default)]
struct History {
    /// Each change: whether the object exists after it, and its name. Its version is its index + 1.
    changes: Vec<(bool, u8)>,
    /// Versions below this are compacted.
    compacted: usize,
    /// Whether calls fail at random.
    faulty: bool,
}

impl History {
    fn objects(&self) -> BTreeMap<u8, usize> {
        let mut objects = BTreeMap::new();
        for (at, (exists, name)) in self.changes.iter().enumerate() {
            if *exists {
                objects.insert(*name, at + 1);
            } else {
                objects.remove(name);
            }
        }
        objects
    }

    fn event(&self, at: usize) -> WatchEvent {
        let (exists, name) = self.changes[at];
        let object = object(&name.to_string(), &(at + 1).to_string());
        let known = self.changes[..at]
            .iter()
            .rev()
            .find(|(_, earlier)| *earlier == name);
        match (exists, known) {
            (false, _) => WatchEvent::Deleted(object),
            (true, Some((true, _))) => WatchEvent::Modified(object),
            (true, _) => WatchEvent::Added(object),
        }
    }
}

/// Returns a random failure.
fn any_failure(rng: &Rng) -> SourceError {
    match rng.u64() % 8 {
        0 => api(410, "Expired"),
        1 => api(429, "TooManyRequests"),
        2 => api(500, "InternalError"),
        3 => api(403, "Forbidden"),
        4 => api(422, "Invalid"),
        5 => refused(),
        6 => SourceError::Transport("reset".into()),
        _ => ApiError::new(504, "Timeout", "Too large resource version").into(),
    }
}

impl Model {
    fn fails(&self) -> Option<SourceError> {
        let faulty = self.state.lock().faulty && self.faults.f64() < 0.3;
        faulty.then(|| any_failure(&self.faults))
    }

    /// Returns the next event of a watch that has delivered everything before `at`.
    async fn next_event(&self, at: &mut usize) -> Option<Result<WatchEvent, SourceError>> {
        let mut changed = self.changed.subscribe();
        loop {
            if self.state.lock().faulty {
                match self.faults.u64() % 12 {
                    0 => return None,
                    1 => return Some(Err(any_failure(&self.faults))),
                    2 => {
                        let SourceError::Api(error) = any_failure(&self.faults) else {
                            continue;
                        };
                        return Some(Ok(WatchEvent::Error(error)));
                    }
                    3 => {
                        let resource_version = at.to_string();
                        let initial_events_end = false;
                        return Some(Ok(WatchEvent::Bookmark {
                            resource_version,
                            initial_events_end,
                        }));
                    }
                    _ => {}
                }
            }
            {
                let history = self.state.lock();
                if *at < history.changes.len() {
                    *at += 1;
                    return Some(Ok(history.event(*at - 1)));
                }
            }
            let _ = changed.changed().await;
        }
    }
}

impl ListWatch for Model {
    type Watch = Pin<Box<dyn Stream<Item = Result<WatchEvent, SourceError>> + Send>>;

    fn resource(&self) -> &'static str {
        "models"
    }

    fn supports_watch_list(&self) -> bool {
        self.streaming
    }

    async fn list(
        &self,
        options: ListOptions,
        on_item: &mut (dyn FnMut(RawItem<'_>) + Send),
    ) -> Result<Page, SourceError> {
        // The token is the version of the list and the last name of the page.
        let (version, after) = match options
            .continue_token
            .as_deref()
            .map(|at| at.split_once('/'))
        {
            Some(Some((version, after))) => (version.parse().unwrap(), after.parse().ok()),
            _ => (self.state.lock().changes.len(), None::<u8>),
        };
        let objects = {
            let history = self.state.lock();
            let until = History {
                changes: history.changes[..version].to_vec(),
                ..History::default()
            };
            until.objects()
        };
        let rest: Vec<(u8, usize)> = objects
            .into_iter()
            .filter(|(name, _)| after.is_none_or(|after| *name > after))
            .collect();
        let limit = options.limit.map_or(usize::MAX, |limit| limit as usize);
        for (name, version) in rest.iter().take(limit) {
            on_item(RawItem::Json(&object(
                &name.to_string(),
                &version.to_string(),
            )));
        }
        if let Some(error) = self.fails() {
            return Err(error);
        }
        let last = rest
            .get(limit.wrapping_sub(1))
            .filter(|_| rest.len() > limit);
        Ok(Page {
            resource_version: version.to_string(),
            continue_token: last.map(|(name, _)| format!("{version}/{name}")),
            remaining: None,
        })
    }

    async fn watch(&self, options: ListOptions) -> Result<Self::Watch, SourceError> {
        if let Some(error) = self.fails() {
            return Err(error);
        }
        let mut initial = VecDeque::new();
        let from = if options.send_initial_events {
            let history = self.state.lock();
            for (name, version) in history.objects() {
                initial.push_back(WatchEvent::Added(object(
                    &name.to_string(),
                    &version.to_string(),
                )));
            }
            let version = history.changes.len();
            initial.push_back(WatchEvent::Bookmark {
                resource_version: version.to_string(),
                initial_events_end: true,
            });
            version
        } else {
            options
                .resource_version
                .unwrap_or_default()
                .parse()
                .unwrap_or(0)
        };
        if from < self.state.lock().compacted {
            initial.push_back(WatchEvent::Error(ApiError::new(
                410,
                "Expired",
                "compacted",
            )));
        }
        Ok(Box::pin(stream::unfold(
            (self.clone(), initial, from),
            |(model, mut initial, mut at)| async move {
                let event = match initial.pop_front() {
                    Some(event) => Ok(event),
                    None => model.next_event(&mut at).await?,
                };
                Some((event, (model, initial, at)))
            },
        )))
    }
}

/// A sink that mirrors the objects and checks that versions never go back.
#[derive(Default)]
struct Mirror {
    state: Mutex<(BTreeMap<String, String>, u64)>,
}

impl Mirror {
    fn at(&self, version: &str) -> parking_lot::MutexGuard<'_, (BTreeMap<String, String>, u64)> {
        let mut state = self.state.lock();
        let version = version.parse().unwrap();
        assert!(
            version >= state.1,
            "went back from {} to {version}",
            state.1
        );
        state.1 = version;
        state
    }
}

impl Sink<ConfigMap> for Mirror {
    fn replace(&self, items: Vec<Object<ConfigMap>>, resource_version: &str) {
        let pair = |item: &Object<ConfigMap>| {
            (
                item.key().name().to_owned(),
                item.resource_version().to_owned(),
            )
        };
        self.at(resource_version).0 = items.iter().map(pair).collect();
    }

    fn add(&self, object: Object<ConfigMap>) {
        self.update(object);
    }

    fn update(&self, object: Object<ConfigMap>) {
        let version = object.resource_version();
        self.at(version)
            .0
            .insert(object.key().name().to_owned(), version.to_owned());
    }

    fn delete(&self, object: Object<ConfigMap>) {
        self.at(object.resource_version())
            .0
            .remove(object.key().name());
    }

    fn bookmark(&self, resource_version: &str) {
        drop(self.at(resource_version));
    }

    fn resync(&self) {}

    async fn ready(&self) {}
}

/// A change or compaction on the server, or a pause.
#[derive(Clone, Copy, Debug)]
enum Action {
    Write(u8),
    Delete(u8),
    Compact,
    Wait(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => (0u8..12).prop_map(Action::Write),
        2 => (0u8..12).prop_map(Action::Delete),
        1 => Just(Action::Compact),
        3 => (0u64..20_000).prop_map(Action::Wait),
    ];
    prop::collection::vec(action, 0..60)
}

fn play(actions: &[Action], seed: u64, streaming: bool, page: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(async {
        let model = Model {
            state: Arc::default(),
            changed: watch::Sender::new(()),
            faults: Rng::with_seed(seed),
            streaming,
        };
        model.state.lock().faulty = true;
        // Version 0 means "any", so the first change comes before the first list.
        model.state.lock().changes.push((true, 0));
        let mirror = Arc::new(Mirror::default());
        let reflector =
            Reflector::<ConfigMap, _, _>::new(model.clone(), Reader::new(), mirror.clone())
                .rng(Rng::with_seed(seed))
                .page_size(page);
        let task = tokio::spawn(async move { reflector.run(&CancellationToken::new()).await });
        for action in actions {
            match *action {
                Action::Write(name) => model.state.lock().changes.push((true, name)),
                Action::Delete(name) => {
                    let mut history = model.state.lock();
                    if history.objects().contains_key(&name) {
                        history.changes.push((false, name));
                    }
                }
                Action::Compact => {
                    let mut history = model.state.lock();
                    history.compacted = history.changes.len();
                }
                Action::Wait(millis) => sleep(Duration::from_millis(millis)).await,
            }
            model.changed.send_replace(());
        }
        model.state.lock().faulty = false;
        // Longer than the longest delay.
        sleep(Duration::from_mins(5)).await;
        assert!(!task.is_finished(), "the reflector panicked");
        let expected: BTreeMap<String, String> = model
            .state
            .lock()
            .objects()
            .iter()
            .map(|(name, version)| (name.to_string(), version.to_string()))
            .collect();
        assert_eq!(mirror.state.lock().0, expected);
        task.abort();
    });
}

// Proves reflector/converges.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sink_converges_to_the_server_state(
        actions in actions(),
        seed in any::<u64>(),
        streaming in any::<bool>(),
        page in 1u32..8,
    ) {
        play(&actions, seed, streaming, page);
    }
}

/// The outcome of one step of the machine. No step takes time.
#[derive(Clone, Debug)]
enum Outcome {
    Success,
    Fails(u64),
    Closes { events: u64 },
    Errors(u64),
}

fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Success),
        3 => any::<u64>().prop_map(Outcome::Fails),
        2 => (0u64..3).prop_map(|events| Outcome::Closes { events }),
        2 => any::<u64>().prop_map(Outcome::Errors),
    ];
    prop::collection::vec(outcome, 300)
}

// Proves reflector/short-watch-backs-off, reflector/backoff.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_sequence_of_failures_is_a_hot_loop(
        outcomes in outcomes(),
        watch_list in any::<bool>(),
        retry in 0u64..100,
    ) {
        let settings = Settings {
            watch_list,
            refusal_memory: Duration::from_hours(1),
            page_size: None,
            internal_error_retry: Duration::from_secs(retry),
            watch_timeout: Duration::from_mins(5),
        };
        let mut machine =
            Machine::new(settings, Delays::new(Backoff::default(), Rng::with_seed(1)));
        let mut now = Instant::now();
        let mut without_wait = 0;
        for outcome in outcomes {
            let failure = match &outcome {
                Outcome::Fails(seed) | Outcome::Errors(seed) => any_failure(&Rng::with_seed(*seed)),
                _ => api(500, "InternalError"),
            };
            let succeeded = matches!(outcome, Outcome::Success);
            let verdict = match machine.next(now, 0.5) {
                Step::WatchList(_) if succeeded => {
                    machine.listed("5", true, now);
                    None
                }
                Step::WatchList(_) => {
                    let reason = match outcome {
                        Outcome::Closes { events: 0 } => Reason::VeryShortWatch,
                        Outcome::Closes { .. } => Reason::ClosedBeforeEnd,
                        _ => failure.into(),
                    };
                    Some(machine.watch_list_failed(reason, now))
                }
                Step::List(_) if succeeded => {
                    machine.listed("5", false, now);
                    None
                }
                Step::List(_) => Some(machine.list_failed(failure.into(), now)),
                Step::Watch(_) if succeeded => {
                    machine.opened(now);
                    None
                }
                Step::Watch(_) => Some(machine.open_failed(failure, now)),
                Step::Follow => {
                    let (end, events) = match (outcome, failure) {
                        (Outcome::Closes { events }, _) => (End::Closed, events),
                        (Outcome::Errors(_), SourceError::Api(error)) => (End::Error(error), 1),
                        (_, error) => (End::Broken(error), 1),
                    };
                    let course = Course { lasted: Duration::ZERO, events };
                    Some(machine.watch_ended(end, course, now))
                }
            };
            match verdict.and_then(|verdict| verdict.wait) {
                Some(wait) => {
                    prop_assert!(wait >= Duration::from_millis(800));
                    now += wait;
                    without_wait = 0;
                }
                None => without_wait += 1,
            }
            prop_assert!(without_wait < 20, "{without_wait} steps without a delay");
        }
    }
}

#[test]
fn failure_displays_its_reason_and_target() {
    let failure = crate::reflector::Failure {
        during: During::Watch,
        target: "pods in namespace a".into(),
        reason: Reason::VeryShortWatch,
    };
    assert_eq!(
        failure.to_string(),
        "the server closed the watch immediately on pods in namespace a (watch)"
    );
}
