//! The admin API: what an administrator sees and does, as JSON over HTTP, and the page that shows it to a person.
//!
//! `openapi.json` describes it. Long listings come in pages, are made beside the tasks that serve clients, and take
//! each lock's shard only for that lock.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use monolock_core::{Glob, LockName, LockNameError, LockNameRef, Token};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::administration::{LockReport, More, NotDone, SessionReport, Who};
use crate::event::{as_millis, rfc3339};
use crate::event_stream::EventStream;
use crate::events::{Reader, Whence};
use crate::guard::{Guard, Refusal};
use crate::http::Lane;
use crate::page;
use crate::shared::Shared;
use crate::uri::{UriError, parameters, segment};

/// How many locks a page has where the request does not say.
const DEFAULT_LIMIT: usize = 1000;

/// How many locks a page has at the most.
const MAX_LIMIT: usize = 10_000;

/// A page ends after the lock with which it has so many sessions: long queues make short pages.
const SESSIONS_PER_PAGE: usize = 10_000;

/// How long a pattern may be: all names are matched against it.
const MAX_PATTERN_BYTES: usize = 1024;

/// How many listings are made at a time.
const LISTINGS: usize = 2;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const JSON: &str = "application/json";

/// Where the admin API is served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where.
    pub listen: AdminListen,
    /// To whom.
    pub access: AdminAccess,
}

/// An address of the admin API, in text `ADDRESS:PORT` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// A TCP address. Port 0 takes any free port.
    Tcp(SocketAddr),
    /// A Unix socket, which is made with mode 0600. The socket of a server that is gone is replaced.
    #[cfg(unix)]
    Unix(PathBuf),
}

/// Who may use the admin API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AdminAccess {
    /// Whoever reaches it, which is for loopback addresses and Unix sockets alone.
    #[default]
    Local,
    /// Whoever shows the bearer token that is in this file.
    Token(PathBuf),
    /// Whoever reaches it, on any address.
    Insecure,
}

/// What of the server's settings `GET /api/info` shows.
#[derive(Debug, Serialize)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) ops_listen: Option<SocketAddr>,
    pub(crate) tls: bool,
    pub(crate) mtls: bool,
    pub(crate) acl_file: Option<String>,
    /// `-` is standard output.
    pub(crate) audit_log: Option<String>,
    #[serde(rename = "io_timeout_ms", serialize_with = "as_millis")]
    pub(crate) io_timeout: Duration,
}

#[derive(Debug)]
struct Admin {
    shared: Arc<Shared>,
    config: Config,
    listings: Arc<Semaphore>,
    /// How many may read the events at a time.
    max_readers: usize,
}

/// What is served, over so many connections at a time.
pub(crate) fn router(shared: Arc<Shared>, config: Config, guard: Guard, connections: usize) -> Router {
    // Half of the connections are left to those who ask and go.
    let max_readers = connections / 2;
    let admin = Admin { shared, config, listings: Arc::new(Semaphore::new(LISTINGS)), max_readers };
    Router::new()
        .route(page::PATH, get(page::page))
        .route("/api/info", get(info))
        .route("/api/events", get(events))
        .route("/api/locks", get(locks))
        .route("/api/locks/{name}", get(lock))
        .route("/api/locks/{name}/release", post(release))
        .route("/api/locks/{name}/waiters/{waiter}", delete(kick))
        .route("/api/openapi.json", get(description))
        .fallback(async || Problem::NoSuchPath)
        .method_not_allowed_fallback(async || Problem::WrongMethod)
        .layer(middleware::from_fn_with_state(Arc::new(guard), admit))
        .with_state(Arc::new(admin))
}

async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_for_page = request.uri().path() == page::PATH && matches!(*request.method(), Method::GET | Method::HEAD);
    if let Err(refusal) = if is_for_page { guard.check_host(&request) } else { guard.check(&request) } {
        return Problem::Refused(refusal).into_response();
    }
    // A body would be ignored, and with it what its author meant to say.
    if !request.body().is_end_stream() {
        return Problem::Body.into_response();
    }
    next.run(request).await
}

async fn info(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Info<'a> {
        version: &'a str,
        #[serde(rename = "uptime_ms", serialize_with = "as_millis")]
        uptime: Duration,
        #[serde(rename = "start_grace_remaining_ms", serialize_with = "as_millis")]
        start_grace_remaining: Duration,
        config: &'a Config,
        locks: usize,
        sessions: usize,
    }
    let [] = parameters(&uri, [])?;
    let shards = &admin.shared.shards;
    let (locks, sessions) = shards.counts();
    Ok(json(&Info {
        version: env!("CARGO_PKG_VERSION"),
        uptime: shards.uptime(),
        start_grace_remaining: shards.start_grace_remaining(),
        config: &admin.config,
        locks,
        sessions,
    }))
}

async fn locks(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Problem> {
    let listing = Listing::read(&uri)?;
    let turn = Arc::clone(&admin.listings).acquire_owned().await;
    let page = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        listing.page(&admin.shared)
    });
    page.await.map_err(|_panicked| Problem::Internal)
}

async fn events(
    State(admin): State<Arc<Admin>>,
    Extension(lane): Extension<Arc<Lane>>,
    request: Request,
) -> Result<Response, Problem> {
    let [matching, after] = parameters(request.uri(), ["match", "after"])?;
    let matching = pattern(matching)?;
    // A browser that comes back asks for the same address again, so what it has read since stands in the header.
    let from = match (request.headers().get(LAST_EVENT_ID), after) {
        (Some(id), _) => id.to_str().ok().and_then(|id| id.parse().ok()).map_or(Whence::Elsewhere, Whence::After),
        (None, Some(after)) => after.parse().map(Whence::After).map_err(|_| Problem::After(after))?,
        (None, None) => Whence::Now,
    };
    let shared = Arc::clone(&admin.shared);
    let begun = Reader::begin(&shared, from, admin.max_readers).map_err(|_| Problem::TooManyReaders)?;
    Ok(EventStream::new(shared, begun, matching, lane).into_response())
}

async fn lock(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Problem> {
    let [] = parameters(&uri, [])?;
    let name = lock_name(&uri)?;
    let report = admin.shared.shards.report(name.as_name_ref()).ok_or(Problem::NoSuchLock(name))?;
    Ok(json(&Lock::from(&report)))
}

async fn release(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Released<'a> {
        name: &'a str,
        /// It held the lock, so it is there.
        holder: Option<Holder<'a>>,
    }
    let [token] = parameters(&uri, ["token"])?;
    let token = token.map(|token| number(&token).and_then(Token::new).ok_or(Problem::Token(token))).transpose()?;
    let name = lock_name(&uri)?;
    let ended = admin.shared.shards.force_release(name.as_name_ref(), token).map_err(|not_done| match not_done {
        NotDone::NotFound => Problem::NoHolder(name.clone()),
        NotDone::OtherToken(token) => Problem::OtherToken(name.clone(), token),
    })?;
    tracing::info!(lock = ?name, identity = ?ended.identity, peer = %ended.remote_addr, "released by an administrator");
    Ok(json(&Released { name: name.as_str(), holder: Holder::of(&ended) }))
}

async fn kick(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Kicked<'a> {
        name: &'a str,
        waiter: Waiter<'a>,
    }
    let [] = parameters(&uri, [])?;
    let (name, waiter) = (lock_name(&uri)?, segment(&uri, 4)?);
    let who = number(&waiter).map(Who::Session).or_else(|| waiter.parse().ok().map(Who::RemoteAddr));
    let who = who.ok_or_else(|| Problem::Waiter(waiter.clone()))?;
    let kicked = admin.shared.shards.kick(name.as_name_ref(), who).map_err(|not_done| match not_done {
        NotDone::NotFound | NotDone::OtherToken(_) => Problem::NoSuchWaiter(name.clone(), waiter),
    })?;
    tracing::info!(lock = ?name, identity = ?kicked.identity, peer = %kicked.remote_addr, "removed from the queue by an administrator");
    Ok(json(&Kicked { name: name.as_str(), waiter: Waiter::of(&kicked) }))
}

async fn description() -> impl IntoResponse {
    ([(CONTENT_TYPE, JSON)], include_str!("openapi.json"))
}

/// Which locks are to be listed.
struct Listing {
    matching: Option<Glob>,
    after: Option<String>,
    limit: usize,
}

impl Listing {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let [matching, after, limit] = parameters(uri, ["match", "after", "limit"])?;
        let limit = match limit {
            None => DEFAULT_LIMIT,
            Some(limit) => number(&limit)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or(Problem::Limit(limit))?,
        };
        Ok(Self { matching: pattern(matching)?, after, limit })
    }

    /// Each lock is shown as it is when its turn comes; one that nobody claims any more by then is left out.
    fn page(&self, shared: &Shared) -> Response {
        #[derive(Serialize)]
        struct Page<'a> {
            locks: Vec<Lock<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            next: Option<&'a str>,
        }
        let Self { matching, after, limit } = self;
        let (names, more) = shared.shards.names(matching.as_ref(), after.as_deref(), *limit);
        let mut reports = Vec::with_capacity(names.len());
        let (mut sessions, mut seen) = (0, 0);
        for name in &names {
            if sessions >= SESSIONS_PER_PAGE {
                break;
            }
            seen += 1;
            let report = shared.shards.report(name.as_name_ref());
            sessions += report.as_ref().map_or(0, |report| 1 + report.waiters.len());
            reports.extend(report);
        }
        let is_last = more == More::No && seen == names.len();
        let next = names[..seen].last().filter(|_| !is_last).map(LockName::as_str);
        json(&Page { locks: reports.iter().map(Lock::from).collect(), next })
    }
}

#[derive(Serialize)]
struct Lock<'a> {
    name: &'a str,
    holder: Option<Holder<'a>>,
    waiters: Vec<Waiter<'a>>,
}

#[derive(Serialize)]
struct Holder<'a> {
    identity: &'a str,
    remote_addr: SocketAddr,
    since: String,
    lease_ms: u32,
    #[serde(rename = "lease_remaining_ms", serialize_with = "as_millis")]
    lease_remaining: Duration,
    /// Below 2^53 for as long as a token is about its second shifted by 20 bits, so that JavaScript reads it exactly.
    token: u64,
    session: u64,
}

#[derive(Serialize)]
struct Waiter<'a> {
    identity: &'a str,
    remote_addr: SocketAddr,
    queued_at: String,
    lease_ms: u32,
    #[serde(rename = "lease_remaining_ms", serialize_with = "as_millis")]
    lease_remaining: Duration,
    session: u64,
}

impl<'a> From<&'a LockReport> for Lock<'a> {
    fn from(LockReport { name, holder, waiters }: &'a LockReport) -> Self {
        Self {
            name: name.as_str(),
            holder: holder.as_ref().and_then(Holder::of),
            waiters: waiters.iter().map(Waiter::of).collect(),
        }
    }
}

impl<'a> Holder<'a> {
    /// `None` for a session that holds nothing.
    fn of(report: &'a SessionReport) -> Option<Self> {
        let SessionReport { session, identity, remote_addr, since, lease, lease_remaining, token } = report;
        Some(Self {
            identity,
            remote_addr: *remote_addr,
            since: rfc3339(*since),
            lease_ms: lease.as_millis(),
            lease_remaining: *lease_remaining,
            token: (*token)?.get(),
            session: *session,
        })
    }
}

impl<'a> Waiter<'a> {
    fn of(report: &'a SessionReport) -> Self {
        let SessionReport { session, identity, remote_addr, since, lease, lease_remaining, token: _ } = report;
        Self {
            identity,
            remote_addr: *remote_addr,
            queued_at: rfc3339(*since),
            lease_ms: lease.as_millis(),
            lease_remaining: *lease_remaining,
            session: *session,
        }
    }
}

/// Why a request has not had what it wanted.
#[derive(Debug)]
enum Problem {
    Refused(Refusal),
    NoSuchPath,
    WrongMethod,
    Body,
    Uri(UriError),
    Name(LockNameError),
    Waiter(String),
    Token(String),
    Limit(String),
    LongPattern,
    After(String),
    TooManyReaders,
    NoSuchLock(LockName),
    NoHolder(LockName),
    NoSuchWaiter(LockName, String),
    OtherToken(LockName, Token),
    Internal,
}

impl Problem {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Refused(Refusal::ForeignHost | Refusal::CrossSite) => StatusCode::FORBIDDEN,
            Self::Refused(Refusal::Unauthorized) => StatusCode::UNAUTHORIZED,
            Self::NoSuchPath | Self::NoSuchLock(_) | Self::NoHolder(_) | Self::NoSuchWaiter(..) => {
                StatusCode::NOT_FOUND
            }
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body
            | Self::Uri(_)
            | Self::Name(_)
            | Self::Waiter(_)
            | Self::Token(_)
            | Self::Limit(_)
            | Self::LongPattern
            | Self::After(_) => StatusCode::BAD_REQUEST,
            Self::OtherToken(..) => StatusCode::CONFLICT,
            Self::TooManyReaders => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Refusal::ForeignHost) => {
                f.write_str("the Host header must be localhost or a loopback address")
            }
            Self::Refused(Refusal::CrossSite) => f.write_str("a request from another site is refused"),
            Self::Refused(Refusal::Unauthorized) => f.write_str("the bearer token is missing or wrong"),
            Self::NoSuchPath => f.write_str("there is nothing at this path"),
            Self::WrongMethod => {
                f.write_str("this path does not know the method; the Allow header names those it knows")
            }
            Self::Body => f.write_str("a request has no body here; what there is to say goes into the query"),
            Self::Uri(error) => error.fmt(f),
            Self::Name(error) => write!(f, "the path names no lock: {error}"),
            Self::Waiter(waiter) => write!(f, "{waiter:?} is neither a session's number nor an ADDRESS:PORT"),
            Self::Token(token) => write!(f, "the query parameter token is no token: {token:?}"),
            Self::Limit(limit) => {
                write!(f, "the query parameter limit must be a number from 1 to {MAX_LIMIT}, not {limit:?}")
            }
            Self::LongPattern => {
                write!(f, "the query parameter match must not be longer than {MAX_PATTERN_BYTES} bytes")
            }
            Self::After(id) => write!(f, "the query parameter after is not the id of an event: {id:?}"),
            Self::TooManyReaders => f.write_str("as many read the events as may at a time; try again later"),
            Self::NoSuchLock(name) => write!(f, "nobody claims the lock {name:?}"),
            Self::NoHolder(name) => write!(f, "nobody holds the lock {name:?}"),
            Self::NoSuchWaiter(name, waiter) => write!(f, "no {waiter} waits for the lock {name:?}"),
            Self::OtherToken(name, token) => write!(f, "the lock {name:?} is held under another token, {token}"),
            Self::Internal => f.write_str("the server has failed to answer"),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
            /// The present one, where another was asked for.
            #[serde(skip_serializing_if = "Option::is_none")]
            token: Option<u64>,
        }
        let token = if let Self::OtherToken(_, token) = self { Some(token.get()) } else { None };
        let body = json(&Body { error: self.to_string(), token });
        if matches!(self, Self::Refused(Refusal::Unauthorized)) {
            return (self.status(), [(WWW_AUTHENTICATE, "Bearer realm=\"monolock\"")], body).into_response();
        }
        (self.status(), body).into_response()
    }
}

impl From<UriError> for Problem {
    fn from(error: UriError) -> Self {
        Self::Uri(error)
    }
}

impl FromStr for AdminListen {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        #[cfg(unix)]
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        text.parse().map(Self::Tcp)
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// What a query's `match` matches.
fn pattern(matching: Option<String>) -> Result<Option<Glob>, Problem> {
    match matching {
        Some(pattern) if pattern.len() > MAX_PATTERN_BYTES => Err(Problem::LongPattern),
        matching => Ok(matching.as_deref().map(Glob::new)),
    }
}

/// The name in a path of `/api/locks/…`.
fn lock_name(uri: &Uri) -> Result<LockName, Problem> {
    LockNameRef::new(&segment(uri, 2)?).map(LockName::from).map_err(Problem::Name)
}

/// A number in digits alone.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn json(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("strings and numbers are JSON, and memory takes them");
    ([(CONTENT_TYPE, JSON)], body).into_response()
}
