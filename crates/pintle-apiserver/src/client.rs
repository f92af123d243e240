//! A `kube::Client` that talks to the server in process.

use crate::{ApiServer, User};

impl ApiServer {
    /// Returns a client that acts as [`User::admin`], without sockets or retries.
    ///
    /// Must be called inside a tokio runtime; the client belongs to it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let client = server.client();
    /// assert_eq!(client.apiserver_version().await?.minor, "36");
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> kube::Client {
        self.client_as(User::admin())
    }

    /// Returns a client that acts as `user`, without sockets or retries.
    ///
    /// For a plain name, the groups are derived from it; see [`User::new`]. Must be called inside a
    /// tokio runtime; the client belongs to it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// use k8s_openapi::api::authentication::v1::SelfSubjectReview;
    /// use kube::Api;
    ///
    /// let server = pintle_apiserver::ApiServer::builder().build();
    /// let client = server.client_as("system:serviceaccount:shop:robot");
    /// let reviews = Api::<SelfSubjectReview>::all(client);
    /// let review = reviews.create(&Default::default(), &Default::default()).await?;
    /// let user = review.status.and_then(|status| status.user_info).unwrap_or_default();
    /// assert_eq!(user.username.as_deref(), Some("system:serviceaccount:shop:robot"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn client_as(&self, user: impl Into<User>) -> kube::Client {
        kube::Client::new(self.service_as(user), "default")
    }
}
