//! A TCP proxy between a program and the API server. It forwards bytes, so TLS stays end to end;
//! faults cut connections, hold back what the server sends, or refuse new connections.

use std::{io, net::SocketAddr, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep_until},
};

/// The state that faults change.
#[derive(Debug)]
pub(super) struct Gate {
    cuts: watch::Sender<u64>,
    held_until: Mutex<Option<Instant>>,
    closed_until: Mutex<Option<Instant>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            cuts: watch::Sender::new(0),
            held_until: Mutex::default(),
            closed_until: Mutex::default(),
        }
    }
}

impl Gate {
    /// Closes all connections. What the server has sent and the program has not received is lost.
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Closes all connections and refuses new ones for a while.
    pub(super) fn close(&self, for_time: Duration) {
        *self.closed_until.lock() = Some(Instant::now() + for_time);
        self.cut();
    }

    /// Holds back everything that the server sends for a while.
    pub(super) fn hold(&self, for_time: Duration) {
        *self.held_until.lock() = Some(Instant::now() + for_time);
    }

    fn is_closed(&self) -> bool {
        let until = *self.closed_until.lock();
        until.is_some_and(|until| until > Instant::now())
    }

    async fn released(&self) {
        let until = *self.held_until.lock();
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
    }
}

/// Forwards connections to the server until the task is dropped.
pub(super) async fn run(listener: TcpListener, server: SocketAddr, gate: std::sync::Arc<Gate>) {
    while let Ok((client, _)) = listener.accept().await {
        if gate.is_closed() {
            continue;
        }
        let gate = std::sync::Arc::clone(&gate);
        tokio::task::spawn_local(async move {
            let mut cuts = gate.cuts.subscribe();
            tokio::select! {
                biased;
                _ = cuts.changed() => {}
                _ = forward(client, server, &gate) => {}
            }
        });
    }
}

async fn forward(client: TcpStream, server: SocketAddr, gate: &Gate) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return to_client.shutdown().await;
            }
            gate.released().await;
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    tokio::try_join!(up, down)?;
    Ok(())
}
