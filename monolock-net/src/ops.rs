//! What machines ask a server that runs: whether it lives, whether it is ready, and its metrics.
//!
//! It answers as long as the server does anything, the whole of a stop included.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text::{self, CONTENT_TYPE as PROMETHEUS_TEXT};
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::shared::Shared;

#[derive(Debug)]
struct Ops {
    shared: Arc<Shared>,
    registry: Registry,
    /// One scrape at a time: it looks at every lock.
    scrapes: Arc<Semaphore>,
}

/// What is served.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let registry = registry(&shared);
    let ops = Ops { shared, registry, scrapes: Arc::new(Semaphore::new(1)) };
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(health))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(ops))
}

/// A server that stops is neither healthy nor ready: nothing should be sent to it any more.
async fn health(State(ops): State<Arc<Ops>>) -> (StatusCode, &'static str) {
    if ops.shared.stopping.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else {
        (StatusCode::OK, "ok")
    }
}

async fn metrics(State(ops): State<Arc<Ops>>) -> Response {
    let turn = Arc::clone(&ops.scrapes).acquire_owned().await;
    // Every lock is looked at, so it is done beside the tasks that serve clients.
    let scrape = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut text = String::new();
        prometheus_text::encode(&mut text, &ops.registry).map(|()| text)
    });
    match scrape.await {
        Ok(Ok(text)) => ([(CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response(),
        Ok(Err(fmt::Error)) | Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn registry(shared: &Arc<Shared>) -> Registry {
    let mut registry = Registry::default();
    let monolock = registry.sub_registry_with_prefix("monolock");
    shared.witness().metrics.register(monolock);
    monolock.register_collector(Box::new(Gauges(Arc::clone(shared))));
    #[cfg(target_os = "linux")]
    registry.sub_registry_with_prefix("process").register_collector(Box::new(crate::process::ProcessCollector::new()));
    registry
}

/// What is read off the server at each scrape.
#[derive(Debug)]
struct Gauges(Arc<Shared>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Self(shared) = self;
        let survey = shared.shards.survey();
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut gauges = Encoder(&mut encoder);
        gauges.encode("connections_active", "Open connections.", count(shared.connections.len()))?;
        gauges.encode("locks_held", "Locks that somebody holds.", count(survey.held))?;
        gauges.encode("waiters", "Claims that wait.", count(survey.waiters))?;
        gauges.encode("longest_wait_seconds", "The longest present wait.", survey.longest_wait.as_secs_f64())?;
        gauges.encode("longest_hold_seconds", "The longest present hold.", survey.longest_hold.as_secs_f64())?;
        let grace = shared.shards.start_grace_remaining().as_secs_f64();
        gauges.encode("start_grace_seconds", "How long nobody will be granted anything yet, after the start.", grace)
    }
}

struct Encoder<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Encoder<'_, '_> {
    fn encode<N: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: N) -> Result<(), fmt::Error>
    where
        ConstGauge<N>: prometheus_client::encoding::EncodeMetric,
    {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }
}
