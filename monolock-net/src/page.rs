//! The page at the admin address: all locks live in a browser.
//!
//! It is one document with its style and its script in it, and may load and call nothing but the API that it came from.
//! The parts lie in the folder `page` and are put together here; what the policy lets run is what was put together.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};

/// Where it is.
pub(crate) const PATH: &str = "/";

const CROSS_ORIGIN_OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<title>monolock</title>
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
%3Cpath d='M4.5 7V5a3.5 3.5 0 0 1 7 0v2' fill='none' stroke='%230a6670' stroke-width='2'/%3E\
%3Crect x='2' y='7' width='12' height='8' rx='2' fill='%230a6670'/%3E%3C/svg%3E\">
<style>";

const STYLE: &str = include_str!("page/style.css");
const BODY: &str = include_str!("page/index.html");

/// One module, so that nothing of it can be reached from outside.
const SCRIPT: &str = concat!(
    include_str!("page/text.js"),
    include_str!("page/model.js"),
    include_str!("page/stream.js"),
    include_str!("page/grid.js"),
    include_str!("page/list.js"),
    include_str!("page/one.js"),
    include_str!("page/main.js"),
);

struct Page {
    text: Bytes,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let text = [
        HEAD,
        STYLE,
        "</style>\n</head>\n<body>\n",
        BODY,
        "<script type=\"module\">",
        SCRIPT,
        "</script>\n</body>\n</html>\n",
    ]
    .concat();
    let [script, style] = [SCRIPT, STYLE].map(hash);
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    Page { text: text.into(), policy: policy.try_into().expect("it is ASCII") }
});

/// The page. It has nothing in it that is a secret, and whoever has it can do no more than without.
pub(crate) async fn page() -> impl IntoResponse {
    let Page { text, policy } = &*PAGE;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, policy.clone()),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CROSS_ORIGIN_OPENER_POLICY, HeaderValue::from_static("same-origin")),
        (CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
        // The next version of the server has another page.
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text.clone())
}

/// What a policy lets in.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}
