//! What a listener may be asked for: its limits, and the names its certificate holds.

use std::time::Duration;

/// How a server listens; see [`ApiServer::serve_with`](crate::ApiServer::serve_with).
///
/// Every limit is on by default, because whatever happens before authentication is open to anyone
/// who can reach the port. None of them cuts a watch that its client reads.
///
/// ```
/// use std::time::Duration;
///
/// use pintle_apiserver::ServeOptions;
///
/// let options = ServeOptions::default()
///     .max_connections(100)
///     .idle_timeout(Duration::from_secs(30));
/// # drop(options);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ServeOptions {
    pub(super) max_connections: usize,
    pub(super) max_handshakes: usize,
    pub(super) max_streams: u32,
    pub(super) handshake_timeout: Duration,
    pub(super) header_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) body_timeout: Duration,
    pub(super) write_timeout: Duration,
    pub(super) ping_interval: Duration,
    pub(super) ping_timeout: Duration,
    pub(super) names: Vec<String>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_handshakes: 1_000,
            max_streams: 100,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(120),
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(15),
            names: Vec::new(),
        }
    }
}

impl ServeOptions {
    /// Adds a DNS name or an IP address by which clients reach the server to its certificate.
    ///
    /// The certificate is always good for `localhost`, the loopback addresses, the names of the
    /// service `kubernetes` and the address of the listener; on a listener on all addresses
    /// (`0.0.0.0`, `[::]`) also for the host name and the addresses the machine's traffic leaves
    /// from. A name that is neither makes the listener fail with
    /// [`ServeError::InvalidName`](crate::ServeError::InvalidName).
    ///
    /// ```
    /// use pintle_apiserver::ServeOptions;
    ///
    /// let options = ServeOptions::default().name("ci.example.com").name("203.0.113.7");
    /// # drop(options);
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// How many connections are open at once (10,000).
    ///
    /// At the limit a new connection takes the place of one without a request in flight: first of
    /// those that never presented valid credentials, then of the others, the longest idle first. If
    /// every connection is serving a request, the new one is closed as soon as it is accepted, so
    /// its client sees a reset instead of waiting. The same happens when the process runs out of
    /// file descriptors before it reaches the limit.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// How many connections may be within their TLS handshake at once (1,000). One more closes the
    /// one that has been at it longest.
    pub fn max_handshakes(mut self, handshakes: usize) -> Self {
        self.max_handshakes = handshakes;
        self
    }

    /// How many requests, watches included, one HTTP/2 connection may have in flight (100, as
    /// kube-apiserver).
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.max_streams = streams;
        self
    }

    /// How long a client may take for the TLS handshake (10 s).
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// How long after the handshake the head of the first request with valid credentials may take to
    /// arrive (30 s).
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// How long a connection may be without a request in flight before it is closed (90 s, as
    /// kube-apiserver). The head of the next request must be complete within that time. A request
    /// that is refused for want of credentials does not count. A timeout below a tenth of a second,
    /// zero included, may take that long to be noticed.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// How long the body of a request may take to arrive (60 s). A slower one is answered 408.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// How long a client may leave a part of an answer unread before its connection is closed
    /// (2 min): by not reading from its socket, or in HTTP/2 by keeping the window of a single stream
    /// closed. The other streams of the connection then have a few seconds to end. A client that
    /// reads slowly, and a watch without events, are not affected.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// After how much silence the peer is probed, by a ping in HTTP/2 and by TCP keep-alive in
    /// HTTP/1.1 (30 s), and how long the answer to a ping may take (15 s).
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        (self.ping_interval, self.ping_timeout) = (interval, timeout);
        self
    }
}
