//! A `kube::Client` that talks to the server in process.

use crate::ApiServer;

impl ApiServer {
    /// A client of this server, without sockets, authentication or retries.
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
        kube::Client::new(self.service(), "default")
    }
}
