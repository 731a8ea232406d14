//! What happens to the locks, as it happens: the admin API's event stream, followed over lost connections and restarts.
//!
//! Each event comes once and in order, or it is said that some were missed. A task reads and a bounded channel hands
//! over, so a slow reader here is one to the server, which drops it and tells how much it has missed.

use std::time::{Duration, SystemTime};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::api::{Api, ApiError, optional_rfc3339};
use crate::sse::{Message, Parser};

/// How many notices are on their way to whoever reads them.
const ON_THE_WAY: usize = 256;

/// What a server says at the least, where it has not said how often yet.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Between two attempts to come back: twice as long each time, from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// What a follower is told.
#[derive(Debug)]
pub(crate) enum Notice {
    /// From here on nothing is left out.
    Complete,
    /// So many events were missed; nobody knows how many after a restart.
    Missed { count: Option<u64>, document: String },
    /// Something happened, as it was told.
    Happened { event: Box<Event>, document: String },
    /// The connection is lost, and another is sought.
    Lost(String),
    /// It is of no use to go on.
    Failed(ApiError),
}

/// Something that happened to a lock.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(crate) struct Event {
    #[serde(default, deserialize_with = "optional_rfc3339")]
    pub(crate) time: Option<SystemTime>,
    /// What: `queued`, `granted`, `released`, `waiter_gone`, `denied`, or what a later server knows.
    #[serde(rename = "event")]
    pub(crate) kind: String,
    pub(crate) lock: String,
    pub(crate) identity: String,
    pub(crate) remote_addr: String,
    pub(crate) session: Option<u64>,
    pub(crate) token: Option<u64>,
    pub(crate) wait_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) ahead: Option<u64>,
    pub(crate) reason: Option<String>,
}

/// Follows the events of locks whose names match.
///
/// # Errors
/// The stream cannot be had at the start.
pub(crate) async fn follow(api: Api, matching: Option<String>) -> Result<Receiver<Notice>, ApiError> {
    let first = api.events(matching.as_deref(), None).await?;
    let (notices, receiver) = channel(ON_THE_WAY);
    let follower = Follower { api, matching, parser: Parser::default(), keep_alive: KEEP_ALIVE, notices };
    tokio::spawn(follower.run(first));
    Ok(receiver)
}

struct Follower {
    api: Api,
    matching: Option<String>,
    parser: Parser,
    keep_alive: Duration,
    notices: Sender<Notice>,
}

/// Nobody wants to know any more.
struct Unheard;

impl Follower {
    /// Until nobody listens any more, or the server refuses for good.
    async fn run(mut self, first: Response<Incoming>) {
        let mut stream = first;
        loop {
            let Ok(why) = self.read(stream).await else { return };
            if self.tell(Notice::Lost(why)).await.is_err() {
                return;
            }
            stream = match self.come_back().await {
                Ok(stream) => stream,
                Err(error) => {
                    let _ = self.tell(Notice::Failed(error)).await;
                    return;
                }
            };
        }
    }

    /// Reads to the end of a stream, and says why it ended.
    async fn read(&mut self, stream: Response<Incoming>) -> Result<String, Unheard> {
        let mut body = stream.into_body();
        loop {
            let patience = self.keep_alive * 2 + Duration::from_secs(5);
            let bytes = match timeout(patience, body.frame()).await {
                Err(_) => return Ok(format!("it has said nothing for {}s", patience.as_secs())),
                Ok(None) => return Ok("it has closed the connection".to_owned()),
                Ok(Some(Err(error))) => return Ok(error.to_string()),
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            let Ok(messages) = self.parser.feed(&bytes) else {
                return Ok("it has sent an event that is too long".to_owned());
            };
            for message in messages {
                if let Some(end) = self.pass_on(message).await? {
                    return Ok(end);
                }
            }
        }
    }

    /// Passes a message on; with why the stream ends, if it is about that.
    async fn pass_on(&mut self, message: Message) -> Result<Option<String>, Unheard> {
        #[derive(Deserialize)]
        struct OfTheStream {
            keep_alive_ms: Option<u64>,
            count: Option<u64>,
        }
        let Message { event, data } = message;
        let of_the_stream = || serde_json::from_str(&data).unwrap_or(OfTheStream { keep_alive_ms: None, count: None });
        match event.as_str() {
            "hello" => {
                let keep_alive = of_the_stream().keep_alive_ms.map_or(KEEP_ALIVE, Duration::from_millis);
                self.keep_alive = keep_alive.clamp(Duration::from_secs(1), Duration::from_mins(10));
                self.tell(Notice::Complete).await?;
            }
            "missed" => {
                let count = of_the_stream().count;
                self.tell(Notice::Missed { count, document: data }).await?;
            }
            // The id stays, so whoever comes back is told what it has missed.
            "overrun" => return Ok(Some("events came faster than they were read".to_owned())),
            "stopping" => return Ok(Some("the server stops".to_owned())),
            _ => {
                // What is no event of a lock is of a server that knows more than this program does.
                if let Ok(event) = serde_json::from_str(&data) {
                    self.tell(Notice::Happened { event: Box::new(event), document: data }).await?;
                }
            }
        }
        Ok(None)
    }

    async fn tell(&self, notice: Notice) -> Result<(), Unheard> {
        self.notices.send(notice).await.map_err(|_| Unheard)
    }

    /// Another stream, from where the last one ended.
    ///
    /// # Errors
    /// The server refuses for a reason that does not pass.
    async fn come_back(&mut self) -> Result<Response<Incoming>, ApiError> {
        let id = self.parser.last_id().map(str::to_owned);
        let mut pause = FIRST_PAUSE;
        loop {
            match self.api.events(self.matching.as_deref(), id.as_deref()).await {
                Ok(stream) => {
                    self.parser.begin_anew();
                    return Ok(stream);
                }
                Err(
                    error @ (ApiError::Unauthorized(_)
                    | ApiError::Forbidden(_)
                    | ApiError::Other(StatusCode::BAD_REQUEST, _)),
                ) => return Err(error),
                Err(_) if self.notices.is_closed() => return Err(ApiError::Foreign("nobody listens".to_owned())),
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}
