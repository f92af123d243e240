//! Limits of a listener and extra names in its certificate.

use std::time::Duration;

/// Options of a listener; see [`ApiServer::serve_with`](crate::ApiServer::serve_with).
///
/// All limits are on by default, because anyone who can reach the port can use resources before
/// authenticating. None of them ends a watch whose client keeps reading.
///
/// # Examples
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
    /// Adds a DNS name or IP address to the server's certificate.
    ///
    /// The certificate is always valid for `localhost`, the loopback addresses, the names of the
    /// `kubernetes` Service and the address of the listener. If that is a wildcard (`0.0.0.0`,
    /// `[::]`), the certificate is also valid for the host name and for the addresses of outgoing
    /// traffic. An invalid name makes [`serve_with`](crate::ApiServer::serve_with) fail with
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

    /// Sets the maximum number of open connections. Default: 10,000.
    ///
    /// At the limit, a new connection replaces one without a request in flight: first one that
    /// never presented valid credentials, then the one that has been idle longest. If all
    /// connections are serving requests, the new one is reset immediately instead of being left to
    /// wait. If the process runs out of file descriptors first, connections without a request in
    /// flight are evicted too.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the maximum number of concurrent TLS handshakes. Default: 1,000. Another handshake
    /// evicts the oldest.
    pub fn max_handshakes(mut self, handshakes: usize) -> Self {
        self.max_handshakes = handshakes;
        self
    }

    /// Sets the maximum number of concurrent requests, including watches, on one HTTP/2 connection.
    /// Default: 100, as in kube-apiserver.
    pub fn max_streams(mut self, streams: u32) -> Self {
        self.max_streams = streams;
        self
    }

    /// Sets the time limit for the TLS handshake. Default: 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the time limit from the handshake to the head of the first authenticated request.
    /// Default: 30 s.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.header_timeout = timeout;
        self
    }

    /// Sets how long a connection may have no request in flight before it is closed. Default: 90 s,
    /// as in kube-apiserver. The head of the next request must be complete within that time.
    /// Requests without valid credentials do not count. Timeouts below 100 ms, including zero, may
    /// take that long to be noticed.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets the time limit for a request body. Default: 60 s. A slower request fails with 408.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// Sets how long a client may leave part of a response unread before its connection is closed.
    /// Default: 2 min.
    ///
    /// This covers clients that do not read from their socket and HTTP/2 clients that keep the
    /// window of a single stream closed. Other streams of that connection get a few seconds to
    /// finish. Slow readers and idle watches are not affected.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = timeout;
        self
    }

    /// Sets how long a peer may be silent before it is probed, and how long it may take to answer.
    /// Defaults: 30 s and 15 s. HTTP/2 connections are probed with pings. HTTP/1.1 connections only
    /// use TCP keep-alive, to which `timeout` does not apply.
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        (self.ping_interval, self.ping_timeout) = (interval, timeout);
        self
    }
}
