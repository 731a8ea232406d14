//! A client of HTTP for one request at a time, over TCP or a Unix socket.
//!
//! What answers may be anything, so each answer is bounded in time and in size before anybody looks at it. Each
//! request has a connection of its own: an operator asks seldom, and a server that was restarted in between is no
//! matter.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, DATE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// How long a connection may take to come about, with the look-up of the name.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long an answer may take from the request to its last byte.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// How long an answer may be. A lock with a hundred thousand waiters has room.
const ANSWER_BYTES: usize = 64 << 20;

/// Where a server is to be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `host:port` or `[v6]:port`.
    Tcp(String),
    Unix(PathBuf),
}

/// Asks one server.
#[derive(Clone, Debug)]
pub(crate) struct HttpClient {
    endpoint: Endpoint,
    authorization: Option<HeaderValue>,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// When, by its own clock, to the second.
    pub(crate) date: Option<SystemTime>,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// Nobody is there.
    Unreachable(io::Error),
    /// Somebody is there and does not speak HTTP, or stopped in the middle.
    Broken(hyper::Error),
    /// It takes too long.
    TimedOut,
    /// It is too long.
    TooLong,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl HttpClient {
    pub(crate) const fn new(endpoint: Endpoint, authorization: Option<HeaderValue>) -> Self {
        Self { endpoint, authorization }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The whole answer to a request without a body.
    ///
    /// # Errors
    /// There is none, or none that is finished in time.
    pub(crate) async fn ask(&self, method: Method, target: &str) -> Result<Answer, NoAnswer> {
        let answering = async { Self::rest(self.open(method, target, &[]).await?).await };
        timeout(ANSWER_TIME, answering).await.unwrap_or(Err(NoAnswer::TimedOut))
    }

    /// The whole of an answer that has begun.
    ///
    /// # Errors
    /// It does not come to its end in time.
    pub(crate) async fn rest(response: Response<Incoming>) -> Result<Answer, NoAnswer> {
        let (status, date) = (response.status(), date_of(&response));
        let body = timeout(ANSWER_TIME, Limited::new(response.into_body(), ANSWER_BYTES).collect()).await;
        let body = body.map_err(|_| NoAnswer::TimedOut)?.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => NoAnswer::Broken(*error),
            Err(_) => NoAnswer::TooLong,
        })?;
        Ok(Answer { status, date, body: body.to_bytes() })
    }

    /// The beginning of an answer, of which the rest is read as it comes; bounded in time up to there.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn open(
        &self,
        method: Method,
        target: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Response<Incoming>, NoAnswer> {
        let connected =
            timeout(CONNECT_TIME, self.connect()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, host) = connected.map_err(NoAnswer::Unreachable)?;
        let asking = async {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // It ends with the answer, or when nobody wants the rest of it any more.
            tokio::spawn(connection);
            let request = Request::builder().method(method).uri(target).header(HOST, host).header(ACCEPT, "*/*");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
            let request = match &self.authorization {
                Some(authorization) => request.header(AUTHORIZATION, authorization),
                None => request,
            };
            let request = request.body(Empty::<Bytes>::new()).expect("targets are percent-encoded and hosts checked");
            sender.send_request(request).await
        };
        let answered = timeout(ANSWER_TIME, asking).await.map_err(|_| NoAnswer::TimedOut)?;
        answered.map_err(NoAnswer::Broken)
    }

    /// The connection, and whom the request is addressed to.
    ///
    /// A server on loopback takes requests for itself alone, by whatever name it was found.
    async fn connect(&self) -> io::Result<(Box<dyn Stream>, String)> {
        match &self.endpoint {
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                let is_loopback = |peer: SocketAddr| peer.ip().to_canonical().is_loopback();
                let host = match stream.peer_addr() {
                    Ok(peer) if is_loopback(peer) => format!("localhost:{}", peer.port()),
                    Ok(_) | Err(_) => address.clone(),
                };
                Ok((Box::new(stream), host))
            }
            Endpoint::Unix(path) => Ok((Box::new(UnixStream::connect(path).await?), "localhost".to_owned())),
        }
    }
}

/// When a server answered, by its own clock.
pub(crate) fn date_of(response: &Response<Incoming>) -> Option<SystemTime> {
    httpdate::parse_http_date(response.headers().get(DATE)?.to_str().ok()?).ok()
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.fmt(f),
            Self::Broken(error) => error.fmt(f),
            Self::TimedOut => write!(f, "there was no whole answer within {}s", ANSWER_TIME.as_secs()),
            Self::TooLong => write!(f, "the answer is longer than {} MiB", ANSWER_BYTES >> 20),
        }
    }
}
