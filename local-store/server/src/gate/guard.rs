//! The guard: accepts requests for the names of this machine, but refuses requests of web pages with
//! another origin.
//!
//! A browser sends some requests to any address without a preflight. The guard recognises them by
//! headers that browsers add, but SDKs and command-line tools do not. A page can also make its own
//! host name resolve to this machine (DNS rebinding). The guard recognises this by the `Host` header.
//! Sources: WHATWG, "Fetch"; W3C, "Fetch Metadata Request Headers"; RFC 9112, section 3.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{
    CONTENT_TYPE, COOKIE, HOST, HeaderName, ORIGIN, REFERER, UPGRADE_INSECURE_REQUESTS, USER_AGENT,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method};

use super::allow_list::AllowList;
use super::refusal::{Refusal, quoted};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// The content types of forms, which a page may send to any address without a preflight.
const FORMS: [&str; 3] = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// The rules of one listener.
#[derive(Clone, Debug)]
pub struct Guard {
    allowed: AllowList,
}

/// A request that passes the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// A request from a program, not from a web page.
    Program,
    /// A request from a page whose origin is allowed.
    Page(HeaderValue),
    /// The preflight request of a page whose origin is allowed.
    Preflight(HeaderValue),
}

impl Guard {
    /// Creates a guard that accepts the names of this machine, and the hosts and origins in `allowed`.
    #[must_use]
    pub fn new(allowed: AllowList) -> Self {
        Self { allowed }
    }

    /// Checks the head of a request. `own` is the local address to which the request was sent.
    pub(super) fn check(&self, head: &Parts, own: Option<IpAddr>) -> Result<Admitted, Refusal> {
        self.check_host(head, own)?;
        let mut origins = head.headers.get_all(ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let refused = || Refusal::Origin(quoted(origin.as_bytes()));
            let allowed = self.allowed.origins().allowed(origin.as_bytes()).ok_or_else(refused)?;
            return match (origins.next(), &head.method) {
                (Some(_), _) => Err(refused()),
                (None, &Method::OPTIONS) => Ok(Admitted::Preflight(allowed)),
                (None, _) => Ok(Admitted::Page(allowed)),
            };
        }
        let is_reading = matches!(head.method, Method::GET | Method::HEAD);
        if let Some(site) = head.headers.get(SITE)
            && !matches!(site.as_bytes(), b"none" | b"same-origin")
        {
            // A browser requests an image or a link without `Origin`, but with the page's address
            // in `Referer`.
            let page = head.headers.get(REFERER).and_then(origin_of).filter(|_| is_reading);
            let allowed = page.and_then(|origin| self.allowed.origins().allowed(origin.as_bytes()));
            let refused = || Refusal::Site(quoted(site.as_bytes()));
            return allowed.map(Admitted::Page).ok_or_else(refused);
        }
        if !is_reading && is_of_browser(&head.headers) {
            check_form(&head.headers)?;
        }
        Ok(Admitted::Program)
    }

    fn check_host(&self, head: &Parts, own: Option<IpAddr>) -> Result<(), Refusal> {
        let mut hosts = head.headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::NoHost) };
        let named = || quoted(host.as_bytes());
        let authority = Authority::try_from(host.as_bytes()).map_err(|_| Refusal::NoHost)?;
        if authority.as_str().contains('@') {
            return Err(Refusal::Host(named()));
        }
        if let Some(target) = head.uri.authority()
            && *target != authority
        {
            let target = quoted(target.as_str().as_bytes());
            return Err(Refusal::HostsDiffer { target, host: named() });
        }
        let name = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let is_own = match address(name) {
            Some(address) => {
                address.is_loopback() || Some(address) == own.map(|own| own.to_canonical())
            }
            // Browsers and resolvers resolve these names to loopback addresses only, so the address
            // needs no check. Source: RFC 6761, section 6.3.
            None => name == "localhost" || name.ends_with(".localhost"),
        };
        if is_own || self.allowed.has_host(name) { Ok(()) } else { Err(Refusal::Host(named())) }
    }
}

fn address(name: &str) -> Option<IpAddr> {
    let four = name.parse::<Ipv4Addr>().map(IpAddr::V4);
    let address = four.or_else(|_| name.parse::<Ipv6Addr>().map(IpAddr::V6));
    address.ok().map(|address| address.to_canonical())
}

/// Returns the origin in the URL of a page: its scheme, host and port.
fn origin_of(page: &HeaderValue) -> Option<&str> {
    let page = page.to_str().ok()?;
    let behind_scheme = page.find("://")? + 3;
    let path = page.get(behind_scheme..)?.find('/').map_or(page.len(), |path| behind_scheme + path);
    page.get(..path)
}

/// Returns whether a request has headers that browsers add. `Sec-Fetch-Mode` does not count, because
/// `fetch` in Node.js also sends it.
fn is_of_browser(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName| headers.contains_key(name);
    let marks = [&SITE, &DESTINATION, &REFERER, &COOKIE, &UPGRADE_INSECURE_REQUESTS];
    let is_named = |agent: &HeaderValue| agent.as_bytes().starts_with(b"Mozilla/");
    marks.into_iter().any(has) || headers.get(USER_AGENT).is_some_and(is_named)
}

/// Refuses requests that a page can send without a preflight: requests with the content type of a
/// form, or without a content type.
fn check_form(headers: &HeaderMap) -> Result<(), Refusal> {
    let sent = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(sent).to_ascii_lowercase();
    let kind = text.split([';', ',']).next().unwrap_or_default().trim();
    match kind.is_empty() || FORMS.contains(&kind) {
        true => Err(Refusal::Form(quoted(sent))),
        false => Ok(()),
    }
}
