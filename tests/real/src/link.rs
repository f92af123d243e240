//! A proxy to the API server that can be interrupted.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to a server. While cut, it closes all connections, new ones included.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    up: watch::Sender<bool>,
    #[allow(dead_code, reason = "dropping it stops forwarding")]
    forwarding: JoinSet<()>,
}

impl Link {
    /// Listens on a free port and forwards to `server`.
    ///
    /// # Panics
    ///
    /// Panics if no port is free.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let up = watch::Sender::new(true);
        let is_up = up.subscribe();
        let mut forwarding = JoinSet::new();
        forwarding.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if *is_up.borrow() {
                    connections.spawn(forward(client, server, is_up.clone()));
                }
            }
        });
        Self {
            address,
            up,
            forwarding,
        }
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and new ones as soon as they are accepted.
    pub fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Forwards connections again.
    pub fn restore(&self) {
        self.up.send_replace(true);
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, mut up: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        biased;
        // First, so that nothing is forwarded after a cut.
        _ = up.wait_for(|up| !up) => {}
        _ = copy_bidirectional(&mut client, &mut server) => {}
    }
}
