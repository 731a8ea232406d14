//! The admin API as a client sees it: its objects, and one sentence for each way in which it says no.
//!
//! What a server says is checked before it is believed, and nothing of it is printed raw.

use std::fmt;
use std::path::PathBuf;
use std::str;
use std::time::{Duration, SystemTime};

use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::failure::{DENIED, FAILED, Failure, NONE_SUCH, OTHER_CLAIM, UNREACHABLE};
use crate::http::{Endpoint, HttpClient, NoAnswer};
use crate::text::safe;

/// What stands for itself in a URL (RFC 3986, section 2.3); all else is percent-encoded.
const NOT_UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Clocks that differ by no more than this are the same clock: a server says its time to the second.
const SAME_CLOCK: Duration = Duration::from_secs(2);

/// The state of a server.
#[derive(Debug, Deserialize)]
pub(crate) struct Info {
    pub(crate) version: String,
    pub(crate) uptime_ms: u64,
    pub(crate) start_grace_remaining_ms: u64,
    pub(crate) config: Config,
    pub(crate) locks: u64,
    pub(crate) sessions: u64,
}

/// What of a server's settings it shows.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) listen: String,
    pub(crate) ops_listen: Option<String>,
    pub(crate) tls: bool,
    pub(crate) mtls: bool,
    pub(crate) acl_file: Option<String>,
    pub(crate) audit_log: Option<String>,
    pub(crate) io_timeout_ms: u64,
}

/// A lock that somebody claims.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) name: String,
    pub(crate) holder: Option<Holder>,
    /// In the order in which they will be served.
    pub(crate) waiters: Vec<Waiter>,
}

/// Who holds a lock.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Holder {
    #[serde(flatten)]
    pub(crate) client: Client,
    #[serde(deserialize_with = "rfc3339")]
    pub(crate) since: SystemTime,
    pub(crate) token: u64,
}

/// Who waits for a lock.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Waiter {
    #[serde(flatten)]
    pub(crate) client: Client,
    #[serde(deserialize_with = "rfc3339")]
    pub(crate) queued_at: SystemTime,
}

/// What holders and waiters have alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Client {
    /// Empty without mutual TLS.
    pub(crate) identity: String,
    pub(crate) remote_addr: String,
    pub(crate) session: u64,
    pub(crate) lease_ms: u64,
    pub(crate) lease_remaining_ms: u64,
}

/// A part of a listing.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    pub(crate) locks: Vec<Lock>,
    /// Where the next part begins, unless this is the last.
    pub(crate) next: Option<String>,
}

/// A part of a listing, as it came.
#[derive(Debug, Deserialize)]
pub(crate) struct RawPage<'a> {
    #[serde(borrow)]
    pub(crate) locks: Vec<&'a RawValue>,
    pub(crate) next: Option<String>,
}

/// A claim that was ended by force.
#[derive(Debug, Deserialize)]
pub(crate) struct Released {
    pub(crate) holder: Holder,
}

/// A place in a queue that was ended by force.
#[derive(Debug, Deserialize)]
pub(crate) struct Kicked {
    pub(crate) waiter: Waiter,
}

/// What an admin API answered.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    pub(crate) value: T,
    /// The same as it came.
    pub(crate) body: Bytes,
    /// When that was, by the clock that the times in it are of.
    pub(crate) now: SystemTime,
}

/// Why an admin API has not done what was asked.
#[derive(Debug)]
pub(crate) enum ApiError {
    Unreachable(NoAnswer),
    /// What answers is another thing.
    Foreign(String),
    /// It is not for everybody.
    Unauthorized(String),
    Forbidden(String),
    /// There is no such lock, holder or waiter.
    NotFound(String),
    /// The lock is held under another token.
    OtherToken(u64),
    Other(StatusCode, String),
}

/// Asks one admin API.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    http: HttpClient,
    token_file: Option<PathBuf>,
}

impl Api {
    pub(crate) const fn new(http: HttpClient, token_file: Option<PathBuf>) -> Self {
        Self { http, token_file }
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        self.http.endpoint()
    }

    pub(crate) async fn info(&self) -> Result<Reply<Info>, ApiError> {
        self.ask(Method::GET, "/api/info").await
    }

    /// One page of the locks whose names match, from the one after `after` on.
    pub(crate) async fn page(&self, matching: Option<&str>, after: Option<&str>) -> Result<Reply<Page>, ApiError> {
        let pairs = [("match", matching), ("after", after)];
        self.ask(Method::GET, &with_query("/api/locks", &pairs)).await
    }

    pub(crate) async fn lock(&self, name: &str) -> Result<Reply<Lock>, ApiError> {
        self.ask(Method::GET, &format!("/api/locks/{}", encoded(name))).await
    }

    /// Ends the holder's claim, if it is the one of this token.
    pub(crate) async fn release(&self, name: &str, token: u64) -> Result<Reply<Released>, ApiError> {
        self.ask(Method::POST, &format!("/api/locks/{}/release?token={token}", encoded(name))).await
    }

    /// Ends a waiter's claim.
    pub(crate) async fn kick(&self, name: &str, session: u64) -> Result<Reply<Kicked>, ApiError> {
        self.ask(Method::DELETE, &format!("/api/locks/{}/waiters/{session}", encoded(name))).await
    }

    /// The stream of events of locks whose names match, from after the event of this id on.
    pub(crate) async fn events(
        &self,
        matching: Option<&str>,
        last_event_id: Option<&str>,
    ) -> Result<Response<Incoming>, ApiError> {
        let last = last_event_id.and_then(|id| HeaderValue::try_from(id).ok());
        let headers: Vec<_> = last.map(|id| (HeaderName::from_static("last-event-id"), id)).into_iter().collect();
        let target = with_query("/api/events", &[("match", matching)]);
        let response = self.http.open(Method::GET, &target, &headers).await.map_err(ApiError::of)?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let answer = HttpClient::rest(response).await.map_err(ApiError::of)?;
        Err(match refusal(answer.status, &answer.body) {
            ApiError::NotFound(_) => ApiError::Foreign("it serves no events".to_owned()),
            refusal @ (ApiError::Unreachable(_)
            | ApiError::Foreign(_)
            | ApiError::Unauthorized(_)
            | ApiError::Forbidden(_)
            | ApiError::OtherToken(_)
            | ApiError::Other(..)) => refusal,
        })
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, target: &str) -> Result<Reply<T>, ApiError> {
        let answer = self.http.ask(method, target).await.map_err(ApiError::of)?;
        if answer.status != StatusCode::OK {
            return Err(refusal(answer.status, &answer.body));
        }
        let value = serde_json::from_slice(&answer.body).map_err(|error| ApiError::Foreign(error.to_string()))?;
        Ok(Reply { value, body: answer.body, now: server_time(SystemTime::now(), answer.date) })
    }

    /// The sentence for what went wrong.
    pub(crate) fn failure(&self, error: &ApiError) -> Failure {
        let at = self.endpoint();
        match error {
            ApiError::Unreachable(why) => Failure::new(
                UNREACHABLE,
                format_args!(
                    "no admin API is reached at {at}: {why}; where it is says --admin, and the server serves it with --admin-listen"
                ),
            ),
            ApiError::Foreign(why) => Failure::new(
                UNREACHABLE,
                format_args!("what answers at {at} is no admin API of monolock: {}", safe(why)),
            ),
            ApiError::Unauthorized(_) => match &self.token_file {
                Some(file) => Failure::new(
                    DENIED,
                    format_args!("the admin API at {at} refuses the bearer token in {}", file.display()),
                ),
                None => Failure::new(
                    DENIED,
                    format_args!(
                        "the admin API at {at} asks for a bearer token: name its file with --admin-token-file"
                    ),
                ),
            },
            ApiError::Forbidden(why) => {
                Failure::new(DENIED, format_args!("the admin API at {at} refuses: {}", safe(why)))
            }
            ApiError::NotFound(why) => Failure::new(NONE_SUCH, safe(why)),
            ApiError::OtherToken(token) => Failure::new(
                OTHER_CLAIM,
                format_args!("the lock is held under another token, {token}: nothing was done"),
            ),
            ApiError::Other(status, why) => {
                Failure::new(FAILED, format_args!("the admin API at {at} answers {status}: {}", safe(why)))
            }
        }
    }
}

impl ApiError {
    fn of(error: NoAnswer) -> Self {
        match error {
            NoAnswer::Broken(error) if error.is_parse() => Self::Foreign(error.to_string()),
            error @ (NoAnswer::Broken(_) | NoAnswer::Unreachable(_) | NoAnswer::TimedOut | NoAnswer::TooLong) => {
                Self::Unreachable(error)
            }
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) => error.fmt(f),
            Self::Foreign(why) => write!(f, "no admin API of monolock answers: {}", safe(why)),
            Self::Unauthorized(why) | Self::Forbidden(why) | Self::NotFound(why) => f.write_str(&safe(why)),
            Self::OtherToken(token) => write!(f, "the lock is held under another token, {token}"),
            Self::Other(status, why) => write!(f, "{status}: {}", safe(why)),
        }
    }
}

/// Why the API has said no, if it was the API that did.
fn refusal(status: StatusCode, body: &[u8]) -> ApiError {
    #[derive(Deserialize)]
    struct Problem {
        error: String,
        token: Option<u64>,
    }
    let Ok(Problem { error, token }) = serde_json::from_slice(body) else {
        return ApiError::Foreign(format!("it answers {status}"));
    };
    match (status, token) {
        (StatusCode::UNAUTHORIZED, _) => ApiError::Unauthorized(error),
        (StatusCode::FORBIDDEN, _) => ApiError::Forbidden(error),
        (StatusCode::NOT_FOUND, _) => ApiError::NotFound(error),
        (StatusCode::CONFLICT, Some(token)) => ApiError::OtherToken(token),
        (status, _) => ApiError::Other(status, error),
    }
}

fn encoded(name: &str) -> impl fmt::Display {
    utf8_percent_encode(name, NOT_UNRESERVED)
}

fn with_query(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))));
    let query: Vec<String> = given.collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// Now, by a server's clock: by this machine's, which is finer, where the two agree.
pub(crate) fn server_time(here: SystemTime, there: Option<SystemTime>) -> SystemTime {
    let Some(there) = there else { return here };
    let apart = here.duration_since(there).unwrap_or_else(|error| error.duration());
    if apart <= SAME_CLOCK { here } else { there }
}

/// How long after `earlier` a time is; nothing where the clock was set back.
pub(crate) fn since(now: SystemTime, earlier: SystemTime) -> Duration {
    now.duration_since(earlier).unwrap_or_default()
}

fn rfc3339<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_rfc3339(&text).map_err(|error| D::Error::custom(format_args!("{text:?} is no time: {error}")))
}

/// The same for a field that may be missing.
pub(crate) fn optional_rfc3339<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
    rfc3339(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{server_time, with_query};

    #[test]
    fn whatever_a_name_has_in_it_is_one_segment_and_one_value() {
        let target = with_query("/api/locks", &[("match", Some("a/%?&=#+*é ")), ("after", Some("x"))]);
        assert_eq!(target, "/api/locks?match=a%2F%25%3F%26%3D%23%2B%2A%C3%A9%20&after=x");
        assert_eq!(with_query("/api/locks", &[("match", None)]), "/api/locks");
    }

    #[test]
    fn a_server_with_another_clock_is_believed_and_one_that_agrees_is_read_finer() {
        let here = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_999);
        let seconds = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(server_time(here, None), here);
        assert_eq!(server_time(here, Some(seconds(1_000_000))), here);
        assert_eq!(server_time(here, Some(seconds(999_000))), seconds(999_000));
        assert_eq!(server_time(here, Some(seconds(1_001_000))), seconds(1_001_000));
    }
}
