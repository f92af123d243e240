//! Builds the `kube::Client` of a controller, and describes its errors.
//!
//! kube's defaults suit interactive programs: they retry silently, and pick up whatever cluster
//! `~/.kube/config` points to. [`build`] turns the retries off, and [`Target`] connects only to a
//! cluster you named.

mod describe;
mod target;

use http::{HeaderValue, header::USER_AGENT};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};

pub use self::{
    describe::describe,
    target::{Target, TargetError},
};
#[cfg(feature = "limits")]
use crate::limits::RateLimit;

/// An error from building a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The user agent contains bytes that are not allowed in a header.
    #[error("invalid user agent {0:?}: not a valid header value")]
    UserAgent(String),
    /// The configuration is unusable, for example because of its credentials or certificates.
    #[error("cannot build a client from the configuration: {0}")]
    Config(#[source] Box<kube::Error>),
}

/// Builds a client that never retries on its own.
///
/// kube's default client retries a request that fails with 429, 503 or 504 up to fifteen times
/// before it returns the error. A reflector has its own retry rules and reports these responses,
/// and a worker that hangs in a request cannot process other keys, so that layer is off.
///
/// `user_agent` identifies the program in the server's log: `shop-controller/1.2`.
///
/// # Errors
///
/// Fails if the user agent is not a valid header value or the configuration is unusable.
///
/// # Panics
///
/// Panics outside a tokio runtime. The client belongs to that runtime.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = kube::Config::infer().await?;
/// let client = pintle::client::build(config, "shop-controller/1.2")?;
/// # Ok(())
/// # }
/// ```
pub fn build(config: Config, user_agent: &str) -> Result<Client, ClientError> {
    let builder = ClientBuilder::try_from(prepare(config, user_agent)?);
    Ok(builder.map_err(unusable)?.build())
}

/// Builds a client like [`build`] whose requests are limited by `limit`.
///
/// The limit is the outermost layer, so a waiting request holds no connection. Leases, events and
/// watches do not wait behind other requests; see [`RateLimit`].
///
/// # Errors
///
/// Fails if the user agent is not a valid header value or the configuration is unusable.
///
/// # Panics
///
/// Panics outside a tokio runtime. The client belongs to that runtime.
///
/// # Examples
/// ```no_run
/// # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use pintle::limits::RateLimit;
///
/// let limit = RateLimit::new(20.0, 30)?;
/// let client = pintle::client::build_limited(config, "shop-controller/1.2", &limit)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "limits")]
pub fn build_limited(
    config: Config,
    user_agent: &str,
    limit: &RateLimit,
) -> Result<Client, ClientError> {
    let builder = ClientBuilder::try_from(prepare(config, user_agent)?);
    Ok(builder.map_err(unusable)?.with_layer(limit).build())
}

/// Returns a client that fails every request: for a program that builds its controllers only to
/// print the [permissions](crate::manager::Manager::rules) they need.
///
/// # Panics
///
/// Panics outside a tokio runtime. The client belongs to that runtime.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let client = pintle::client::offline();
/// let error = client.apiserver_version().await.unwrap_err();
/// assert!(error.to_string().contains("this client is offline"));
/// # }
/// ```
pub fn offline() -> Client {
    let refuse = |_: http::Request<Body>| async {
        let why = "this client is offline: it was built without a cluster";
        Err::<http::Response<Body>, _>(tower::BoxError::from(why))
    };
    Client::new(tower::service_fn(refuse), "default")
}

fn unusable(error: kube::Error) -> ClientError {
    ClientError::Config(Box::new(error))
}

fn prepare(mut config: Config, user_agent: &str) -> Result<Config, ClientError> {
    let value = HeaderValue::from_str(user_agent)
        .map_err(|_| ClientError::UserAgent(user_agent.to_owned()))?;
    config.default_retry = false;
    config.headers.retain(|(name, _)| name != USER_AGENT);
    config.headers.push((USER_AGENT, value));
    Ok(config)
}

#[cfg(test)]
mod tests;
