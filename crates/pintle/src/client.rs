//! Building the client that controllers talk through.

mod describe;
mod target;

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, Config, client::ClientBuilder};

pub use self::{
    describe::describe,
    target::{Target, TargetError},
};
use crate::limits::RateLimit;

/// Why a client could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The user agent holds bytes that no header may hold.
    #[error("{0:?} cannot be sent as a user agent")]
    UserAgent(String),
    /// The configuration does not make a client: credentials or certificates are wrong.
    #[error("the configuration makes no client: {0}")]
    Config(#[source] Box<kube::Error>),
}

/// Builds a client that leaves retrying to those who know why they retry.
///
/// kube's own default repeats a request that is answered with 429, 503 or 504 up to fifteen times
/// before anybody hears of it. A reflector has its own rules for these answers and reports them, and
/// a worker that hangs in a request cannot do other work: so here that layer is off.
///
/// `user_agent` is how the server's log names this program: `shop-controller/1.2`.
///
/// Must be called inside a tokio runtime, and the client belongs to that runtime.
///
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

/// As [`build`], for a client that keeps to `limit`.
///
/// The limit stands in front of everything else, so what waits for it holds no connection. Leases,
/// events and watches do not wait behind other requests; see [`RateLimit`].
///
/// ```no_run
/// # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use pintle::limits::RateLimit;
///
/// let limit = RateLimit::new(20.0, 30)?;
/// let client = pintle::client::build_limited(config, "shop-controller/1.2", &limit)?;
/// # Ok(())
/// # }
/// ```
pub fn build_limited(
    config: Config,
    user_agent: &str,
    limit: &RateLimit,
) -> Result<Client, ClientError> {
    let builder = ClientBuilder::try_from(prepare(config, user_agent)?);
    Ok(builder.map_err(unusable)?.with_layer(limit).build())
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
mod tests {
    use super::*;

    /// Proves source/client-defaults.
    #[tokio::test]
    async fn our_clients_say_who_they_are_and_do_not_retry_unseen() {
        let config = Config::new("https://127.0.0.1:1".parse().unwrap());
        let config = prepare(config, "shop/1").unwrap();
        assert!(!config.default_retry);
        assert_eq!(
            config.headers,
            [(USER_AGENT, HeaderValue::from_static("shop/1"))]
        );
        build(config, "shop/2").unwrap();
    }

    #[test]
    fn a_user_agent_must_fit_into_a_header() {
        let config = Config::new("https://127.0.0.1:1".parse().unwrap());
        assert!(matches!(
            prepare(config, "a\nb"),
            Err(ClientError::UserAgent(_))
        ));
    }
}
