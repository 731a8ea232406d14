//! Who may speak to the admin API, which is looked at before anything else of a request is.
//!
//! A browser on the operator's machine reaches a loopback port as well as the operator does. So a request must name
//! this machine as its host, which a page that rebinds its own name cannot, and must not come from another site.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use subtle::ConstantTimeEq as _;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) hosts: Hosts,
    pub(crate) token: Option<BearerToken>,
}

/// As which host a request may address the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// As any.
    Any,
    /// As `localhost` or a loopback address, with a port or without.
    Loopback,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    ForeignHost,
    CrossSite,
    Unauthorized,
}

/// A secret that opens the API.
pub(crate) struct BearerToken(Vec<u8>);

impl Guard {
    pub(crate) fn check(&self, request: &Request) -> Result<(), Refusal> {
        self.check_host(request)?;
        if !is_of_same_site(request.headers()) {
            return Err(Refusal::CrossSite);
        }
        if self.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
            return Err(Refusal::Unauthorized);
        }
        Ok(())
    }

    /// What is asked of a request for the page, which says and does nothing by itself: a browser shows no token when
    /// it opens one, and a link from anywhere may lead to it.
    pub(crate) fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        if self.hosts == Hosts::Loopback && !is_addressed_to_loopback(request) {
            return Err(Refusal::ForeignHost);
        }
        Ok(())
    }
}

impl BearerToken {
    /// Reads a token, without the white space around it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for a token that is empty or that no header can carry, and those of the operating
    /// system.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let token = text.trim();
        if token.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a token is one word of visible ASCII characters"));
        }
        Ok(Self(token.as_bytes().to_vec()))
    }

    /// Takes as long for a token that is wrong in its first byte as for one that is wrong in its last.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
        });
        shown.is_some_and(|shown| shown.ct_eq(&self.0).into())
    }
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BearerToken(..)")
    }
}

/// Whether all that says whom a request addresses says a loopback name; nothing said is not.
fn is_addressed_to_loopback(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default()).peekable();
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    hosts.peek().is_some() && hosts.chain(authority).all(is_loopback)
}

/// Whether a host, with a port or without, is this machine by its name or number. A number cannot be made to mean
/// another machine.
fn is_loopback(host: &str) -> bool {
    let (host, port) = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((host, port)) => return is_port(port) && host.parse::<Ipv6Addr>().is_ok_and(is_loopback_number),
            None => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    is_port(port) && (host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(is_loopback_number))
}

fn is_loopback_number(address: impl Into<IpAddr>) -> bool {
    address.into().to_canonical().is_loopback()
}

fn is_port(suffix: &str) -> bool {
    suffix.is_empty() || suffix.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Whether no page of another site is behind a request. What is no browser says nothing about it and passes.
fn is_of_same_site(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).map_or(&[][..], |host| host.as_bytes());
    let is_own = |origin: &[u8]| {
        let authority = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    };
    headers.get_all(ORIGIN).iter().all(|origin| is_own(origin.as_bytes()))
        && headers.get_all(SEC_FETCH_SITE).iter().all(|site| site == "same-origin" || site == "none")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;

    use super::{Guard, Hosts, Refusal, is_loopback};

    #[test]
    fn b56_only_this_machine_by_name_or_number_is_a_loopback_host() {
        for host in ["localhost", "LocalHost:7072", "127.0.0.1", "127.0.0.1:1", "127.8.9.10", "[::1]", "[::1]:65535"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "localhost:",
            "localhost:http",
            "localhost:65536",
            "10.0.0.1",
            "[::1",
            "[::1]evil",
            "::1",
            "[fe80::1]",
            "user@localhost",
            "2130706433",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn b57_a_page_of_another_site_is_refused_and_what_is_no_page_passes() {
        let check = |headers: &[(&str, &str)]| {
            let request =
                headers.iter().fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
            Guard { hosts: Hosts::Any, token: None }.check(&request.body(Body::empty()).unwrap())
        };
        let host = ("host", "localhost:7072");
        assert_eq!(check(&[host]), Ok(()));
        assert_eq!(check(&[host, ("origin", "http://localhost:7072"), ("sec-fetch-site", "same-origin")]), Ok(()));
        assert_eq!(check(&[host, ("sec-fetch-site", "none")]), Ok(()));
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:3000"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(check(&[host, foreign]), Err(Refusal::CrossSite), "{foreign:?}");
        }
    }
}
