//! What the server counts, in the names that dashboards know.
//!
//! Every label value exists from the start, at 0. No label carries a lock name or an identity: those come from
//! strangers, and without a bound.

use monolock_core::ReleaseReason;
use monolock_core::wire::ErrorCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// From a millisecond to over nine hours, each bucket twice as wide as the one before.
const BUCKETS: u16 = 26;

/// The codes that count as protocol errors.
const PROTOCOL_ERRORS: [ErrorCode; 9] = [
    ErrorCode::UNSUPPORTED_VERSION,
    ErrorCode::FIRST_MUST_BE_ACQUIRE,
    ErrorCode::DUPLICATE_ACQUIRE,
    ErrorCode::UNKNOWN_TYPE,
    ErrorCode::EMPTY_NAME,
    ErrorCode::NAME_TOO_LONG,
    ErrorCode::NAME_NOT_UTF8,
    ErrorCode::ZERO_LEASE,
    ErrorCode::LEASE_TOO_LONG,
];

/// The counters of one server. A clone counts the same.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) acquires: Counter,
    pub(crate) acl_denials: Counter,
    pub(crate) limit_refusals: Counter,
    pub(crate) heartbeats: Counter,
    pub(crate) connections_accepted: Counter,
    pub(crate) accept_errors: Counter,
    pub(crate) tls_handshake_errors: Counter,
    pub(crate) audit_dropped: Counter,
    pub(crate) token_file_errors: Counter,
    pub(crate) event_readers: Gauge,
    pub(crate) event_readers_dropped: Counter,
    pub(crate) events_dropped: Counter,
    pub(crate) wait_seconds: Histogram,
    pub(crate) hold_seconds: Histogram,
    releases: Family<ReasonLabel, Counter>,
    protocol_errors: Family<CodeLabel, Counter>,
    reloads: Family<ResultLabel, Counter>,
}

/// How a reload went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReloadResult {
    Success,
    Failure,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new(exponential_buckets(0.001, 2.0, BUCKETS));
        let metrics = Self {
            acquires: Counter::default(),
            acl_denials: Counter::default(),
            limit_refusals: Counter::default(),
            heartbeats: Counter::default(),
            connections_accepted: Counter::default(),
            accept_errors: Counter::default(),
            tls_handshake_errors: Counter::default(),
            audit_dropped: Counter::default(),
            token_file_errors: Counter::default(),
            event_readers: Gauge::default(),
            event_readers_dropped: Counter::default(),
            events_dropped: Counter::default(),
            wait_seconds: histogram(),
            hold_seconds: histogram(),
            releases: Family::default(),
            protocol_errors: Family::default(),
            reloads: Family::default(),
        };
        for reason in ReleaseReason::ALL {
            drop(metrics.releases.get_or_create(&ReasonLabel { reason: reason.as_str() }));
        }
        for code in PROTOCOL_ERRORS {
            drop(metrics.protocol_errors.get_or_create(&CodeLabel::of(code)));
        }
        for result in [ReloadResult::Success, ReloadResult::Failure] {
            drop(metrics.reloads.get_or_create(&ResultLabel::of(result)));
        }
        metrics
    }

    pub(crate) fn count_release(&self, reason: ReleaseReason) {
        self.releases.get_or_create(&ReasonLabel { reason: reason.as_str() }).inc();
    }

    pub(crate) fn count_protocol_error(&self, code: ErrorCode) {
        self.protocol_errors.get_or_create(&CodeLabel::of(code)).inc();
    }

    pub(crate) fn count_reload(&self, result: ReloadResult) {
        self.reloads.get_or_create(&ResultLabel::of(result)).inc();
    }

    /// Registers them all, under the names that dashboards know.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let mut counter = |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
        counter("acquires", "Claims taken in: granted at once or queued", &self.acquires);
        counter("acl_denials", "Claims that the access-control list refused", &self.acl_denials);
        counter("limit_refusals", "Claims refused over a limit on sessions", &self.limit_refusals);
        counter("heartbeats", "Heartbeats taken in", &self.heartbeats);
        counter("connections_accepted", "Connections accepted", &self.connections_accepted);
        counter("accept_errors", "Connections that could not be accepted", &self.accept_errors);
        counter("tls_handshake_errors", "TLS handshakes that failed or took too long", &self.tls_handshake_errors);
        counter("audit_dropped", "Audit events dropped because the sink took no more", &self.audit_dropped);
        counter("token_file_errors", "Failures to reserve tokens in the token file", &self.token_file_errors);
        counter(
            "event_readers_dropped",
            "Readers of the event stream dropped because they were too slow",
            &self.event_readers_dropped,
        );
        counter("events_dropped", "Events that were gone before such a reader had taken them", &self.events_dropped);
        registry.register("event_readers", "Readers of the event stream", self.event_readers.clone());
        registry.register("releases", "Grants that ended, by the reason", self.releases.clone());
        registry.register(
            "protocol_errors",
            "Connections ended for what they sent, by code",
            self.protocol_errors.clone(),
        );
        registry.register(
            "reloads",
            "Reloads of certificates and access-control list, by result",
            self.reloads.clone(),
        );
        registry.register("wait_seconds", "How long a grant was waited for", self.wait_seconds.clone());
        registry.register("hold_seconds", "How long a lock was held", self.hold_seconds.clone());
        let build = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "What runs here", Info::new(build));
    }
}

impl CodeLabel {
    fn of(code: ErrorCode) -> Self {
        Self { code: code.to_string() }
    }
}

impl ResultLabel {
    const fn of(result: ReloadResult) -> Self {
        Self {
            result: match result {
                ReloadResult::Success => "success",
                ReloadResult::Failure => "failure",
            },
        }
    }
}
