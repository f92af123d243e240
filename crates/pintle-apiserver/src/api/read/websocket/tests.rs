use std::time::Duration;

use futures::stream;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// A frame as a client sends it.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = frame(opcode, payload);
    out[1] |= MASKED;
    let at = out.len() - payload.len();
    let mask = [1, 2, 3, 4];
    for (i, byte) in out[at..].iter_mut().enumerate() {
        *byte ^= mask[i % 4];
    }
    out.splice(at..at, mask);
    out
}

async fn controls(bytes: &[u8]) -> Vec<Control> {
    let mut frames = Frames::new(bytes);
    let mut all = Vec::new();
    while let Ok(control) = frames.next().await {
        all.push(control);
    }
    all
}

/// The handshake of RFC 6455, section 1.3.
#[test]
fn accept_header_matches_rfc_6455() {
    assert_eq!(
        accept("dGhlIHNhbXBsZSBub25jZQ=="),
        "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    );
}

#[test]
fn each_event_is_one_text_message() {
    assert_eq!(messages(b"{}\n[1]\n"), b"\x81\x03{}\n\x81\x04[1]\n");
    let long = vec![b'x'; 70_000];
    let out = messages(&long);
    assert_eq!(out[..2], [0x81, 127]);
    assert_eq!(out[2..10], 70_000_u64.to_be_bytes());
    assert_eq!(messages(&long[..300])[..4], [0x81, 126, 1, 44]);
}

#[tokio::test]
async fn data_frames_are_skipped() {
    let bytes = [
        masked(TEXT, &[7; 5000]),
        masked(PONG, b"x"),
        masked(PING, b"hello"),
        masked(0x2, b"binary"),
        masked(CLOSE, &[3, 232]),
    ]
    .concat();
    assert_eq!(
        controls(&bytes).await,
        [Control::Ping(b"hello".to_vec()), Control::Close]
    );
}

#[tokio::test]
async fn invalid_frames_are_rejected() {
    for bad in [
        // Not masked, a reserved bit, an unknown opcode, a control frame that is fragmented or too
        // long.
        frame(PING, b"x"),
        [&[0xc9][..], &masked(PING, b"x")[1..]].concat(),
        masked(0x3, b"x"),
        [&[0x09][..], &masked(PING, b"x")[1..]].concat(),
        masked(PING, &[0; 126]),
    ] {
        let mut frames = Frames::new(&bad[..]);
        assert!(matches!(frames.next().await, Err(Broken::Protocol)));
    }
}

struct Client {
    connection: DuplexStream,
    server: tokio::task::JoinHandle<()>,
    closing: CancellationToken,
}

fn client(events: impl Stream<Item = Bytes> + Send + 'static) -> Client {
    let (connection, other) = duplex(1024);
    let closing = CancellationToken::new();
    let server = tokio::spawn(serve(other, events, closing.clone()));
    Client {
        connection,
        server,
        closing,
    }
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_close_ends_the_watch() {
    let mut client = client(stream::pending());
    client
        .connection
        .write_all(&masked(PING, b"hi"))
        .await
        .unwrap();
    let mut pong = [0; 4];
    client.connection.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"\x8a\x02hi");
    client
        .connection
        .write_all(&masked(CLOSE, b""))
        .await
        .unwrap();
    let mut rest = Vec::new();
    client.connection.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\x88\x02\x03\xe8");
    client.server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn end_of_watch_closes_the_connection() {
    let mut client = client(stream::iter([Bytes::from("{}\n")]));
    let mut all = Vec::new();
    client.connection.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"\x81\x03{}\n\x88\x02\x03\xe8");
    client.server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn disconnect_releases_the_watch() {
    let client = client(stream::pending());
    drop(client.connection);
    client.server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stalled_client_does_not_block_shutdown() {
    let client = client(stream::repeat(Bytes::from("{}\n")));
    // The connection accepts no more bytes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.closing.cancel();
    client.server.await.unwrap();
}

proptest! {
    #[test]
    fn reader_survives_arbitrary_bytes(bytes: Vec<u8>, cut in 1_usize..16) {
        let mut frames = Frames::new(&[][..]);
        for part in bytes.chunks(cut) {
            frames.buffer.extend_from_slice(part);
            while let Ok(Some(_)) = frames.parse() {}
            // At most one frame's head and the payload of a control frame are kept.
            if frames.parse().is_ok() {
                prop_assert!(frames.buffer.len() <= 14 + 125);
            }
        }
    }
}
