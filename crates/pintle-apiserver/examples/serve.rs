//! Serves an empty cluster until interrupted, and writes a kubeconfig for it.
//!
//! ```text
//! cargo run -p pintle-apiserver --example serve -- kubeconfig
//! kubectl --kubeconfig kubeconfig get namespaces
//! ```

use std::error::Error;

use pintle_apiserver::ApiServer;

#[tokio::main]
#[allow(clippy::print_stdout, reason = "prints the address for the user")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "kubeconfig".to_owned());
    let server = ApiServer::builder().build();
    let bound = server.serve("127.0.0.1:0").await?;
    bound.write_kubeconfig(&path)?;
    println!(
        "{} (kubectl --kubeconfig {path} get namespaces)",
        bound.url()
    );
    tokio::signal::ctrl_c().await?;
    bound.shutdown().await;
    Ok(())
}
