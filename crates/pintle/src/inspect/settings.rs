//! The settings of an inspector.

use super::Inspector;
use crate::clock::Clock;

/// Configures an [`Inspector`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use pintle::inspect::Settings;
///
/// let inspector = Settings::new("shop-operator").entries_per_key(200).build();
/// # drop(inspector);
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "settings do nothing until an inspector is built"]
pub struct Settings {
    name: String,
    clock: Clock,
    pub(super) entries_per_key: usize,
    pub(super) entries: usize,
    pub(super) state_bytes: usize,
    pub(super) token: Token,
}

/// Which clients have access.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// Clients that present a token generated at each start.
    Random,
    /// Clients that present this token.
    Fixed(String),
    /// Any client, on loopback only.
    None,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Settings {
    /// Returns the default settings for the program `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            clock: Clock::default(),
            entries_per_key: 64,
            entries: 65_536,
            state_bytes: 16 << 20,
            token: Token::Random,
        }
    }

    /// Sets the clock for the time at which the record began.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how many entries are kept for each key, at least 4. Default: 64.
    pub fn entries_per_key(mut self, entries: usize) -> Self {
        self.entries_per_key = entries;
        self
    }

    /// Sets how many entries are kept for each controller in total. Default: 65,536.
    pub fn entries(mut self, entries: usize) -> Self {
        self.entries = entries;
        self
    }

    /// Sets how many bytes of past states are kept, to name the fields that changed. Default: 16
    /// MiB.
    pub fn state_bytes(mut self, bytes: usize) -> Self {
        self.state_bytes = bytes;
        self
    }

    /// Sets the token that a request has to present, instead of one that is generated at each
    /// start.
    ///
    /// An empty token is rejected when the inspector is served. A manager does not log this token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Token::Fixed(token.into());
        self
    }

    /// Requires no token. Only possible on a loopback address.
    pub fn without_token(mut self) -> Self {
        self.token = Token::None;
        self
    }

    /// Builds the inspector.
    pub fn build(self) -> Inspector {
        Inspector::of(self.name.clone(), self.clock.clone(), self)
    }
}
