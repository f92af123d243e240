//! A connection to the API server that can be cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to a server, until it is cut; then it resets them and takes no more, until it
/// is mended.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    up: watch::Sender<bool>,
    #[allow(dead_code, reason = "dropping it ends the forwarding")]
    forwarding: JoinSet<()>,
}

impl Link {
    /// A link to the server at `address`, on a port of its own.
    ///
    /// # Panics
    /// If no port is free.
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

    /// What clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        self.up.send_replace(true);
    }
}

async fn forward(mut client: TcpStream, server: SocketAddr, mut up: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        biased;
        // A cut wins over bytes that are on their way.
        _ = up.wait_for(|up| !up) => {}
        _ = copy_bidirectional(&mut client, &mut server) => {}
    }
}
