//! The canonical request and the string to sign, which a signature covers.
//!
//! Source: AWS, "Create a signed AWS API request", the canonical request and the string to sign.

use std::fmt::Write as _;

use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use sha2::{Digest, Sha256};

use super::claim::{ALGORITHM, Claim, SIGNATURE_PARAMETER, date_text, query_parameters};

/// The characters to percent-encode: all except the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const RESERVED_IN_PATH: &AsciiSet = &RESERVED.remove(b'/');

/// Returns the SHA-256 hash of the bytes in hexadecimal digits.
pub(super) fn sha256_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Returns the credential scope in the form that the string to sign contains.
fn scope_text(claim: &Claim) -> String {
    let scope = &claim.scope;
    format!("{}/{}/{}/{}", scope.date, scope.region, scope.service, scope.terminator)
}

/// Returns the string to sign.
pub(super) fn string_to_sign(head: &Parts, claim: &Claim, payload_hash: &str) -> String {
    let request = canonical_request(head, claim, payload_hash);
    format!(
        "{ALGORITHM}\n{}\n{}\n{}",
        date_text(claim.date),
        scope_text(claim),
        sha256_text(request.as_bytes())
    )
}

fn canonical_request(head: &Parts, claim: &Claim, payload_hash: &str) -> String {
    let path = percent_encode(head.uri.path().as_bytes(), RESERVED_IN_PATH);
    let mut out = format!("{}\n{path}\n{}\n", head.method, canonical_query(head));
    for name in &claim.signed_headers {
        let _ = writeln!(out, "{name}:{}", canonical_header(head, name));
    }
    let _ = write!(out, "\n{}\n{payload_hash}", claim.signed_headers.join(";"));
    out
}

fn canonical_query(head: &Parts) -> String {
    let mut parts: Vec<String> = query_parameters(head)
        .into_iter()
        .filter(|(name, _)| name != SIGNATURE_PARAMETER.as_bytes())
        .map(|(name, value)| {
            format!("{}={}", percent_encode(&name, RESERVED), percent_encode(&value, RESERVED))
        })
        .collect();
    parts.sort();
    parts.join("&")
}

/// Returns the values of a header in canonical form: each run of spaces becomes one space.
fn canonical_header(head: &Parts, name: &str) -> String {
    let values = head.headers.get_all(name).iter().map(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    values.collect::<Vec<_>>().join(",")
}
