//! The events as an HTTP response that does not end: server-sent events, as the HTML standard has them.
//!
//! A reader is written to when it takes something, and never waited for. Events that come close together go out
//! together, so that a busy server spends its time on locks.

use std::convert::Infallible;
use std::io::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use monolock_core::Glob;
use serde::Serialize;
use tokio::time::sleep;

use crate::event::Event;
use crate::events::{BATCH_EVENTS, EventId, Reader, Start, Taken};
use crate::http::Lane;
use crate::server::Shared;

/// After so long without an event a reader is shown that the server lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// For so long after what a reader was sent it is sent nothing, unless there is much.
const PACE: Duration = Duration::from_millis(20);

/// Keeps a proxy from collecting what is to be read now.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A response under way.
#[derive(Debug)]
pub(crate) struct EventStream {
    shared: Arc<Shared>,
    reader: Reader,
    matching: Option<Glob>,
    lane: Arc<Lane>,
    /// What is sent before the first event.
    opening: Option<Bytes>,
    batch: Vec<Event>,
    /// Whether the reader has got something a moment ago.
    is_paced: bool,
    is_over: bool,
}

/// What is said about the stream itself.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Notice {
    Hello {
        keep_alive_ms: u128,
    },
    Missed {
        /// `None` where it is not known.
        count: Option<u64>,
        message: &'static str,
    },
    Overrun {
        count: u64,
        message: &'static str,
    },
    Stopping {},
}

impl EventStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        (reader, start): (Reader, Start),
        matching: Option<Glob>,
        lane: Arc<Lane>,
    ) -> Self {
        let notice = match start {
            Start::Whole => Notice::Hello { keep_alive_ms: KEEP_ALIVE.as_millis() },
            Start::Missed(count) => Notice::Missed {
                count,
                message: "events of all locks are gone between the id that was given and what follows: list the locks anew",
            },
        };
        let opening = Some(notice.to_text(Some(reader.id())));
        Self { shared, reader, matching, lane, opening, batch: Vec::new(), is_paced: false, is_over: false }
    }

    pub(crate) fn into_response(self) -> Response {
        self.lane.note_stream(true);
        let chunks = stream::unfold(self, |mut stream| async {
            let chunk = stream.next().await?;
            Some((Ok::<_, Infallible>(chunk), stream))
        });
        let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (X_ACCEL_BUFFERING, "no")];
        (headers, Body::from_stream(chunks)).into_response()
    }

    /// What is to be sent next, when there is something. It is asked for when the connection has taken what came
    /// before.
    async fn next(&mut self) -> Option<Bytes> {
        self.lane.note_progress();
        if self.is_over {
            return None;
        }
        if let Some(opening) = self.opening.take() {
            return Some(opening);
        }
        let mut quiet = pin!(sleep(KEEP_ALIVE));
        loop {
            if std::mem::take(&mut self.is_paced) {
                tokio::select! {
                    biased;
                    () = &mut quiet => return Some(self.keep_alive()),
                    () = sleep(PACE) => {}
                }
            }
            let news = self.shared.witness().events.news();
            self.batch.clear();
            match self.reader.take(&mut self.batch) {
                Taken::Events(first) => {
                    let text = self.text(first);
                    self.is_paced = self.batch.len() < BATCH_EVENTS;
                    if !text.is_empty() {
                        return Some(text);
                    }
                    tokio::task::yield_now().await;
                }
                Taken::Nothing => {
                    tokio::select! {
                        () = news => {}
                        () = &mut quiet => return Some(self.keep_alive()),
                    }
                }
                Taken::Overrun(count) => {
                    self.is_over = true;
                    self.reader.note_dropped();
                    let message =
                        "this reader was too slow, and its next events are gone: connect again and list the locks anew";
                    return Some(Notice::Overrun { count, message }.to_text(None));
                }
                Taken::Over => {
                    self.is_over = true;
                    return Some(Notice::Stopping {}.to_text(None));
                }
            }
        }
    }

    /// Those of a batch that match.
    fn text(&self, first: EventId) -> Bytes {
        let mut text = Vec::new();
        for (id, event) in (0..).map(|at| first.plus(at)).zip(&self.batch) {
            if self.matching.as_ref().is_none_or(|glob| glob.matches(event.lock.as_str())) {
                begin(&mut text, Some(id), event.what.name());
                event.append_for_readers(&mut text);
                text.push(b'\n');
            }
        }
        text.into()
    }

    /// A comment, with the id of what was passed over as well: who comes back goes on from there.
    fn keep_alive(&self) -> Bytes {
        format!(": keep-alive\nid: {}\n\n", self.reader.id()).into()
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        if self.lane.is_cut() {
            self.reader.note_dropped();
        }
        self.lane.note_stream(false);
    }
}

impl Notice {
    const fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Missed { .. } => "missed",
            Self::Overrun { .. } => "overrun",
            Self::Stopping {} => "stopping",
        }
    }

    fn to_text(&self, id: Option<EventId>) -> Bytes {
        let mut text = Vec::new();
        begin(&mut text, id, self.name());
        serde_json::to_writer(&mut text, self).expect("strings and numbers are JSON, and memory takes them");
        text.extend_from_slice(b"\n\n");
        text.into()
    }
}

/// What stands before the data of an event. JSON has no line's end in it, so the data is one line.
fn begin(text: &mut Vec<u8>, id: Option<EventId>, event: &str) {
    let written = match id {
        Some(id) => write!(text, "id: {id}\nevent: {event}\ndata: "),
        None => write!(text, "event: {event}\ndata: "),
    };
    written.expect("memory takes it");
}
