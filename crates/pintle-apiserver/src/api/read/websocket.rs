//! Watches over WebSocket (RFC 6455), for clients that request it with `Upgrade: websocket`.
//!
//! The server responds with 101 and sends each event as one text message, regardless of the
//! subprotocol offered, as kube-apiserver does. Of the frames a client sends, pings are answered, a
//! close ends the watch, and data is discarded. The watch and its cursor are released as soon as
//! either side closes.

use std::io;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::api::{Body, response};
use crate::serve::InFlight;

/// The GUID that RFC 6455 appends to the client's key.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION: &str = "13";

const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;
/// Set in the first byte of a frame that ends its message.
const FINAL: u8 = 0x80;
/// Set in the second byte of a frame whose payload is masked.
const MASKED: u8 = 0x80;
/// The maximum payload of a control frame, in bytes.
const MAX_CONTROL: u64 = 125;

const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;

/// A connection that can be upgraded to a WebSocket.
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// Resolves after the 101 was sent.
    pub(crate) connection: OnUpgrade,
    /// Runs the task that then owns the connection.
    pub(crate) tasks: TaskTracker,
    /// Counts as a request until the WebSocket is closed.
    pub(crate) in_flight: InFlight,
}

/// Returns true if a request asks for a WebSocket.
pub(crate) fn is_requested(method: &Method, headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).iter();
        values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    method == Method::GET && has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade")
}

/// Responds with 101 and sends the events of a watch over the connection.
pub(crate) fn answer(
    headers: &HeaderMap,
    upgrade: Option<Upgrade>,
    events: impl Stream<Item = Bytes> + Send + 'static,
    closing: CancellationToken,
) -> Response<Body> {
    let mut response = match handshake(headers) {
        Ok(response) => response,
        Err(refusal) => return *refusal,
    };
    let Some(upgrade) = upgrade else {
        return refused(400, "this connection cannot be upgraded");
    };
    let in_flight = upgrade.in_flight;
    upgrade.tasks.spawn(async move {
        let _in_flight = in_flight;
        match upgrade.connection.await {
            Ok(connection) => serve(TokioIo::new(connection), events, closing).await,
            Err(error) => {
                tracing::debug!(%error, "upgrade to WebSocket failed; dropping the watch");
            }
        }
    });
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}

fn refused(code: u16, why: &'static str) -> Response<Body> {
    response::text(code, why)
}

/// Checks the request's half of the handshake and returns the response.
fn handshake(headers: &HeaderMap) -> Result<Response<Body>, Box<Response<Body>>> {
    let text = |name: header::HeaderName| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().trim()
    };
    if text(header::SEC_WEBSOCKET_VERSION) != VERSION {
        let mut refusal = refused(400, "missing or bad WebSocket Version");
        let version = HeaderValue::from_static(VERSION);
        let headers = refusal.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_VERSION, version);
        return Err(refusal.into());
    }
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(refused(400, "mismatch challenge/response").into());
    }
    if text(header::ORIGIN).is_empty() {
        return Err(refused(403, "null origin").into());
    }
    let mut response = Response::new(Body::whole(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    if let Ok(accept) = HeaderValue::from_str(&accept(key)) {
        out.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    // The subprotocol makes no difference to a watch. A single offered subprotocol is confirmed
    // because clients require it.
    let offered = text(header::SEC_WEBSOCKET_PROTOCOL);
    if offered.contains(',') {
        return Err(refused(400, "").into());
    }
    if let (false, Ok(protocol)) = (offered.is_empty(), HeaderValue::from_str(offered)) {
        out.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// Returns the `Sec-WebSocket-Accept` for the client's key.
fn accept(key: &str) -> String {
    let text = format!("{key}{GUID}");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// Why a watch over WebSocket ends.
#[derive(Debug)]
enum End {
    /// The watch ended, the server shuts down, or the client closed or violated the protocol: send
    /// a close frame.
    Close(u16),
    /// The connection is gone.
    Gone(io::Error),
}

async fn serve(
    connection: impl AsyncRead + AsyncWrite,
    events: impl Stream<Item = Bytes>,
    closing: CancellationToken,
) {
    let (reader, mut writer) = split(connection);
    let mut frames = Frames::new(reader);
    // A close frame can only be sent between two messages.
    let mut whole = true;
    let end = {
        let run = run(&mut frames, &mut writer, events, &mut whole);
        tokio::select! {
            biased;
            () = closing.cancelled() => End::Close(GOING_AWAY),
            end = run => end,
        }
    };
    match end {
        End::Close(code) if whole => {
            let close = frame(CLOSE, &code.to_be_bytes());
            if let Err(error) = finish(&mut writer, &close).await {
                tracing::debug!(%error, "failed to send the close frame of a WebSocket; dropping the connection");
            }
        }
        End::Close(_) => {}
        End::Gone(error) => {
            tracing::debug!(%error, "WebSocket connection failed; ending the watch");
        }
    }
}

/// How long a client may take to read the close frame.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

async fn finish(writer: &mut (impl AsyncWrite + Unpin), close: &[u8]) -> io::Result<()> {
    let last = async {
        writer.write_all(close).await?;
        writer.shutdown().await
    };
    match tokio::time::timeout(CLOSE_TIMEOUT, last).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Sends events and answers control frames until one side closes. `whole` is false while a message
/// is being written.
async fn run<R: AsyncRead + Unpin>(
    frames: &mut Frames<R>,
    writer: &mut (impl AsyncWrite + Unpin),
    events: impl Stream<Item = Bytes>,
    whole: &mut bool,
) -> End {
    tokio::pin!(events);
    loop {
        let message = tokio::select! {
            // Read the client first, or a busy watch would never see it close.
            biased;
            control = frames.next() => match control {
                Ok(Control::Ping(payload)) => frame(PONG, &payload),
                Ok(Control::Close) => return End::Close(NORMAL),
                Err(Broken::Protocol) => return End::Close(PROTOCOL_ERROR),
                Err(Broken::Connection(error)) => return End::Gone(error),
            },
            chunk = events.next() => match chunk {
                Some(chunk) => messages(&chunk),
                None => return End::Close(NORMAL),
            },
        };
        *whole = false;
        if let Err(error) = writer.write_all(&message).await {
            return End::Gone(error);
        }
        if let Err(error) = writer.flush().await {
            return End::Gone(error);
        }
        *whole = true;
    }
}

/// Encodes the events of a chunk, one text message each.
fn messages(chunk: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(chunk.len() + 16);
    for event in chunk.split_inclusive(|byte| *byte == b'\n') {
        write_frame(&mut out, TEXT, event);
    }
    out
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 10);
    write_frame(&mut out, opcode, payload);
    out
}

/// Appends an unfragmented message. Servers do not mask.
fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(FINAL | opcode);
    let length = payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ 0..=125), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// A control frame that needs a reply.
#[derive(Debug, PartialEq, Eq)]
enum Control {
    Ping(Vec<u8>),
    Close,
}

/// Why reading from the client stopped.
#[derive(Debug)]
enum Broken {
    /// The client violates the protocol.
    Protocol,
    Connection(io::Error),
}

/// Reads the frames of a client and discards data frames.
struct Frames<R> {
    reader: R,
    buffer: BytesMut,
    /// The rest of a data frame's payload, in bytes.
    skip: u64,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: BytesMut::with_capacity(1024),
            skip: 0,
        }
    }

    /// Returns the next control frame that needs a reply.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: bytes that were read stay in the buffer.
    async fn next(&mut self) -> Result<Control, Broken> {
        loop {
            if let Some(control) = self.parse()? {
                return Ok(control);
            }
            match self.reader.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(Broken::Connection(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(Broken::Connection(error)),
            }
        }
    }

    /// Returns the next control frame in the buffer, or `None` if it is incomplete.
    fn parse(&mut self) -> Result<Option<Control>, Broken> {
        loop {
            let skipped = match usize::try_from(self.skip) {
                Ok(skip) => skip.min(self.buffer.len()),
                Err(_) => self.buffer.len(),
            };
            self.buffer.advance(skipped);
            self.skip -= skipped as u64;
            let Some(head) = Head::read(&self.buffer)? else {
                return Ok(None);
            };
            if !head.is_control() {
                self.buffer.advance(head.length);
                self.skip = head.payload;
                continue;
            }
            // The length was checked with the head.
            let payload = usize::try_from(head.payload).unwrap_or(usize::MAX);
            let Some(masked) = self
                .buffer
                .get(head.length..head.length.saturating_add(payload))
            else {
                return Ok(None);
            };
            let plain = masked.iter().zip(head.mask.iter().cycle());
            let plain = plain.map(|(byte, mask)| byte ^ mask).collect();
            self.buffer.advance(head.length + payload);
            match head.opcode {
                PING => return Ok(Some(Control::Ping(plain))),
                CLOSE => return Ok(Some(Control::Close)),
                _ => {}
            }
        }
    }
}

/// The head of a frame.
struct Head {
    opcode: u8,
    mask: [u8; 4],
    /// The length of the head.
    length: usize,
    /// The length of the payload.
    payload: u64,
}

impl Head {
    /// Decodes a head, or returns `None` if it is incomplete.
    fn read(bytes: &[u8]) -> Result<Option<Self>, Broken> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        let opcode = first & 0x0f;
        // No extension that uses the reserved bits was negotiated, and clients must mask.
        if first & 0x70 != 0 || second & MASKED == 0 || matches!(opcode, 0x3..=0x7 | 0xb..=0xf) {
            return Err(Broken::Protocol);
        }
        let (payload, extra) = match second & !MASKED {
            126 => match rest.first_chunk() {
                Some(length) => (u64::from(u16::from_be_bytes(*length)), 2),
                None => return Ok(None),
            },
            127 => match rest.first_chunk() {
                Some(length) => (u64::from_be_bytes(*length), 8),
                None => return Ok(None),
            },
            length => (u64::from(length), 0),
        };
        let head = match rest.get(extra..).and_then(|rest| rest.first_chunk()) {
            Some(mask) => Self {
                opcode,
                mask: *mask,
                length: 2 + extra + mask.len(),
                payload,
            },
            None => return Ok(None),
        };
        if head.is_control() && (payload > MAX_CONTROL || first & FINAL == 0) {
            return Err(Broken::Protocol);
        }
        Ok(Some(head))
    }

    fn is_control(&self) -> bool {
        self.opcode & 0x8 != 0
    }
}

#[cfg(test)]
mod tests;
