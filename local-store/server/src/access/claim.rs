//! Parses the signature data of a request from its `Authorization` header or its query string.
//!
//! The module `signature` verifies the data. Source: AWS, "Authenticating requests (AWS Signature
//! Version 4)", the header `Authorization` and the query parameters.

use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use percent_encoding::percent_decode_str;

use crate::api::error::ApiError;

/// The only supported algorithm.
pub(super) const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The query parameter with the signature of a presigned request. The signature covers all other
/// parameters.
pub(super) const SIGNATURE_PARAMETER: &str = "X-Amz-Signature";
/// The format of a signature's time, as a `strftime` pattern.
const DATE_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The signature data of a request, as it was sent and not yet verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) access_key: String,
    /// The credential scope `<date>/<Region>/<service>/aws4_request`, as it was sent.
    pub(super) scope: Scope,
    /// The names of the signed headers in lower case, as they were sent.
    pub(super) signed_headers: Vec<String>,
    /// The signature in hexadecimal digits, as it was sent.
    pub(super) signature: String,
    pub(super) date: Timestamp,
    /// The number of seconds for which a presigned request is valid, as it was sent. `None` if the
    /// signature is in a header.
    pub(super) expires: Option<String>,
    pub(super) has_session_token: bool,
}

/// The scope of a credential.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) date: String,
    pub(super) region: String,
    pub(super) service: String,
    pub(super) terminator: String,
}

/// Returns a time in [`DATE_FORMAT`].
pub(super) fn date_text(time: Timestamp) -> String {
    time.to_zoned(TimeZone::UTC).strftime(DATE_FORMAT).to_string()
}

fn parse_date(text: &str) -> Option<Timestamp> {
    let basic = DateTime::strptime(DATE_FORMAT, text).ok();
    basic.and_then(|date| date.to_zoned(TimeZone::UTC).ok()).map(|zoned: Zoned| zoned.timestamp())
}

/// Returns the value of a header as a string; `None` if the header is missing.
pub(super) fn header<'h>(head: &'h Parts, name: &str) -> Option<&'h str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the decoded parameters of the query string.
pub(super) fn query_parameters(head: &Parts) -> Vec<(Vec<u8>, Vec<u8>)> {
    let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let query = head.uri.query().unwrap_or_default();
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Parses the signature data of a request.
pub(super) fn read(head: &Parts) -> Result<Claim, ApiError> {
    let query = query_parameters(head);
    let is_presigned = query.iter().any(|(name, _)| name == b"X-Amz-Algorithm");
    let authorization = head.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or(""));
    match (authorization, is_presigned) {
        (Some(_), true) => Err(ApiError::invalid_signature(
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header.",
        )),
        (Some(text), false) if text.trim_start().starts_with("AWS4-") => from_header(head, text),
        (None, true) => from_query(head, &query),
        _ => Err(ApiError::missing_authentication()),
    }
}

fn from_header(head: &Parts, text: &str) -> Result<Claim, ApiError> {
    let (algorithm, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text, ""));
    let part = |name: &str| {
        // The parts of the header are separated by commas, white space, or both.
        let parts = rest.split(|c: char| c == ',' || c.is_whitespace());
        let mut parts = parts.filter_map(|part| part.split_once('='));
        parts.find(|(found, value)| *found == name && !value.is_empty()).map(|(_, value)| value)
    };
    let date = header(head, "x-amz-date").and_then(parse_date);
    let date = date.or_else(|| {
        let given = header(head, DATE.as_str())?;
        let zoned = rfc2822::parse(given).ok();
        zoned.map(|zoned| zoned.timestamp()).or_else(|| parse_date(given))
    });
    let mut missing = String::new();
    for name in ["Credential", "Signature", "SignedHeaders"] {
        if part(name).is_none() {
            missing.push_str(&format!("Authorization header requires '{name}' parameter. "));
        }
    }
    if date.is_none() {
        missing.push_str(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. ",
        );
    }
    let (Some(credential), Some(signature), Some(signed), Some(date), ALGORITHM) =
        (part("Credential"), part("Signature"), part("SignedHeaders"), date, algorithm)
    else {
        if missing.is_empty() {
            missing = format!("Unsupported AWS 'algorithm': '{algorithm}'. ");
        }
        return Err(ApiError::incomplete_signature(&format!("{missing}Authorization={text}")));
    };
    let (access_key, scope) = credential_parts(credential)?;
    Ok(Claim {
        access_key,
        scope,
        signed_headers: signed.split(';').map(str::to_owned).collect(),
        signature: signature.to_owned(),
        date,
        expires: None,
        has_session_token: head.headers.contains_key("x-amz-security-token"),
    })
}

fn from_query(head: &Parts, query: &[(Vec<u8>, Vec<u8>)]) -> Result<Claim, ApiError> {
    let part = |name: &str| {
        let found = query.iter().find(|(found, _)| found == name.as_bytes());
        found.and_then(|(_, value)| std::str::from_utf8(value).ok()).filter(|text| !text.is_empty())
    };
    let mut missing = String::new();
    for name in [
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        SIGNATURE_PARAMETER,
        "X-Amz-SignedHeaders",
        "X-Amz-Date",
    ] {
        if part(name).is_none() {
            missing.push_str(&format!("AWS query-string parameters must include '{name}'. "));
        }
    }
    let date = part("X-Amz-Date").and_then(parse_date);
    let (Some(ALGORITHM), Some(credential), Some(signature), Some(signed), Some(date)) = (
        part("X-Amz-Algorithm"),
        part("X-Amz-Credential"),
        part(SIGNATURE_PARAMETER),
        part("X-Amz-SignedHeaders"),
        date,
    ) else {
        return Err(ApiError::incomplete_signature(&format!(
            "{missing}Re-examine the query-string parameters."
        )));
    };
    let (access_key, scope) = credential_parts(credential)?;
    Ok(Claim {
        access_key,
        scope,
        signed_headers: signed.split(';').map(str::to_owned).collect(),
        signature: signature.to_owned(),
        date,
        expires: Some(part("X-Amz-Expires").unwrap_or_default().to_owned()),
        has_session_token: part("X-Amz-Security-Token").is_some()
            || head.headers.contains_key("x-amz-security-token"),
    })
}

/// Splits a credential, `<key>/<date>/<Region>/<service>/<terminator>`, into access key and scope.
fn credential_parts(credential: &str) -> Result<(String, Scope), ApiError> {
    let parts: Vec<&str> = credential.split('/').collect();
    let [access_key, date, region, service, terminator] = parts[..] else {
        return Err(ApiError::incomplete_signature(&format!(
            "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, got '{credential}'"
        )));
    };
    let scope = Scope {
        date: date.to_owned(),
        region: region.to_owned(),
        service: service.to_owned(),
        terminator: terminator.to_owned(),
    };
    Ok((access_key.to_owned(), scope))
}
