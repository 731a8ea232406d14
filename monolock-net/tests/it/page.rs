//! The page at the admin address, as it comes over HTTP. What it does is tested in a browser (`testing/browser`).

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use monolock_net::{AdminAccess, AdminListen, AdminSettings};
use ring::digest::{SHA256, digest};

use crate::admin::local;
use crate::http::{Response, exchange, request, request_with};
use crate::server::{TestServer, own_address};

fn start() -> TestServer {
    let address = own_address();
    TestServer::with(move |builder| builder.admin(local(address)))
}

/// What stands between two marks of the page, each of which is there once.
#[track_caller]
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    assert_eq!((page.matches(begin).count(), page.matches(end).count()), (1, 1), "{begin} {end}");
    page.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

/// The directives of its policy.
fn policy(response: &Response) -> Vec<&str> {
    response.header("content-security-policy").unwrap().split("; ").collect()
}

#[test]
fn the_page_is_whole_in_itself_and_its_policy_lets_in_what_it_has_and_nothing_else() {
    let server = start();
    let response = request(server.admin(), "GET", "/");
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let hash = |text: &str| format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())));
    let script = format!("script-src {}", hash(between(&response.body, "<script type=\"module\">", "</script>")));
    let style = format!("style-src {}", hash(between(&response.body, "<style>", "</style>")));
    let expected = [
        "default-src 'none'",
        &script,
        &style,
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ];
    assert_eq!(policy(&response), expected);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(response.header(name), Some(value), "{name}");
    }
    assert!(response.header_names().all(|name| !name.starts_with("access-control-")));
    // Attributes that run or load something would be refused by the policy, or by those who read it.
    for foreign in
        [" onclick=", " onload=", " style=", " src=", "http://", "https://", "innerHTML", "insertAdjacentHTML"]
    {
        let body = response.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains(foreign), "{foreign}");
    }
}

#[test]
fn only_what_a_browser_does_to_open_a_page_opens_it() {
    let server = start();
    let admin = server.admin();
    // A link on any site may lead to it; the page that has it may do nothing with it.
    let linked = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(request_with(admin, "GET", "/", linked).status, 200);
    assert_eq!(request_with(admin, "GET", "/api/info", linked).status, 403);
    for (method, status) in [("POST", 405), ("DELETE", 405), ("PUT", 405)] {
        assert_eq!(request(admin, method, "/").status, status, "{method}");
        assert_eq!(request_with(admin, method, "/", linked).status, 403, "{method}");
    }
    for path in ["//", "/index.html", "/api", "/page/main.js"] {
        assert_eq!(request(admin, "GET", path).status, 404, "{path}");
    }
    let foreign = exchange(crate::http::connect(admin), "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(foreign.status, 403);
}

#[test]
fn the_page_is_there_without_the_token_and_the_api_behind_it_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    fs::write(&file, "s3cret").unwrap();
    let settings = AdminSettings { listen: AdminListen::Tcp(own_address()), access: AdminAccess::Token(file) };
    let server = TestServer::with(move |builder| builder.admin(settings));
    let here = server.admin();
    let page = request(here, "GET", "/");
    assert_eq!(page.status, 200);
    assert!(!page.body.contains("s3cret"));
    for (method, target) in [("GET", "/api/info"), ("GET", "/api/events"), ("GET", "//"), ("POST", "/")] {
        assert_eq!(request(here, method, target).status, 401, "{method} {target}");
    }
}
